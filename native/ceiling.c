/* Tokens after jobs left hand: no more than a ceiling now lets through (protocol §7, §12.2). Twin: lua/lib/ceiling.lua.
 * Where a key holds another type nobody is woken: a token is a hint. */
#include <ctype.h>
#include <stdlib.h>

#include "emq.h"

enum { LANES = 64 };

/* Lua's tonumber, for what other clients may have written; what is none leaves `number` as it is. */
static bool number_of(RedisModuleString *string, double *number) {
    const char *at = emq_text(string).at;
    char *end;
    double value = strtod(at, &end);
    if (end == at) return false;
    while (isspace((unsigned char)*end)) end++;
    if (*end != '\0') return false;
    *number = value;
    return true;
}

enum reading { READ_NONE, READ_NUMBER, READ_WRONG };

static enum reading hash_number(const struct queue *queue, const char *name, RedisModuleString *field, double *number) {
    RedisModuleString *key = emq_key_named(queue, name), *value = NULL;
    RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, key, REDISMODULE_READ);
    enum reading reading = READ_NONE;
    if (handle) {
        if (RedisModule_KeyType(handle) != REDISMODULE_KEYTYPE_HASH) reading = READ_WRONG;
        else RedisModule_HashGet(handle, REDISMODULE_HASH_NONE, field, &value, NULL);
        RedisModule_CloseKey(handle);
    }
    if (value) {
        if (number_of(value, number)) reading = READ_NUMBER;
        emq_free(queue, value);
    }
    emq_free(queue, key);
    return reading;
}

/* How many members a set has, or -1 when it is of another type. */
static double length_of(const struct queue *queue, RedisModuleString *key, int wanted) {
    size_t length;
    int type = emq_type(queue, key, &length);
    return type == wanted || type == REDISMODULE_KEYTYPE_EMPTY ? (double)length : -1;
}

static double length_named(const struct queue *queue, const char *name, int wanted) {
    RedisModuleString *key = emq_key_named(queue, name);
    double length = length_of(queue, key, wanted);
    emq_free(queue, key);
    return length;
}

/* 1, 0, or -1 when `paused` is of another type. */
static long long is_paused(const struct queue *queue, RedisModuleString *group) {
    RedisModuleString *paused = emq_key_named(queue, "paused");
    RedisModuleCallReply *reply = RedisModule_Call(queue->ctx, "SISMEMBER", "ss", paused, group);
    long long answer = -1;
    if (reply && RedisModule_CallReplyType(reply) == REDISMODULE_REPLY_INTEGER)
        answer = RedisModule_CallReplyInteger(reply);
    emq_done(reply);
    emq_free(queue, paused);
    return answer;
}

/* How many jobs of a lane could be claimed now, or -1. */
static double lane_served(const struct queue *queue, RedisModuleString *group) {
    RedisModuleString *lane = emq_key(queue, "g:", emq_text(group), ":pending");
    double depth = length_of(queue, lane, REDISMODULE_KEYTYPE_ZSET), limit, hands = 0;
    emq_free(queue, lane);
    if (depth <= 0) return depth;
    long long paused = is_paused(queue, group);
    if (paused != 0) return paused < 0 ? -1 : 0;
    switch (hash_number(queue, "glimit", group, &limit)) {
        case READ_WRONG: return -1;
        case READ_NONE: return depth;
        case READ_NUMBER: break;
    }
    if (hash_number(queue, "gactive", group, &hands) == READ_WRONG) return -1;
    double room = limit - hands < depth ? limit - hands : depth;
    return room > 0 ? room : 0;
}

/* How many jobs could be claimed but for the ceiling, counted no further than `most` and 64 lanes deep, or -1. */
static double waiting_up_to(const struct queue *queue, double most) {
    RedisModuleString *ring = emq_key_named(queue, "ring");
    double lanes = length_of(queue, ring, REDISMODULE_KEYTYPE_LIST);
    double flat = length_named(queue, "pending", REDISMODULE_KEYTYPE_ZSET);
    double waiting = flat < 0 || lanes < 0 ? -1 : flat + lanes;
    if (lanes > 0 && waiting >= 0 && waiting < most) {
        RedisModuleKey *handle = RedisModule_OpenKey(queue->ctx, ring, REDISMODULE_READ);
        for (long i = 0; handle && i < LANES && i < (long)lanes && waiting >= 0 && waiting < most; i++) {
            RedisModuleString *group = RedisModule_ListGet(handle, i);
            if (!group) break;
            double served = lane_served(queue, group);
            waiting = served < 0 ? -1 : waiting + (served > 1 ? served - 1 : 0);
            emq_free(queue, group);
        }
        RedisModule_CloseKey(handle);
    }
    emq_free(queue, ring);
    return waiting < most ? waiting : most;
}

void emq_wake_freed(const struct queue *queue, long long freed) {
    double ceiling;
    RedisModuleString *field = RedisModule_CreateString(queue->ctx, "concurrency", 11);
    enum reading reading = hash_number(queue, "meta", field, &ceiling);
    emq_free(queue, field);
    if (reading != READ_NUMBER || !(ceiling > 0)) return;
    double in_hand = length_named(queue, "active", REDISMODULE_KEYTYPE_ZSET), room = ceiling - in_hand;
    if (in_hand < 0 || room < 1 || freed < 1) return;
    double waiting = waiting_up_to(queue, room), before = room - (double)freed;
    if (waiting < before) before = waiting;
    if (before < 0) before = 0;
    emq_wake(queue, (long long)(waiting - before));
}
