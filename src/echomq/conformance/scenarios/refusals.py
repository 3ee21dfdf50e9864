"""Every check comes before the first write, and in one order on both wires (protocol §5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.protocol import admin, jobs, lanes, repeat
from echomq.protocol.call import Arg, Call
from echomq.protocol.errors import InvalidInputError, ServerError
from echomq.protocol.scripts import registered

_MODE = "ERR EMQ.{} mode must be in or at"
_DUE = "ERR EMQ.{} due must be a non-negative integer"
_NO_TIMES = ("-1", "1.5", "1e3", "", "soon", " 5", "9007199254740992")

_ADMIT = ("enqueue", "enqueue_many", "enqueue_lane", "schedule", "admit", "flow_add", "fire", "register")
_GO_ON = (
    *("claim", "claim_lane", "complete", "complete_many", "retry", "delay", "release", "extend", "extend_many", "keep"),
    *("promote", "reap", "sweep", "lane_reap", "drain", "lane_drain", "remove", "obliterate", "reprocess", "retain"),
    *("cancel_job", "flow_deliver", "flow_reject", "resume_queue", "lane_resume", "lane_pause", "cancel"),
)


def _with(call: Call[Any], at: int, value: Arg) -> Call[Any]:
    """The call with an argument that its builder would refuse."""
    return replace(call, args=(*call.args[:at], value, *call.args[at + 1 :]))


def _timed(desk: Desk) -> list[tuple[str, int, Call[Any]]]:
    """The verbs with a run-at: the name in their refusals, where their mode stands, and a call that would do."""
    held, later = desk.in_hand(), desk.later()
    return [
        ("SCHEDULE", 2, jobs.enqueue_in(desk.queue, desk.mint(), b"p", delay_ms=5)),
        ("RESCHEDULE", 1, jobs.reschedule(desk.queue, later, delay_ms=5)),
        ("DELAY", 2, jobs.delay(desk.queue, held.id, held.token, delay_ms=5)),
    ]


@scenario("mode_and_due", "An unknown mode and a run-at that is no whole number from 0 to 2^53 - 1 are refused.")
def _mode_and_due(desk: Desk) -> None:
    for name, at, call in _timed(desk):
        for mode in ("on", "", "IN"):
            desk.refused(_with(call, at, mode), _MODE.format(name))
        for value in _NO_TIMES:
            desk.refused(_with(call, at + 1, value), _DUE.format(name))
        desk.refused(_with(call, at + 1, 2**53 - 1), _DUE.format(name))  # in: too far once now is added


@scenario(
    "whole_numbers", "A lease, a delay, a cap, a limit or a TTL that is no whole number is refused, nothing written."
)
def _whole_numbers(desk: Desk) -> None:
    job = desk.in_hand()
    group = desk.lane("numbers")
    desk.lapse(desk.in_hand().id)
    desk.jobs(1)
    held = (desk.queue, job.id, job.token)
    desk.key("repeat:tick")
    places: list[tuple[int, Call[Any]]] = [
        (0, jobs.claim(desk.queue)),
        (1, jobs.claim(desk.queue)),
        (1, lanes.claim(desk.queue)),
        (2, jobs.extend(*held)),
        (1, jobs.extend_many(desk.queue, [held[1:]])),
        (2, jobs.retry(*held, delay_ms=0, max_attempts=1, error="e")),
        (3, jobs.retry(*held, delay_ms=0, max_attempts=1, error="e")),
        (4, jobs.complete(*held)),
        (3, jobs.complete_many(desk.queue, [held[1:]])),
        (1, jobs.sweep(desk.queue)),
        (2, jobs.sweep(desk.queue)),
        (2, lanes.limit(desk.queue, group, 1)),
        (1, lanes.weight(desk.queue, group, 1)),
        (1, repeat.register(desk.queue, "tick", every_ms=5, template=b"t", first_run_ms=5)),
        (1, repeat.advance(desk.queue, "tick", next_run_ms=5)),
        (3, repeat.register(desk.queue, "tick", every_ms=5, template=b"t", first_run_ms=5)),
    ]
    for at, call in places:
        for value in _NO_TIMES:
            before = desk.dump()
            outcome = desk.outcome(_with(call, at, value))
            if not isinstance(outcome, ServerError) or not outcome.reply.startswith("ERR"):
                raise BreachError(f"{call.verb} took {value!r} for argument {at + 1}: {outcome!r}")
            desk.unwritten(f"{call.verb} with {value!r}", before)


@scenario("promote_batch", "A promote whose batch is no positive integer is refused.")
def _promote_batch(desk: Desk) -> None:
    desk.fall_due(desk.later())
    for value in ("0", "-1", "many", "1.5", ""):
        call = _with(jobs.promote(desk.queue), 1, value)
        desk.refused(call, "ERR EMQ.PROMOTE batch must be a positive integer")


@scenario("order_of_checks", "Refusals come in one order: arity, mode, due, kind; then row, token, place.")
def _order_of_checks(desk: Desk) -> None:
    for name, at, call in _timed(desk):
        short = replace(call, args=call.args[:-1])
        desk.refused(short, f"ERR wrong number of arguments for 'emq.{name.lower()}' command")
        order = _with(call, 0, "ORD0KHTOWnGLuC")
        desk.refused(_with(_with(order, at, "on"), at + 1, "-1"), _MODE.format(name))
        desk.refused(_with(order, at + 1, "-1"), _DUE.format(name))
        desk.refused(order, "EMQKIND job id must be JOB-namespaced")
    gone, pending = desk.mint(), desk.job()
    desk.refused(jobs.delay(desk.queue, gone, 7, delay_ms=5), "EMQSTALE job gone")
    desk.refused(jobs.delay(desk.queue, pending, 7, delay_ms=5), "EMQSTALE delay token mismatch")
    desk.raw("HSET", desk.row_key(pending), "attempts", "7")
    desk.refused(jobs.delay(desk.queue, pending, 7, delay_ms=5), "EMQSTATE delay not active")
    desk.refused(jobs.reschedule(desk.queue, pending, delay_ms=5), "EMQSTATE reschedule not scheduled")


@scenario("host_checks", "The host refuses what it can see is wrong before any I/O: queue names, times, tokens, sizes.")
def _host_checks(desk: Desk) -> None:
    job_id = desk.mint()
    group = desk.lane("host")
    wrong: list[Callable[[], object]] = [
        *(lambda name=name: jobs.pending_size(name) for name in ("", "a b", "a{b", "a}b", "a\0b", "a\nb")),
        *(lambda ms=ms: jobs.enqueue_in(desk.queue, job_id, b"p", delay_ms=ms) for ms in (-1, 2**53)),
        *(lambda token=token: jobs.complete(desk.queue, job_id, token) for token in (0, "01", "", "x", "-1")),
        lambda: jobs.claim(desk.queue, lease_ms=0),
        lambda: jobs.promote(desk.queue, 0),
        lambda: jobs.enqueue(desk.queue, job_id, "\ud800"),
        lambda: lanes.limit(desk.queue, group, 0),
        lambda: lanes.weight(desk.queue, group, 0),
        lambda: lanes.lane_id(""),
        lambda: lanes.enqueue(desk.queue, job_id, b"p", "acme"),
        lambda: admin.add_log(desk.queue, job_id, cast("str", b"no text")),
    ]
    for i, build in enumerate(wrong):
        try:
            call = build()
        except InvalidInputError:
            continue
        raise BreachError(f"wrong input {i + 1} was taken: {call!r}")
    desk.expect("the keys", desk.present(), [])


@scenario("server_full", "At maxmemory admission alone is refused: what settles, moves or frees is allowed to go on.")
def _server_full(desk: Desk) -> None:
    allowed = {script.name: "allow-oom" in script.source.partition("\n")[0] for script in registered()}
    desk.expect("admissions that go on", [name for name in _ADMIT if allowed.get(name, False)], [])
    desk.expect("what would be refused", [name for name in _GO_ON if not allowed.get(name, True)], [])
    unflagged = [script.name for script in registered() if not script.source.startswith("#!lua")]
    desk.expect("scripts without flags", unflagged, [])


@scenario("unknown_class", "A refusal of a class that this client does not know reaches the caller whole.")
def _unknown_class(desk: Desk) -> None:
    text = "EMQNEW something that later versions refuse"
    try:
        desk.raw("EVAL", f"return redis.error_reply('{text}')", 1, desk.keys.pending)
    except ServerError as error:
        desk.expect("the class and text", (type(error), error.reply), (ServerError, text))
    else:
        raise BreachError("a refusal was taken for an answer")
