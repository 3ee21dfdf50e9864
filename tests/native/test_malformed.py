"""Malformed calls of the native commands: each is refused by an error that says what is expected, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Arg, Call
from support.native import Pair
from support.raw import ReplyError
from support.runner import Scene, with_args

LAST = 2**53 - 1
NO_NUMBERS = [
    *("", " 5", "5 ", "+5", "-5", "-0", "05", "00", "1e3", "0x10", "5.0", "5\0", "\0", "five", "inf", "nan"),
    *(str(LAST + 1), str(2**63), str(2**64 + 5), "9" * 17, "9" * 400, "\N{ARABIC-INDIC DIGIT FIVE}"),
]
VERBS = ["SCHEDULE", "RESCHEDULE", "PROMOTE", "DELAY"]
ALL = [*VERBS, "ENQUEUE", "ENQUEUEMANY", "CLAIM", "COMPLETEMANY"]
TIMED = ["SCHEDULE", "RESCHEDULE", "DELAY"]


def call_of(verb: str, scene: Scene, job_id: str) -> Call[Any]:
    """A sound call, whose last argument is the due or the batch."""
    builders: dict[str, Callable[[], Call[Any]]] = {
        "SCHEDULE": lambda: jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=5),
        "RESCHEDULE": lambda: jobs.reschedule(scene.queue, job_id, at_ms=5),
        "PROMOTE": lambda: jobs.promote(scene.queue),
        "DELAY": lambda: jobs.delay(scene.queue, job_id, 1, at_ms=5),
        "ENQUEUE": lambda: jobs.enqueue(scene.queue, job_id, b"p"),
        "ENQUEUEMANY": lambda: jobs.enqueue_many(scene.queue, [(job_id, b"p")]),
        "CLAIM": lambda: jobs.claim(scene.queue),
        "COMPLETEMANY": lambda: jobs.complete_many(scene.queue, [(job_id, 1)]),
    }
    return builders[verb]()


def last(call: Call[Any], value: Arg, mode: str | None = None) -> Call[Any]:
    changes: dict[int, Arg] = {len(call.args) - 1: value}
    if mode is not None:
        changes[len(call.args) - 2] = mode
    return with_args(call, changes)


@pytest.fixture
def job_id(pair: Pair) -> str:
    """A job on the schedule, that nothing malformed moves."""
    job_id = pair.mint()
    pair.arrange(lambda s: s.run(jobs.enqueue_at(s.queue, job_id, b"p", at_ms=LAST)))
    return job_id


@pytest.mark.parametrize("verb", TIMED)
@pytest.mark.parametrize("mode", ["at", "in"])
def test_a_due_is_a_canonical_whole_number(pair: Pair, job_id: str, verb: str, mode: str) -> None:
    for wrong in NO_NUMBERS:
        refusal = pair.refused(lambda s, wrong=wrong: last(call_of(verb, s, job_id), wrong, mode))
        assert refusal == f"ERR EMQ.{verb} due must be a non-negative integer", repr(wrong)


@pytest.mark.parametrize("verb", TIMED)
def test_a_due_stays_below_2_to_53_also_when_now_is_added(pair: Pair, job_id: str, verb: str) -> None:
    for wrong in (LAST, LAST - pair.native.now_ms() + 1):
        refusal = pair.refused(lambda s, wrong=wrong: last(call_of(verb, s, job_id), wrong, "in"))
        assert refusal == f"ERR EMQ.{verb} due must be a non-negative integer"


def test_the_longest_times_are_taken(pair: Pair, job_id: str) -> None:
    other = pair.mint()
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, other, b"p", at_ms=LAST)) == 1
    assert pair.both(lambda s: jobs.reschedule(s.queue, other, at_ms=0)) == 1
    assert pair.both(lambda s: last(jobs.reschedule(s.queue, other, delay_ms=1), LAST - s.now_ms() - 60_000)) == 1


@pytest.mark.parametrize("verb", TIMED)
@pytest.mark.parametrize("mode", ["", "IN", "At", "on", "at ", " in", "in\0", "i", "inn"])
def test_a_mode_is_in_or_at_to_the_letter(pair: Pair, job_id: str, verb: str, mode: str) -> None:
    refusal = pair.refused(lambda s: last(call_of(verb, s, job_id), 5, mode))
    assert refusal == f"ERR EMQ.{verb} mode must be in or at"


@pytest.mark.parametrize("verb", TIMED)
@pytest.mark.parametrize(
    "wrong", ["", "J", "JO", "job0NgWEfAEJfs", "USR0NgWEfAEJfs", "\0JOB", "JOB\0", "JOB0NgW\0EfAEJf"]
)
def test_an_id_is_a_jobs(pair: Pair, job_id: str, verb: str, wrong: str) -> None:
    def own_key(scene: Scene) -> Call[Any]:
        call = with_args(call_of(verb, scene, job_id), {0: wrong})
        return replace(call, keys=(scene.keys.base + "job:" + wrong, *call.keys[1:]))

    for build in (own_key, lambda s: with_args(call_of(verb, s, job_id), {0: wrong})):
        assert pair.refused(build) == "EMQKIND job id must be JOB-namespaced"


@pytest.mark.parametrize("verb", ALL)
def test_another_number_of_words_is_redis_own_error(pair: Pair, job_id: str, verb: str) -> None:
    expected = f"ERR wrong number of arguments for 'emq.{verb.lower()}' command"
    for change in (lambda c: c.args[:-1], lambda c: (*c.args, "more"), lambda c: ()):
        refusal = pair.refused(lambda s, change=change: replace(c := call_of(verb, s, job_id), args=change(c)))
        assert refusal == expected
    assert pair.refused(lambda s: replace(c := call_of(verb, s, job_id), keys=c.keys[:-1])) == expected
    for words in ((), (2,), ("2", "x")):
        with pytest.raises(ReplyError) as error:
            pair.native.execute(f"EMQ.{verb}", *words)
        assert str(error.value) == expected


@pytest.mark.parametrize("verb", ALL)
def test_a_number_of_keys_that_lies_is_refused(pair: Pair, job_id: str, verb: str) -> None:
    call = call_of(verb, pair.native, job_id)
    before = pair.dump(pair.native)
    right = len(call.keys)
    for wrong in (0, 4, 5, -1, f"0{right}", f" {right}", f"{right}.0", "", "x", f"{right}\0", 2**64 + right):
        with pytest.raises(ReplyError) as error:
            pair.native.execute(f"EMQ.{verb}", wrong, *call.keys, *call.args)
        assert str(error.value) == f"ERR EMQ.{verb} number of keys must be {right}"
    assert pair.dump(pair.native) == before


@pytest.mark.parametrize("verb", ALL)
def test_a_key_taken_for_an_argument_is_refused_by_both(pair: Pair, job_id: str, verb: str) -> None:
    def shifted(scene: Scene, by: int) -> Call[Any]:
        call = call_of(verb, scene, job_id)
        words = (*call.keys, *call.args)
        split = len(call.keys) + by
        return replace(call, keys=tuple(str(word) for word in words[:split]), args=words[split:])

    right = len(call_of(verb, pair.native, job_id).keys)
    for by in (-1, -right):
        expected = f"ERR EMQ.{verb} number of keys must be {right}"
        assert pair.refused(lambda s, by=by: shifted(s, by)) == expected


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(
    "key",
    ["", "emq:q:schedule", "emq:{}:schedule", "xemq:{q}:schedule", "emq:{q}", "emq:{q}x:a", "emq:{q", "EMQ:{q}:a"],
)
def test_a_first_key_that_is_no_queues_is_refused(pair: Pair, job_id: str, verb: str, key: str) -> None:
    def build(scene: Scene) -> Call[Any]:
        call = call_of(verb, scene, job_id)
        return replace(call, keys=(key, *call.keys[1:]))

    assert pair.refused(build) == f"ERR EMQ.{verb} first key must begin with emq:{{queue}}:"


@pytest.mark.parametrize("verb", VERBS)
def test_only_keys_of_the_first_keys_queue_are_touched(pair: Pair, job_id: str, verb: str) -> None:
    others = pair.native.execute("KEYS", "*")

    def build(scene: Scene) -> Call[Any]:
        call = call_of(verb, scene, job_id)
        return replace(call, keys=(call.keys[0], *(f"emq:{{elsewhere}}:{i}" for i in range(1, len(call.keys)))))

    pair.both(build)
    pair.both(lambda s: last(build(s), 3))
    assert pair.native.execute("KEYS", "emq:{elsewhere}*") == []
    assert set(others) <= set(pair.native.execute("KEYS", "*"))


@pytest.mark.parametrize("verb", TIMED)
def test_the_checks_come_in_their_order(pair: Pair, job_id: str, verb: str) -> None:
    def call(scene: Scene, changes: dict[int, Arg]) -> Call[Any]:
        sound = call_of(verb, scene, job_id)
        return with_args(sound, {len(sound.args) + i if i < 0 else i: value for i, value in changes.items()})

    wrong: dict[int, Arg] = {-2: "on", -1: "-1", 0: "ORD0NgWEfAEJfs"}
    if verb == "DELAY":
        wrong[1] = "99"
    assert pair.refused(lambda s: call(s, wrong)) == f"ERR EMQ.{verb} mode must be in or at"
    del wrong[-2]
    assert pair.refused(lambda s: call(s, wrong)) == f"ERR EMQ.{verb} due must be a non-negative integer"
    del wrong[-1]
    assert pair.refused(lambda s: call(s, wrong)) == "EMQKIND job id must be JOB-namespaced"
