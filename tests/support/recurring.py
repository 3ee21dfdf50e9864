"""One recurrence `n` of a scene: put, read and fired, verb by verb."""

from __future__ import annotations

from typing import Any

from echomq.protocol import cron, jobs
from echomq.protocol.cron import CronFired, Occurrence
from echomq.protocol.recurring import Definition, Entry, Standing
from support.runner import Scene

HOUR = 3_600_000
LINE = Definition(b"t", line="0 * * * *", tz="UTC")


def look(scene: Scene, name: str = "n") -> Standing:
    return scene.run(cron.look(scene.queue, name))


def entry(scene: Scene, name: str = "n") -> Entry:
    found = look(scene, name).entry
    assert found is not None
    return found


def put(scene: Scene, definition: Definition = LINE, *, late_ms: int = 10, **more: Any) -> int:
    """A recurrence whose slot was `late_ms` ago; gives that slot."""
    slot = scene.now_ms() - late_ms
    call = cron.put(scene.queue, "n", definition, look(scene), slot_ms=slot, due_ms=slot, **more)
    assert scene.run(call) is True
    return slot


def occurrence(scene: Scene, slot: int, payload: bytes = b"p", due: int | None = None) -> Occurrence:
    return Occurrence(scene.mint(), slot, slot if due is None else due, payload)


def fire(scene: Scene, *slots: int, next_ms: int | None = None, read: Entry | None = None) -> CronFired:
    following = scene.now_ms() + HOUR if next_ms is None else next_ms
    occurrences = tuple(occurrence(scene, slot) for slot in slots)
    return scene.run(
        cron.fire(scene.queue, read or entry(scene), occurrences, next_slot_ms=following, next_due_ms=following)
    )


def waiting(scene: Scene) -> int:
    return scene.run(jobs.pending_size(scene.queue))


def again(scene: Scene) -> int:
    """The recurrence is due once more; gives the slot."""
    slot = scene.now_ms() - 5
    scene.execute("ZADD", scene.keys.cron, "XX", slot, "n")
    return slot
