"""The `cron` registry (protocol §2, §9, ours): upserts, moves from and to `repeat`, pauses, and runs on demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echomq.identity.branded import encode
from echomq.protocol import admission, cron, jobs, metrics, repeat
from echomq.protocol.cron import Paused, Ran
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.recurring import Definition, Kind, Standing
from echomq.protocol.repeat import Firing
from echomq.protocol.replies import State
from support.recurring import HOUR, LINE, again, entry, fire, look, put, waiting
from support.runner import Scene

PLAIN = Definition(b"t", every_ms=HOUR)


def test_a_name_moves_between_the_registries_and_is_in_one(scene: Scene) -> None:
    slot = scene.now_ms() + HOUR
    scene.run(repeat.register(scene.queue, "n", every_ms=HOUR, template=b"t", first_run_ms=slot))
    richer = replace(PLAIN, overlap="skip")
    assert scene.run(cron.put(scene.queue, "n", richer, look(scene), slot_ms=slot, due_ms=slot)) is True
    assert scene.execute("EXISTS", scene.keys.repeat, scene.keys.repeat_record("n")) == 0
    assert entry(scene).definition == richer
    assert scene.run(cron.put(scene.queue, "n", PLAIN, look(scene), slot_ms=slot, due_ms=slot)) is True
    assert scene.execute("EXISTS", scene.keys.cron, scene.keys.cron + ":n") == 0
    assert sorted(scene.execute("HKEYS", scene.keys.repeat_record("n"))) == [b"every_ms", b"template"]
    assert scene.score("repeat", "n") == slot


def test_a_put_acts_only_on_what_was_read(scene: Scene) -> None:
    nothing = look(scene)
    put(scene)
    before = scene.dump()
    for standing in (nothing, replace(look(scene), cron=replace(entry(scene), stamp="0"))):
        assert scene.run(cron.put(scene.queue, "n", PLAIN, standing, slot_ms=5, due_ms=5)) is False
    assert scene.dump() == before


def test_a_put_keeps_what_has_become_of_it_and_the_fields_of_others(scene: Scene) -> None:
    fire(scene, put(scene, replace(LINE, jitter_ms=5, max_runs=9, owner="shop")))
    scene.execute("HSET", scene.keys.cron + ":n", "theirs", "x")
    past = entry(scene).history
    slot = put(scene, replace(LINE, template=b"u"))
    assert entry(scene).history == replace(past, slot_ms=slot)
    assert scene.execute("HGET", scene.keys.cron + ":n", "theirs") == b"x"
    assert entry(scene).definition == replace(LINE, template=b"u")


def test_a_renamed_one_keeps_its_next_run_and_what_has_become_of_it(scene: Scene) -> None:
    slot = put(scene, replace(LINE, max_runs=9, owner="shop"))
    fire(scene, slot)
    scene.execute("HSET", scene.keys.cron + ":n", "theirs", "x")
    read = entry(scene)
    assert scene.run(cron.rename(scene.queue, read, "m")) is True
    found = entry(scene, "m")
    assert (found.score, found.definition, found.history) == (read.score, read.definition, read.history)
    assert scene.execute("HGET", scene.keys.cron + ":m", "theirs") == b"x"
    assert look(scene).entry is None
    assert fire(scene, slot + 5, read=read).verdict is Firing.LOST
    assert scene.run(cron.rename(scene.queue, read, "m")) is False


def test_a_rename_acts_only_on_what_was_read_and_overwrites_no_other(scene: Scene) -> None:
    put(scene)
    stale = replace(entry(scene), stamp="0")
    scene.run(repeat.register(scene.queue, "plain", every_ms=HOUR, template=b"t", first_run_ms=5))
    scene.run(cron.put(scene.queue, "full", LINE, look(scene, "full"), slot_ms=5, due_ms=5))
    before = scene.dump()
    assert scene.run(cron.rename(scene.queue, stale, "m")) is False
    for taken in ("plain", "full", "n"):
        assert scene.run(cron.rename(scene.queue, entry(scene), taken)) is False
    assert scene.dump() == before


@pytest.mark.parametrize("kind", ["repeat", "cron"])
def test_pausing_keeps_the_slot_and_takes_it_off_the_timetable(scene: Scene, kind: str) -> None:
    slot = put(scene, PLAIN if kind == "repeat" else LINE)
    assert [scene.run(cron.pause(scene.queue, "n")) for _ in range(2)] == [Paused.PAUSED, Paused.ALREADY]
    found = entry(scene)
    assert (found.kind, found.next_ms, found.history.slot_ms, found.history.paused) == (Kind.CRON, None, slot, True)
    assert look(scene).repeat is None
    assert scene.run(cron.due(scene.queue, now_ms=2**53 - 1)) == cron.Dues((), ())
    assert scene.run(jobs.claim_many(scene.queue, 9)).next_at_ms is None
    assert scene.run(cron.cancel(scene.queue, "n")) is True
    assert [name for name in scene.dump() if b"wake" not in name] == []


def test_a_record_of_another_type_is_none_for_every_verb_that_would_use_it(scene: Scene) -> None:
    slot = put(scene)
    record = scene.keys.cron + ":n"
    scene.execute("DEL", record)
    scene.execute("SET", record, "what is this")
    found, before = entry(scene), scene.dump()
    assert found.definition is None
    assert scene.run(cron.pause(scene.queue, "n")) is Paused.ABSENT
    assert scene.run(cron.run(scene.queue, found, scene.mint(), b"t"))[0] is Ran.CHANGED
    assert fire(scene, slot).verdict is Firing.LOST
    assert scene.dump() == before
    assert scene.run(cron.park(scene.queue, found)) is True
    put(scene)
    assert entry(scene).definition == LINE


def test_what_is_not_there_cannot_be_paused_or_cancelled(scene: Scene) -> None:
    assert scene.run(cron.pause(scene.queue, "n")) is Paused.ABSENT
    assert scene.run(cron.cancel(scene.queue, "n")) is False
    assert look(scene).entry is None


def test_running_beside_the_timetable_leaves_the_next_run(scene: Scene) -> None:
    put(scene, late_ms=-HOUR)
    read = entry(scene)
    job_id = scene.mint()
    assert scene.run(cron.run(scene.queue, read, job_id, b"now")) == (Ran.ADMITTED, job_id)
    found = entry(scene)
    assert (found.next_ms, found.history.runs, found.history.last_id) == (read.next_ms, 0, job_id)
    assert scene.run(cron.run(scene.queue, read, scene.mint(), b"now"))[0] is Ran.CHANGED
    assert scene.run(cron.run(scene.queue, found, job_id, b"now"))[0] is Ran.DUPLICATE
    assert scene.row(job_id)[b"payload"] == b"now"


def test_running_beside_the_timetable_honours_the_key_and_works_for_plain_ones(scene: Scene) -> None:
    put(scene, replace(LINE, dedup="k"))
    fire(scene, again(scene))
    living = entry(scene).history.last_id
    assert scene.run(cron.run(scene.queue, entry(scene), scene.mint(), b"p")) == (Ran.HELD, living)
    scene.run(repeat.register(scene.queue, "m", every_ms=HOUR, template=b"t", first_run_ms=2**52))
    plain = look(scene, "m").repeat
    assert plain is not None
    assert scene.run(cron.run(scene.queue, plain, scene.mint(), b"p"))[0] is Ran.ADMITTED
    assert waiting(scene) == 2


def test_a_plain_fire_takes_a_payload_made_of_the_template_that_is_there(scene: Scene) -> None:
    first = scene.now_ms() - 5
    scene.run(repeat.register(scene.queue, "n", every_ms=HOUR, template=b"t", first_run_ms=first))

    def plain(template: bytes) -> repeat.Fired:
        call = repeat.fire(scene.queue, "n", score=str(first), job_id=scene.mint(), payload=b"made", template=template)
        return scene.run(call)

    assert plain(b"other") == repeat.Fired(Firing.LOST, first)
    assert plain(b"t").verdict is Firing.FIRED
    (job_id,) = scene.run(jobs.browse(scene.queue))
    assert scene.row(job_id)[b"payload"] == b"made"


def test_a_wake_is_pushed_when_it_becomes_the_next_of_its_registry(scene: Scene) -> None:
    put(scene, late_ms=-HOUR)
    assert scene.tokens() == 1
    scene.drop_tokens()
    put(scene, replace(LINE, template=b"u"), late_ms=-HOUR, paused=True)
    assert scene.tokens() == 0


def test_builders_refuse_nonsense(scene: Scene) -> None:
    for build in (
        lambda: cron.look(scene.queue, ""),
        lambda: cron.put(scene.queue, "a\nb", LINE, Standing(0, None, None), slot_ms=1, due_ms=1),
        lambda: cron.put(scene.queue, "n", LINE, Standing(0, None, None), slot_ms=-1, due_ms=1),
        lambda: cron.due(scene.queue, now_ms=-1),
    ):
        with pytest.raises(InvalidInputError):
            build()


def test_admission_with_options_is_still_what_it_was(scene: Scene) -> None:
    lane = encode("LAN", 9)
    job_id = scene.mint()
    scene.run(admission.admit(scene.queue, job_id, b"p", delay_ms=HOUR, group=lane, dedup=admission.Dedup("k")))
    assert scene.run(metrics.state(scene.queue, job_id)) is State.SCHEDULED
