"""The clock of a command is that of a script in its place: where the server holds it still, both stand (§4)."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs
from support.runner import Scene

NOW = "local function now() local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000) end "
# Milliseconds of the server's own work; a script may have no clock that moves.
WORK = "for i = 1, 3000000 do end "


def told(scene: Scene, verb: str, ids: list[str], reply: Any) -> int:
    """The instant that a command has taken for now."""
    if verb == "claim":
        return int(reply[0])
    return int(float(scene.execute("ZSCORE", scene.keys.schedule, ids[-1])))


def arranged(scene: Scene, verb: str) -> tuple[list[str], tuple[Any, ...]]:
    ids = scene.minter.mint_many(1)
    if verb == "schedule":
        return ids, jobs.enqueue_in(scene.queue, ids[0], b"p", delay_ms=0).native_words()
    if verb == "reschedule":
        scene.run(jobs.enqueue_at(scene.queue, ids[0], b"p", at_ms=2**52))
        return ids, jobs.reschedule(scene.queue, ids[0], delay_ms=0).native_words()
    scene.run(jobs.enqueue(scene.queue, ids[0], b"p"))
    if verb == "claim":
        return ids, jobs.claim(scene.queue).native_words()
    assert scene.run(jobs.claim(scene.queue)) is not None
    return ids, jobs.delay(scene.queue, ids[0], 1, delay_ms=0).native_words()


VERBS = ("schedule", "reschedule", "claim", "delay")


@pytest.mark.parametrize("verb", VERBS)
def test_in_a_transaction_no_command_is_out_of_order_with_a_script(scene: Scene, verb: str) -> None:
    ids, words = arranged(scene, verb)
    scene.execute("MULTI")
    for each in (("EVAL", NOW + WORK + "return now()", 0), words, ("EVAL", NOW + "return now()", 0)):
        scene.execute(*each)
    before, reply, after = scene.execute("EXEC")
    assert before <= told(scene, verb, ids, reply) <= after


@pytest.mark.parametrize("verb", VERBS)
def test_in_a_script_a_command_goes_by_the_clock_of_the_script(scene: Scene, verb: str) -> None:
    ids, words = arranged(scene, verb)
    lua = NOW + WORK + "local t = now() local reply = redis.call(unpack(ARGV)) return {t, reply, now()}"
    before, reply, after = scene.execute("EVAL", lua, 0, *words)
    assert before <= told(scene, verb, ids, reply) <= after


def test_a_promote_in_a_script_takes_what_is_due_by_the_clock_of_the_script(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=2**52))
    lua = (
        f"{NOW} local t = now() redis.call('ZADD', KEYS[1], t + 1, ARGV[1]) {WORK}"
        "return {t, redis.call('EMQ.PROMOTE', 2, KEYS[1], KEYS[2], ARGV[2], 1), now()}"
    )
    keys = scene.keys
    before, promoted, after = scene.execute("EVAL", lua, 2, keys.schedule, keys.pending, job_id, keys.base)
    assert promoted == (1 if after > before else 0)


def test_from_one_call_to_the_next_the_clock_goes_on(scene: Scene) -> None:
    """No command is behind a script that ran before it, or ahead of one that runs after it."""
    ask = ("EVAL", NOW + "return now()", 0)
    for _ in range(50):
        job_id = scene.mint()
        words = jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=0).native_words()
        before, _, after = scene.runner.client.execute_all((ask, words, ask))
        assert before <= told(scene, "schedule", [job_id], None) <= after
