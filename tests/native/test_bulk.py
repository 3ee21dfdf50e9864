"""The commands beyond protocol §5's table: admission, claim many, settle many (docs/native.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from echomq.protocol import admin, jobs
from echomq.protocol.call import Arg, Call
from support.native import Pair
from support.raw import RawClient
from support.runner import Scene, with_args
from support.servers import Server

FAR = 2**52
LAST = 2**53 - 1
GROUP = "LAN00000000001"
NO_NUMBERS = ["", " 5", "+5", "-5", "05", "1e3", "5.0", "5\0", "five", str(LAST + 1), "9" * 30]


def claimed(reply: Any) -> Any:
    """A claim without the server's clock."""
    return reply[1:]


def work(pair: Pair, count: int, **fields: str) -> list[str]:
    """Jobs that wait, each with these fields besides its own."""
    ids = pair.mint_many(count)
    pair.arrange(lambda s: s.run(jobs.enqueue_many(s.queue, [(i, f"p{at}") for at, i in enumerate(ids)])))
    for job_id in ids if fields else []:
        words = [word for pair_ in fields.items() for word in pair_]
        pair.arrange(lambda s, j=job_id, w=words: s.execute("HSET", s.keys.job(j), *w))
    return ids


def in_hand(pair: Pair, count: int) -> list[str]:
    ids = work(pair, count)
    pair.arrange(lambda s: s.run(jobs.claim_many(s.queue, count)))
    pair.arrange(Scene.drop_tokens)
    return ids


def claim(n: int) -> Callable[[Scene], Call[Any]]:
    return lambda s: jobs.claim_many(s.queue, n)


def complete(*held: tuple[Arg, Arg]) -> Callable[[Scene], Call[Any]]:
    words = [word for job_id, token in held for word in (job_id, token, b"", 0)]
    return lambda s: _with(jobs.complete_many(s.queue, [("JOB0NgWEfAEJfs", 1)]), words)


def _with(call: Call[Any], args: list[Arg]) -> Call[Any]:
    return replace(call, args=tuple(args))


# EMQ.ENQUEUE, EMQ.ENQUEUEMANY


def test_enqueue_admits_once(pair: Pair) -> None:
    job_id = pair.mint()
    assert pair.both(lambda s: jobs.enqueue(s.queue, job_id, b"\0p")) == 1
    assert pair.both(lambda s: jobs.enqueue(s.queue, job_id, b"q")) == 0
    assert pair.native.row(job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"\0p"}
    assert pair.native.tokens() == 1


def test_enqueue_answers_duplicate_while_a_result_lives_and_takes_over_a_ghost(pair: Pair) -> None:
    done, ghost = pair.mint_many(2)
    pair.arrange(lambda s: s.execute("SET", s.keys.job(done) + ":result", "r", "PX", 60_000))
    pair.arrange(lambda s: s.execute("ZADD", s.keys.pending, 0, ghost))
    assert pair.both(lambda s: jobs.enqueue(s.queue, done, b"p")) == 0
    assert pair.both(lambda s: jobs.enqueue(s.queue, ghost, b"p")) == 1


@pytest.mark.parametrize("count", [1, 63, 65, 999, 1_000, 1_001, 2_345])
def test_enqueue_many_admits_any_number(pair: Pair, count: int) -> None:
    ids = pair.mint_many(count)
    assert pair.both(lambda s: jobs.enqueue_many(s.queue, [(i, b"p") for i in ids])) == [1] * count
    assert pair.native.tokens() == min(count, 64)
    assert pair.native.run(jobs.pending_size(pair.native.queue)) == count


def test_enqueue_many_tells_duplicates_apart(pair: Pair) -> None:
    a, b, c = pair.mint_many(3)
    pair.arrange(lambda s: s.run(jobs.enqueue(s.queue, b, b"first")))
    assert pair.both(lambda s: jobs.enqueue_many(s.queue, [(a, b"1"), (b, b"2"), (a, b"3"), (c, b"4")])) == [1, 0, 0, 1]
    assert pair.native.row(a)[b"payload"] == b"1"
    assert pair.both(lambda s: jobs.enqueue_many(s.queue, [(a, b"1"), (b, b"2")])) == [0, 0]


@pytest.mark.parametrize("wrong", ["", "USR0NgWEfAEJfs", "JOB\0"])
def test_admission_of_what_is_no_job_refuses_all(pair: Pair, wrong: str) -> None:
    good = pair.mint()
    many = lambda s: _with(jobs.enqueue_many(s.queue, [(good, b"p")]), [good, b"p", wrong, b"p"])  # noqa: E731 - one line
    assert pair.refused(many) == "EMQKIND job id must be JOB-namespaced"
    one = lambda s: with_args(jobs.enqueue(s.queue, good, b"p"), {0: wrong})  # noqa: E731 - one line
    assert pair.refused(one) == "EMQKIND job id must be JOB-namespaced"


# EMQ.CLAIM


def test_a_claim_takes_the_lowest_ids_under_one_deadline(pair: Pair) -> None:
    ids = work(pair, 5)
    reply = pair.both(claim(3), claimed)
    assert reply[:2] == [b"", -1]
    assert reply[2:8] == [ids[0].encode(), b"p0", 1, 0, 0, b""]
    assert len(reply) == 2 + 3 * 6
    assert pair.native.row(ids[0])[b"state"] == b"active"
    shot = pair.native.execute("ZRANGE", pair.native.keys.active, 0, -1, "WITHSCORES")
    assert [member for member, _ in shot] == [i.encode() for i in ids[:3]]
    assert len({score for _, score in shot}) == 1
    assert pair.both(claim(9), claimed)[0] == b"empty"
    assert pair.both(claim(9), claimed) == [b"empty", -1]
    assert pair.native.tokens() == 0


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 2_345])
def test_a_claim_takes_any_number(pair: Pair, count: int) -> None:
    work(pair, count)
    assert len(pair.both(claim(9_000), claimed)) == 2 + 6 * count


def test_a_claim_counts_from_the_servers_now(scene: Scene) -> None:
    scene.run(jobs.enqueue(scene.queue, scene.mint(), b"p"))
    low = scene.now_ms()
    claims = scene.run(jobs.claim_many(scene.queue, 1, lease_ms=5_000))
    assert low <= claims.now_ms <= scene.now_ms()
    assert scene.score("active", claims.jobs[0].id) == claims.now_ms + 5_000


def test_a_claim_drops_ghosts_and_takes_the_next(pair: Pair) -> None:
    ids = work(pair, 6)
    for at in (0, 2, 3, 5):
        pair.arrange(lambda s, at=at: s.execute("DEL", s.keys.job(ids[at])))
    assert pair.both(claim(1), claimed)[2] == ids[1].encode()
    assert pair.both(claim(2), claimed)[0] == b"empty"
    assert pair.native.run(jobs.pending_size(pair.native.queue)) == 0


@pytest.mark.strays("counters that are none")
@pytest.mark.parametrize("value", ["0", "7", "007", "-1", "x", "", "9" * 15, "9" * 16])
def test_a_claim_gives_out_counters_as_its_script_does(pair: Pair, value: str) -> None:
    work(pair, 1, failures=value, stalled=value, attempts="41")
    assert pair.both(claim(1), claimed)[4] == 42


@pytest.mark.parametrize("ceiling", ["0", "1", "2", "3", "9"])
def test_a_claim_stops_at_the_ceiling(pair: Pair, ceiling: str) -> None:
    in_hand(pair, 1)
    work(pair, 5)
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", ceiling))
    pair.both(claim(3), claimed)
    pair.both(claim(3), claimed)


def test_a_claim_on_a_paused_queue_says_so_and_deletes_the_tokens(pair: Pair) -> None:
    work(pair, 2)
    pair.arrange(lambda s: s.run(admin.pause_queue(s.queue)))
    assert pair.both(claim(3), claimed) == [b"paused", -1]
    assert pair.native.tokens() == 0


@pytest.mark.parametrize("score", ["-5", "0", "1.5", "77", str(LAST), "9e15", "1e300", "inf", "-inf"])
@pytest.mark.parametrize("place", ["schedule", "repeat", "cron"])
@pytest.mark.strays("a recurrence without its record")
def test_a_claim_tells_the_next_instant_worth_trying(pair: Pair, place: str, score: str) -> None:
    pair.arrange(lambda s: s.execute("ZADD", s.keys.base + place, score, "member"))
    pair.both(claim(1), claimed)
    pair.arrange(lambda s: s.execute("ZADD", s.keys.schedule, 50, "other"))
    pair.both(claim(1), claimed)


PLACES = ("active", "dead", "repeat", "cron", "schedule")
LEFT: dict[str, Callable[[Scene, str], object]] = {
    "lane": lambda s, _: s.into_lane(GROUP, s.mint()),
    "rate": lambda s, _: s.execute("HSET", s.keys.base + "meta", "max", 5, "period_ms", 1_000),
    "ceiling": lambda s, _: s.execute("HSET", s.keys.base + "meta", "concurrency", "many"),
    "group": lambda s, i: s.execute("HSET", s.keys.job(i), "group", GROUP),
    "cancelled": lambda s, i: s.execute("HSET", s.keys.job(i), "cancel", "reason"),
    "no payload": lambda s, i: s.execute("HDEL", s.keys.job(i), "payload"),
    "no attempts": lambda s, i: s.execute("HDEL", s.keys.job(i), "attempts"),
    "odd attempts": lambda s, i: s.execute("HSET", s.keys.job(i), "attempts", "1.5"),
    "last attempts": lambda s, i: s.execute("HSET", s.keys.job(i), "attempts", LAST),
    "odd id": lambda s, _: (
        s.execute("HSET", s.keys.job("JOBx"), "state", "pending", "attempts", 0, "payload", "p"),
        s.execute("ZADD", s.keys.pending, 0, "JOBx"),
    ),
    **{name: lambda s, _, name=name: s.execute("SET", s.keys.base + name, "x") for name in ("ring", *PLACES)},
}


@pytest.mark.strays("what other clients may leave")
@pytest.mark.parametrize("what", sorted(LEFT))
def test_a_claim_leaves_to_the_script_what_it_does_not_do(pair: Pair, what: str) -> None:
    ids = work(pair, 4)
    LEFT[what](pair.native, ids[2])
    named = {"lane": "lane", "ring": "lane", "rate": "rate"}
    noun = named.get(what, "key" if what in PLACES or what == "ceiling" else "job")
    assert pair.left_to_script(claim(9)) == f"EMQSTATE claim {noun} not native"


@pytest.mark.parametrize("wrong", [*NO_NUMBERS, "0"])
def test_a_claim_refuses_a_lease_or_a_number_that_is_none(pair: Pair, wrong: str) -> None:
    work(pair, 1)
    lease, n = "ERR EMQ.CLAIM lease must be a positive integer", "ERR EMQ.CLAIM n must be a positive integer"
    assert pair.refused(lambda s: with_args(claim(1)(s), {0: wrong})) == lease
    assert pair.refused(lambda s: with_args(claim(1)(s), {1: wrong})) == n
    assert pair.refused(lambda s: with_args(claim(1)(s), {0: wrong, 1: wrong})) == lease
    assert pair.refused(lambda s: with_args(claim(1)(s), {0: LAST})) == lease


# EMQ.COMPLETEMANY


def test_settling_answers_for_each_job(pair: Pair) -> None:
    a, b, c = in_hand(pair, 3)
    (waiting, gone), ghost = pair.mint_many(2), pair.mint()
    pair.arrange(lambda s: s.run(jobs.enqueue_at(s.queue, waiting, b"p", at_ms=FAR)))
    pair.arrange(lambda s: s.execute("ZADD", s.keys.active, FAR, ghost))
    pair.arrange(lambda s: s.run(admin.add_log(s.queue, a, "line")))
    pair.arrange(lambda s: s.execute("SET", s.keys.job(a) + ":lock", "1", "PX", 60_000))
    held = [(a, 1), (b, 2), (gone, 1), (waiting, 0), (ghost, 1), (c, 1), (c, 1), (c, 9), (waiting, 5)]
    stale, idle = b"EMQSTALE complete token mismatch", b"EMQSTATE complete not active"
    assert pair.both(complete(*held)) == [1, stale, 0, idle, 0, 1, 0, 0, stale]
    assert pair.native.places(b) == ["active"]
    assert pair.native.execute("HGET", pair.native.keys.base + "metrics:completed", "count") == b"2"


def test_settling_keeps_results_and_tells_whoever_waits(pair: Pair, server: Server) -> None:
    a, b, c = in_hand(pair, 3)
    words: list[Arg] = [*(a, 1, b"\0r", 60_000), *(b, 1, b"none", 0), *(c, 1, b"", 120_000)]
    with server.client() as ear:
        ear.execute("HELLO", 2)
        for scene in (pair.native, pair.script):
            ear.execute("SUBSCRIBE", scene.keys.base + "results")
        assert pair.both(lambda s: _with(complete((a, 1))(s), words)) == [1, 1, 1]
        assert [heard(ear), heard(ear)] == [f"{a} {c}".encode()] * 2
    assert pair.native.execute("GET", pair.native.keys.job(a) + ":result") == b"\0r"
    assert pair.native.execute("EXISTS", pair.native.keys.job(b) + ":result") == 0
    assert 60_000 < pair.native.execute("PTTL", pair.native.keys.job(c) + ":result") <= 120_000


def heard(ear: RawClient) -> bytes:
    message: bytes = ear.receive()[2]
    return message


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 2_345])
def test_settling_takes_any_number(pair: Pair, count: int) -> None:
    ids = in_hand(pair, count)
    assert pair.both(complete(*((i, 1) for i in [*ids, ids[0]]))) == [1] * count + [0]
    assert pair.native.execute("KEYS", f"{pair.native.keys.base}*") == [
        f"{pair.native.keys.base}metrics:completed".encode()
    ]


@pytest.mark.parametrize("ceiling", [1, 3, 4, 50])
@pytest.mark.parametrize("waiting", [0, 1, 5])
def test_settling_wakes_for_the_places_below_a_ceiling(pair: Pair, ceiling: int, waiting: int) -> None:
    ids = in_hand(pair, 4)
    work(pair, waiting) if waiting else None
    pair.arrange(Scene.drop_tokens)
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", ceiling))
    pair.both(complete(*((i, 1) for i in ids[:3])))


@pytest.mark.strays("a count that is none")
@pytest.mark.parametrize("hands", ["2", "2x", " 2 ", "x", "", "0x2", "2 2"])
def test_settling_reads_the_hands_of_a_lane_as_its_script_does(pair: Pair, hands: str) -> None:
    ids = in_hand(pair, 4)
    waiting = pair.mint_many(4)
    pair.arrange(lambda s: s.into_lane(GROUP, *waiting))
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "glimit", GROUP, 3))
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "gactive", GROUP, hands))
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", 4))
    pair.arrange(Scene.drop_tokens)
    assert pair.both(complete(*((i, 1) for i in ids))) == [1] * 4


SPECIAL: dict[str, Callable[[Scene, str], object]] = {
    "group": lambda s, i: s.execute("HSET", s.keys.job(i), "group", GROUP),
    "parent": lambda s, i: s.execute("HSET", s.keys.job(i), "parent", "JOB00000000001"),
    "dedup": lambda s, i: s.execute("HSET", s.keys.job(i), "dedup", "k"),
    "a flow's parent": lambda s, i: s.execute("SET", s.keys.job(i) + ":dependencies", 0),
    "lapsed": lambda s, i: (s.execute("ZREM", s.keys.active, i), s.execute("ZADD", s.keys.pending, 0, i)),
    "lapsed in a lane": lambda s, i: (s.execute("ZREM", s.keys.active, i), SPECIAL["group"](s, i)),
    "pending is no set": lambda s, i: (s.execute("ZREM", s.keys.active, i), s.execute("SET", s.keys.pending, "x")),
}


@pytest.mark.strays("what the scripts see to")
@pytest.mark.parametrize("what", sorted(SPECIAL))
def test_settling_leaves_the_whole_call_to_the_script_for_one_special_job(pair: Pair, what: str) -> None:
    ids = in_hand(pair, 5)
    SPECIAL[what](pair.native, ids[3])
    assert pair.left_to_script(complete(*((i, 1) for i in ids))) == "EMQSTATE complete job not native"
    SPECIAL[what](pair.script, ids[3])
    assert pair.both(complete(*((i, 1) for i in ids[:3]))) == [1, 1, 1]


@pytest.mark.strays("an id that no client of ours mints")
@pytest.mark.parametrize("tail", [":result", ":lock", ":logs"])
def test_settling_leaves_an_id_to_the_script_whose_row_is_a_key_of_another_job(pair: Pair, tail: str) -> None:
    ids = in_hand(pair, 2)
    other = ids[0] + tail
    pair.arrange(lambda s: s.execute("HSET", s.keys.job(other), "state", "active", "attempts", 1, "payload", b"p"))
    pair.arrange(lambda s: s.execute("ZADD", s.keys.active, FAR, other))
    for order in ([other, *ids], [*ids, other]):
        assert pair.left_to_script(complete(*((i, 1) for i in order))) == "EMQSTATE complete job not native"


@pytest.mark.strays("keys of another type")
@pytest.mark.parametrize("name", ["meta", "metrics:completed", "wake"])
def test_books_of_another_type_are_no_reason_not_to_settle(pair: Pair, name: str) -> None:
    ids = in_hand(pair, 2)
    pair.arrange(lambda s: s.execute("SET", s.keys.base + name, "x"))
    assert pair.both(complete(*((i, 1) for i in ids))) == [1, 1]


@pytest.mark.strays("keys of another type")
def test_a_place_of_another_type_is_refused(pair: Pair) -> None:
    (job_id,) = in_hand(pair, 1)
    new = pair.mint()
    pair.arrange(lambda s: s.execute("SET", s.keys.pending, "x"))
    wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert pair.refused(lambda s: jobs.enqueue(s.queue, new, b"p")) == wrong
    assert pair.refused(lambda s: jobs.enqueue_many(s.queue, [(new, b"p")])) == wrong
    pair.arrange(lambda s: s.execute("SET", s.keys.active, "x"))
    assert pair.refused(complete((job_id, 1))) == wrong


@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_settling_refuses_a_ttl_that_is_none_for_all(pair: Pair, wrong: str) -> None:
    a, b = in_hand(pair, 2)
    words: list[Arg] = [a, 1, b"", 0, b, 1, b"", wrong]
    refusal = pair.refused(lambda s: _with(complete((a, 1))(s), words))
    assert refusal == "ERR EMQ.COMPLETEMANY ttl must be a non-negative integer"


@pytest.mark.parametrize("wrong", ["", "J", "ORD0NgWEfAEJfs", "JOB\0gWEfAEJfs"])
def test_settling_refuses_an_id_that_is_no_jobs_for_all(pair: Pair, wrong: str) -> None:
    (a,) = in_hand(pair, 1)
    words: list[Arg] = [a, 1, b"", 0, wrong, 1, b"", 0]
    refusal = pair.refused(lambda s: _with(complete((a, 1))(s), words))
    assert refusal == "EMQKIND job id must be JOB-namespaced"
