"""Scripts and their native twins (protocol §5): what travels on which wire, and what a command leaves to its script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from echomq.conformance.desk import FAR_MS, PAST, Desk
from echomq.conformance.scenario import LackError, scenario
from echomq.protocol import admin, admission, jobs
from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.errors import ServerError
from echomq.protocol.replies import Rescheduling, Retried, as_list
from echomq.protocol.scripts import twins

_NEVER_MS = 2**52
"""A run-at that no server's clock comes to."""


def _counts(desk: Desk) -> dict[str, int]:
    """How often the server has run each command, for whomever."""
    counts: dict[str, int] = {}
    for line in desk.raw("INFO", "commandstats").decode("utf-8", "replace").splitlines():
        name, colon, stats = line.removeprefix("cmdstat_").partition(":calls=")
        if colon:
            counts[name] = int(stats.partition(",")[0])
    if not counts:
        raise LackError("this server does not count its commands (INFO commandstats)")
    return counts


@scenario("wire_spoken", "A verb with a native twin travels as the command on wire 6, and as its script on wire 4.")
def _wire_spoken(desk: Desk) -> None:
    native = desk.bench.wire == 6
    for script in twins():
        name = script.native.lower()
        if native and not desk.bench.knows(name):
            continue
        call = _simple(desk, script.name)
        counted = name if native else "evalsha"
        before = _counts(desk)
        desk.outcome(call)
        desk.expect(
            f"calls of {counted} for {script.name}", _counts(desk).get(counted, 0) > before.get(counted, 0), True
        )


def _simple(desk: Desk, name: str) -> Call[Any]:
    """A call of that script that the server takes, whatever it answers."""
    job_id = desk.mint()
    match name:
        case "schedule":
            return jobs.enqueue_in(desk.queue, job_id, b"p", delay_ms=FAR_MS)
        case "reschedule":
            return jobs.reschedule(desk.queue, job_id, at_ms=5)
        case "promote":
            return jobs.promote(desk.queue)
        case "delay":
            return jobs.delay(desk.queue, job_id, 1, at_ms=5)
        case "enqueue":
            return jobs.enqueue(desk.queue, job_id, b"p")
        case "enqueue_many":
            return jobs.enqueue_many(desk.queue, [(job_id, b"p")])
        case "claim":
            return jobs.claim(desk.queue)
        case "complete":
            return jobs.complete(desk.queue, job_id, 1)
        case _:
            return jobs.complete_many(desk.queue, [(job_id, 1)])


def _refusal(desk: Desk, *words: Arg) -> str:
    """What the server says to a raw command that it refuses, having written nothing."""
    before = desk.dump()
    try:
        reply = str(desk.raw(*words))
    except ServerError as error:
        reply = error.reply
    desk.unwritten(f"{words[0]!r}, refused", before)
    return reply


@scenario(
    "left_to_script", "What a native command leaves to its script is done by it, and the caller does not see that."
)
def _left_to_script(desk: Desk) -> None:
    group, job_id = desk.lane("left"), desk.mint()
    desk.run(admission.admit(desk.queue, job_id, b"p", at_ms=PAST, group=group))
    flat = desk.later()
    desk.fall_due(flat)
    if desk.bench.wire == 6:
        said = _refusal(desk, "EMQ.PROMOTE", 2, desk.keys.schedule, desk.keys.pending, desk.keys.base, 10)
        desk.expect("EMQ.PROMOTE", said, "EMQSTATE promote lane not native")
    desk.expect("promoted", desk.run(jobs.promote(desk.queue)), 2)
    desk.stands(job_id, "pending", "lane")
    desk.stands(flat, "pending", "pending")
    desk.expect("the ring", desk.ring(), [group])
    held = [desk.claim(), desk.claim()]
    (grouped,) = (job for job in held if job.group)
    if desk.bench.wire == 6:
        keys = (desk.row_key(job_id), desk.keys.active, desk.keys.schedule)
        said = _refusal(desk, "EMQ.DELAY", 3, *keys, job_id, grouped.token, "in", FAR_MS)
        desk.expect("EMQ.DELAY", said, "EMQSTATE delay lane not native")
    desk.run(jobs.delay(desk.queue, job_id, grouped.token, delay_ms=FAR_MS))
    desk.stands(job_id, "scheduled", "schedule")
    desk.expect("gactive", desk.hash(desk.keys.gactive), {})
    desk.expect("to an instant", desk.run(jobs.reschedule(desk.queue, job_id, at_ms=PAST)), Rescheduling.MOVED)
    (ungrouped,) = (job for job in held if not job.group)
    desk.run(admin.cancel_job(desk.queue, flat))
    if desk.bench.wire == 6:
        keys = (desk.row_key(flat), desk.keys.active, desk.keys.schedule)
        said = _refusal(desk, "EMQ.DELAY", 3, *keys, flat, ungrouped.token, "in", FAR_MS)
        desk.expect("EMQ.DELAY of a cancelled job", said, "EMQSTATE delay job not native")
    desk.expect("put off", desk.run(jobs.delay(desk.queue, flat, ungrouped.token, delay_ms=FAR_MS)), Retried.DEAD)
    many = [jobs.promote(desk.queue), jobs.promote(desk.queue)]
    desk.expect("promoted in one flight", desk.bench.conn.run_many(many), [1, 0])
    desk.stands(job_id, "pending", "lane")


def _calls(desk: Desk, ids: list[str]) -> Iterator[Call[Any]]:
    """Every verb with a twin: done, repeated and refused, at instants that no clock moves."""
    q, (a, b, c, d, late, absent) = desk.queue, ids
    yield jobs.enqueue(q, a, b"p")
    yield jobs.enqueue(q, a, b"again")
    yield jobs.enqueue_many(q, [(b, b"p"), (b, b"again"), (c, b"p")])
    yield jobs.enqueue_at(q, d, b"p", at_ms=PAST)
    yield jobs.enqueue_at(q, d, b"again", at_ms=PAST)
    yield jobs.enqueue_at(q, late, b"p", at_ms=_NEVER_MS)
    for job_id in (late, a, absent):
        yield jobs.reschedule(q, job_id, at_ms=_NEVER_MS - 1)
    timed = jobs.enqueue_at(q, absent, b"p", at_ms=PAST)
    for word, value in (("on", "5"), ("at", "-1"), ("at", "05"), ("in", "1e3")):
        yield replace(timed, args=(*timed.args[:-2], word, value))
    yield replace(timed, args=timed.args[:-1])
    yield replace(timed, args=("ORD0KHTOWnGLuC", *timed.args[1:]))
    for batch in (1, 5):
        yield jobs.promote(q, batch=batch)
    yield jobs.claim_many(q, 2)
    yield jobs.claim(q)
    for job_id, token in ((a, 9), (d, 1), (absent, 1), (a, 1)):
        yield jobs.delay(q, job_id, token, at_ms=_NEVER_MS - 2)
    yield jobs.complete(q, b, 9)
    yield jobs.complete_many(q, [(b, 1), (b, 1), (late, 1), (d, 1), (absent, 1)])
    yield jobs.claim_many(q, 9)
    yield jobs.claim_many(q, 9)


def _by_script(call: Call[Any]) -> tuple[Arg, ...]:
    script = call.script
    return call.words() if script is None else ("EVAL", script.source, len(call.keys), *call.keys, *call.args)


def _played(desk: Desk, ids: list[str], words: Callable[[Call[Any]], tuple[Arg, ...]]) -> Iterator[tuple[str, object]]:
    """Each call's verb, with its answer and what the queue then holds; instants that come of now are left out."""
    readers: dict[str, Callable[[str], object]] = {
        "hash": desk.hash,
        "list": desk.items,
        "string": lambda key: desk.raw("GET", key),
    }
    for job_id in ids:
        desk.row_key(job_id)
    for call in _calls(desk, ids):
        try:
            answer: Reply = desk.raw(*words(call))
        except ServerError as error:
            answer = error.reply.encode()
        if call.script is not None and call.script.name == "claim":
            answer = as_list(answer)[1:]
        content: dict[str, object] = {}
        for name in desk.present():
            key = desk.keys.base + name
            kind = desk.raw("TYPE", key)
            text = kind.decode() if isinstance(kind, bytes) else str(kind)
            look: Callable[[str], object] = desk.members if name == "active" else desk.zset
            content[name] = readers.get(text, look)(key)
        yield call.verb, (answer, content)


@scenario("wires_agree", "For the same input a native command and its script answer alike and leave the same state.")
def _wires_agree(desk: Desk) -> None:
    for script in twins():
        desk.needs(script.native, "native module")
    ids = desk.mint_many(6)
    scripted = _played(desk.neighbour(), ids, _by_script)
    native = _played(desk.neighbour(), ids, lambda call: call.native_words())
    for step, (one, other) in enumerate(zip_longest(scripted, native), 1):
        desk.expect(f"step {step}, a native {one[0]}", other, one)
