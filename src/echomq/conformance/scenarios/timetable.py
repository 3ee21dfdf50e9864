"""Recurrences that say more than a period (protocol §2, §9): a turn of the `cron` registry fires a slot once."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, cron, jobs, repeat
from echomq.protocol.cron import CronFired, Definition, Entry, Kind, Occurrence
from echomq.protocol.errors import EchoMQError
from echomq.protocol.repeat import Firing

_HOURLY = Definition(b"tick", line="0 * * * *", tz="Europe/Berlin")


def _put(desk: Desk, slot_ms: int, definition: Definition = _HOURLY) -> None:
    desk.key("cron:tick")
    call = cron.put(
        desk.queue, "tick", definition, desk.run(cron.look(desk.queue, "tick")), slot_ms=slot_ms, due_ms=slot_ms
    )
    desk.expect("the put", desk.run(call), True)


def _entry(desk: Desk) -> Entry | None:
    return desk.run(cron.look(desk.queue, "tick")).cron


def _fire(desk: Desk, *slots: int, entry: Entry | None = None, next_ms: int | None = None) -> CronFired:
    read = entry or _entry(desk)
    if read is None:
        return CronFired(Firing.LOST, None)
    occurrences = tuple(Occurrence(desk.mint(), slot, slot, b"%d" % slot) for slot in slots)
    following = desk.now_ms() + FAR_MS if next_ms is None else next_ms
    call = cron.fire(desk.queue, read, occurrences, next_slot_ms=following, next_due_ms=following)
    return desk.run(call)


@scenario(
    "cron_fire", "A turn admits an occurrence for each slot, in order, notes the last one and moves on, in one step."
)
def _turn(desk: Desk) -> None:
    first, following = desk.now_ms() - 10, desk.now_ms() + FAR_MS
    _put(desk, first)
    desk.drop_tokens()
    fired = _fire(desk, first, first + 1, next_ms=following)
    desk.expect("the turn", (fired.verdict, fired.next_ms, fired.admitted), (Firing.FIRED, following, 2))
    payloads = [job.payload for job in desk.run(jobs.claim_many(desk.queue, 9)).jobs]
    desk.expect("the occurrences", payloads, [b"%d" % first, b"%d" % (first + 1)])
    desk.expect("cron", desk.zset(desk.keys.cron), {"tick": following})
    record = desk.hash(desk.key("cron:tick"))
    seen = [record.get(name) for name in ("slot_ms", "last_slot_ms", "runs", "template")]
    desk.expect("the record", seen, [b"%d" % following, b"%d" % (first + 1), b"2", b"tick"])


@scenario(
    "cron_fire_once", "A slot of a cron entry fires once however many pumps race; the others hear that they lost."
)
def _once(desk: Desk) -> None:
    pumps = [desk.connector() for _ in range(4)]
    ids = iter(desk.mint_many(40))
    for period in range(5):
        slot = desk.now_ms() - 10 + period
        _put(desk, slot)
        read = _entry(desk)
        verdicts: list[str] = []
        start = Barrier(len(pumps))

        def race(pump: int, read: Entry | None, job_id: str, slot: int, start: Barrier, verdicts: list[str]) -> None:
            start.wait(5)
            try:
                assert read is not None
                call = cron.fire(
                    desk.queue, read, (Occurrence(job_id, slot, slot, b"x"),), next_slot_ms=None, next_due_ms=None
                )
                verdicts.append(pumps[pump].run(call).verdict.value)
            except EchoMQError as error:
                verdicts.append(str(error))

        racers = [Thread(target=race, args=(n, read, next(ids), slot, start, verdicts)) for n in range(len(pumps))]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        desk.expect("the verdicts", sorted(verdicts), ["fired", "lost", "lost", "lost"])
        desk.expect("the occurrences", desk.raw("ZCARD", desk.keys.pending), period + 1)


@scenario("cron_server_clock", "No occurrence of a turn is admitted before it is due by the server's clock.")
def _server_clock(desk: Desk) -> None:
    first = desk.now_ms() + FAR_MS
    _put(desk, first)
    before = desk.dump()
    desk.expect("the verdict", _fire(desk, desk.now_ms() - 5).verdict, Firing.EARLY)
    desk.unwritten("a turn before its time", before)
    _put(desk, desk.now_ms() - 10)
    before = desk.dump()
    desk.expect("with a slot to come", _fire(desk, desk.now_ms() - 5, first).verdict, Firing.EARLY)
    desk.unwritten("a turn with a slot to come", before)


@scenario("cron_as_read", "A turn, a put and a run act only on what was read; else they write nothing.")
def _as_read(desk: Desk) -> None:
    slot = desk.now_ms() - 10
    nothing = desk.run(cron.look(desk.queue, "tick"))
    _put(desk, slot)
    read = _entry(desk)
    desk.raw("HSET", desk.key("cron:tick"), "template", "tock")
    before = desk.dump()
    desk.expect("the turn", _fire(desk, slot, entry=read).verdict, Firing.LOST)
    put = cron.put(desk.queue, "tick", _HOURLY, nothing, slot_ms=5, due_ms=5)
    desk.expect("the put", desk.run(put), False)
    if read is not None:
        desk.expect("the run", desk.run(cron.run(desk.queue, read, desk.mint(), b"x"))[0], cron.Ran.CHANGED)
    desk.unwritten("verbs on what has changed", before)


@scenario(
    "cron_overlap", "Overlap is skipped while the last one is pending, in hand or scheduled, not when it has ended."
)
def _overlap(desk: Desk) -> None:
    _put(desk, desk.now_ms() - 1_000, replace(_HOURLY, overlap="skip"))
    slots = iter(range(desk.now_ms() - 900, desk.now_ms()))

    def again() -> int:
        slot = next(slots)
        desk.raw("ZADD", desk.keys.cron, slot, "tick")
        return _fire(desk, slot).admitted

    desk.expect("the first, and while it is pending", [again(), again()], [1, 0])
    job = desk.run(jobs.claim(desk.queue))
    desk.expect("while it is in hand", again(), 0)
    last = "" if job is None else job.id
    desk.run(jobs.retry(desk.queue, last, 1, delay_ms=FAR_MS, max_attempts=3, error="e"))
    desk.expect("while it is scheduled", again(), 0)
    desk.run(jobs.reschedule(desk.queue, last, delay_ms=0))
    desk.run(jobs.promote(desk.queue))
    desk.run(jobs.claim(desk.queue))
    desk.run(jobs.retry(desk.queue, last, 2, delay_ms=0, max_attempts=2, error="e"))
    desk.stands(last, "dead", "dead")
    desk.expect("when it is dead", again(), 1)
    pending = desk.members(desk.keys.pending)
    desk.run(admin.remove_job(desk.queue, pending[0]))
    desk.expect("when it is gone", again(), 1)


@scenario("cron_over", "After its last run, or without a next slot, an entry stays and is no time for a claim.")
def _over(desk: Desk) -> None:
    slot = desk.now_ms() - 10
    _put(desk, slot, replace(_HOURLY, max_runs=2))
    fired = _fire(desk, slot, slot + 1, slot + 2)
    desk.expect("the turn", (fired.verdict, fired.next_ms, fired.admitted), (Firing.FIRED, None, 2))
    desk.expect("the next instant worth a claim", desk.run(jobs.claim_many(desk.queue, 9)).next_at_ms, None)
    entry = _entry(desk)
    desk.expect("the entry", entry and (entry.next_ms, entry.history.runs), (None, 2))


@scenario(
    "cron_kinds", "A name is in one registry: a put moves it, a pause of a plain one does, and cancel clears both."
)
def _kinds(desk: Desk) -> None:
    plain, slot = Definition(b"tick", every_ms=60_000), desk.now_ms() + FAR_MS
    desk.key("repeat:tick")
    desk.run(repeat.register(desk.queue, "tick", every_ms=60_000, template=b"tick", first_run_ms=slot))
    _put(desk, slot, replace(plain, overlap="skip"))
    desk.expect("repeat and cron", (desk.zset(desk.keys.repeat), desk.zset(desk.keys.cron)), ({}, {"tick": slot}))
    _put(desk, slot, plain)
    desk.expect("moved back", (desk.zset(desk.keys.repeat), desk.zset(desk.keys.cron)), ({"tick": slot}, {}))
    desk.expect("its record", desk.hash(desk.key("repeat:tick")), {"every_ms": b"60000", "template": b"tick"})
    desk.expect("the pause", desk.run(cron.pause(desk.queue, "tick")), cron.Paused.PAUSED)
    entry = _entry(desk)
    seen = entry and (entry.kind, entry.next_ms, entry.history.slot_ms, entry.history.paused)
    desk.expect("paused", seen, (Kind.CRON, None, slot, True))
    desk.expect("repeat then", desk.zset(desk.keys.repeat), {})
    desk.expect("cancelled", [desk.run(cron.cancel(desk.queue, "tick")) for _ in range(2)], [True, False])
    desk.expect("the keys", [name for name in desk.present() if name != "wake"], [])
