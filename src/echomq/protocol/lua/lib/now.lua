-- now: the server's clock in ms, one instant for the whole call (protocol §4).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
