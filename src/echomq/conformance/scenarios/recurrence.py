"""Recurrences (protocol §9): registered once, fired once a period, never before the server's clock says so."""

from __future__ import annotations

from threading import Barrier, Thread

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import jobs, repeat
from echomq.protocol.errors import EchoMQError
from echomq.protocol.repeat import Due, Fired, Firing, Registration

_EVERY_MS = 60_000


def _register(desk: Desk, name: str, first_run_ms: int, *, every_ms: int = _EVERY_MS) -> bool:
    desk.key(f"repeat:{name}")
    call = repeat.register(desk.queue, name, every_ms=every_ms, template=b"tick", first_run_ms=first_run_ms)
    return desk.run(call)


def _fire(desk: Desk, name: str, score: int | str) -> tuple[str, Fired]:
    job_id = desk.mint()
    return job_id, desk.run(repeat.fire(desk.queue, name, score=str(score), job_id=job_id))


@scenario("repeat", "Two occurrences are two jobs under two fresh ids, in mint order, with the template as payload.")
def _repeat(desk: Desk) -> None:
    _register(desk, "tick", desk.now_ms() - 2 * _EVERY_MS)
    ids: list[str] = []
    for _ in range(2):
        (due,) = desk.run(repeat.due(desk.queue, now_ms=desk.now_ms()))
        job_id, fired = _fire(desk, "tick", due.score)
        desk.expect("the verdict", fired.verdict, Firing.FIRED)
        ids.append(job_id)
        desk.raw("ZADD", desk.keys.repeat, desk.now_ms() - 1, "tick")
    desk.expect("pending", desk.members(desk.keys.pending), sorted(ids))
    row = {"state": b"pending", "attempts": b"0", "payload": b"tick"}
    desk.expect("the rows", [desk.row(job_id) for job_id in ids], [row, row])


@scenario(
    "repeat_register", "Register answers 1, or 0 while the name lives; cancel takes it away; count is their number."
)
def _register_scenario(desk: Desk) -> None:
    first = desk.now_ms() + FAR_MS
    desk.expect("registered", _register(desk, "tick", first), True)
    desk.expect("the record", desk.hash(desk.key("repeat:tick")), {"every_ms": b"60000", "template": b"tick"})
    desk.expect("repeat", desk.zset(desk.keys.repeat), {"tick": first})
    before = desk.dump()
    desk.expect("once more", _register(desk, "tick", 5), False)
    desk.unwritten("a second register", before)
    desk.expect("count", desk.run(repeat.count(desk.queue)), 1)
    desk.expect("cancelled", [desk.run(repeat.cancel(desk.queue, "tick")) for _ in range(2)], [True, False])
    desk.expect("the keys", [name for name in desk.present() if name != "wake"], [])


@scenario("repeat_upsert", "An upsert by name keeps the next run unless the period changes, and says what it did.")
def _upsert(desk: Desk) -> None:
    desk.key("repeat:tick")
    first = desk.now_ms() + FAR_MS

    def upsert(every_ms: int, template: bytes, first_run_ms: int) -> Registration:
        given = {"every_ms": every_ms, "first_run_ms": first_run_ms}
        return desk.run(repeat.upsert(desk.queue, "tick", template=template, **given))

    verdicts = [upsert(5_000, b"a", first), upsert(5_000, b"a", 7), upsert(5_000, b"b", 7)]
    wanted = [Registration.REGISTERED, Registration.UNCHANGED, Registration.UPDATED]
    desk.expect("the verdicts", verdicts, wanted)
    desk.expect("the next run", desk.zset(desk.keys.repeat), {"tick": first})
    desk.expect("with another period", upsert(6_000, b"b", first + 9), Registration.UPDATED)
    desk.expect("the next run then", desk.zset(desk.keys.repeat), {"tick": first + 9})


@scenario("repeat_due", "Due gives the names whose time has come, oldest first, at most its limit; strays are swept.")
def _due(desk: Desk) -> None:
    for name, score in (("late", 3_000), ("early", 1_000), ("middle", 2_000), ("far", 2**52)):
        _register(desk, name, score)
    desk.raw("ZADD", desk.keys.repeat, 500, "stray")
    dues = [desk.run(repeat.due(desk.queue, now_ms=2_500, limit=limit)) for limit in (100, 1)]
    early = Due("early", "1000", _EVERY_MS, b"tick")
    desk.expect("due", dues, [(early, Due("middle", "2000", _EVERY_MS, b"tick")), (early,)])
    desk.expect("the stray", desk.score("repeat", "stray"), None)


@scenario("repeat_advance", "Advance, as the original's pump calls it, sets the next run; without a record it sweeps.")
def _advance(desk: Desk) -> None:
    _register(desk, "tick", 1_000)
    desk.expect("advanced", desk.run(repeat.advance(desk.queue, "tick", next_run_ms=9_000)), True)
    desk.expect("the next run", desk.score("repeat", "tick"), 9_000)
    desk.raw("DEL", desk.key("repeat:tick"))
    desk.expect("without a record", desk.run(repeat.advance(desk.queue, "tick", next_run_ms=9_500)), False)
    desk.expect("repeat", desk.zset(desk.keys.repeat), {})


@scenario("fire_once", "One period fires once however many pumps race for it; the others hear that they lost.")
def _fire_once(desk: Desk) -> None:
    pumps = [desk.connector() for _ in range(4)]
    ids = iter(desk.mint_many(40))
    for period in range(5):
        _register(desk, f"tick{period}", desk.now_ms() - 10)
        (due,) = desk.run(repeat.due(desk.queue, now_ms=desk.now_ms()))
        verdicts: list[object] = []
        start = Barrier(len(pumps))

        def race(pump: int, due: Due, job_id: str, start: Barrier, verdicts: list[object]) -> None:
            start.wait(5)
            try:
                fired = pumps[pump].run(repeat.fire(desk.queue, due.name, score=due.score, job_id=job_id))
                verdicts.append(fired.verdict.value)
            except EchoMQError as error:
                verdicts.append(str(error))

        racers = [Thread(target=race, args=(pump, due, next(ids), start, verdicts)) for pump in range(len(pumps))]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        desk.expect("the verdicts", sorted(map(str, verdicts)), ["fired", "lost", "lost", "lost"])
        desk.expect("the occurrences", desk.raw("ZCARD", desk.keys.pending), period + 1)


@scenario("fire_server_clock", "A host whose clock is fast fires nothing before the server's clock has come to it.")
def _fire_server_clock(desk: Desk) -> None:
    first = desk.now_ms() + FAR_MS
    _register(desk, "tick", first)
    (due,) = desk.run(repeat.due(desk.queue, now_ms=first + 5_000))
    before = desk.dump()
    _job, fired = _fire(desk, "tick", due.score)
    desk.expect("the verdict", fired, Fired(Firing.EARLY, first))
    desk.unwritten("a fire before its time", before)


@scenario("fire_grid", "A late tick fires once and keeps the grid: the next run is the first slot after now.")
def _fire_grid(desk: Desk) -> None:
    first = desk.now_ms() - 10 * _EVERY_MS - 1_234
    _register(desk, "tick", first)
    desk.drop_tokens()
    before = desk.now_ms()
    _job, fired = _fire(desk, "tick", first)
    following = desk.score("repeat", "tick")
    desk.expect("verdict and next run", fired, Fired(Firing.FIRED, following))
    desk.between("the next run", following, before + 1, desk.now_ms() + _EVERY_MS)
    desk.expect("its distance from the grid", ((following or 0) - first) % _EVERY_MS, 0)
    desk.expect("occurrences", desk.raw("ZCARD", desk.keys.pending), 1)
    desk.expect("the wake tokens", desk.tokens(), 1)


@scenario("fire_lost", "A fire whose score is no longer there, or whose name is gone, admits nothing.")
def _fire_lost(desk: Desk) -> None:
    now = desk.now_ms()
    _register(desk, "tick", now - 10)
    _job, fired = _fire(desk, "tick", now - 11)
    desk.expect("another score", fired, Fired(Firing.LOST, now - 10))
    _job, fired = _fire(desk, "tock", now - 10)
    desk.expect("no such name", fired, Fired(Firing.LOST, None))
    desk.raw("DEL", desk.key("repeat:tick"))
    _job, fired = _fire(desk, "tick", now - 10)
    desk.expect("without a record", fired, Fired(Firing.LOST, None))
    desk.expect("pending and repeat", (desk.members(desk.keys.pending), desk.zset(desk.keys.repeat)), ([], {}))


@scenario("fire_duplicate", "A fire under an id that is taken admits nothing and leaves the slot for another id.")
def _fire_duplicate(desk: Desk) -> None:
    taken, score = desk.job(b"mine"), desk.now_ms() - 10
    _register(desk, "tick", score)
    fired = desk.run(repeat.fire(desk.queue, "tick", score=str(score), job_id=taken))
    desk.expect("the verdict", fired, Fired(Firing.DUPLICATE, score))
    desk.expect("the job", desk.field(taken, "payload"), b"mine")
    _job, fired = _fire(desk, "tick", score)
    desk.expect("under another id", fired.verdict, Firing.FIRED)
    desk.expect("claims", len(desk.run(jobs.claim_many(desk.queue, 9)).jobs), 2)


@scenario("fire_beside_original", "With an original's pump beside ours a period fires at least once, and none is left.")
def _fire_beside_original(desk: Desk) -> None:
    def the_originals(due: Due, *, dies: bool = False) -> None:
        desk.run(jobs.enqueue(desk.queue, desk.mint(), due.template))
        if not dies:
            desk.run(repeat.advance(desk.queue, due.name, next_run_ms=desk.now_ms() + due.every_ms))

    def fired(due: Due) -> Firing:
        return _fire(desk, due.name, due.score)[1].verdict

    def ours_between(due: Due) -> list[Firing]:
        verdict = fired(due)
        the_originals(due)
        return [verdict]

    def ours_after(due: Due) -> list[Firing]:
        the_originals(due)
        return [fired(due)]

    def ours_after_its_death(due: Due) -> list[Firing]:
        the_originals(due, dies=True)
        return [fired(due), fired(due)]

    _register(desk, "tick", desk.now_ms() - 10)
    seen: list[tuple[list[Firing], int]] = []
    for period in (ours_between, ours_after, ours_after_its_death):
        desk.raw("ZADD", desk.keys.repeat, desk.now_ms() - 1, "tick")
        before = desk.raw("ZCARD", desk.keys.pending)
        (due,) = desk.run(repeat.due(desk.queue, now_ms=desk.now_ms()))
        verdicts = period(due)
        seen.append((verdicts, desk.raw("ZCARD", desk.keys.pending) - before))
        desk.between("the next run", desk.score("repeat", "tick"), desk.now_ms() + 1, desk.now_ms() + _EVERY_MS)
    fires, lost = Firing.FIRED, Firing.LOST
    desk.expect("our verdicts and the occurrences", seen, [([fires], 2), ([lost], 1), ([fires, lost], 2)])
