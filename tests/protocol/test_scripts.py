"""The Lua files themselves: each says what it takes and gives, is whole, and touches its own queue only."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from echomq.protocol import jobs, metrics, repeat
from echomq.protocol.scripts import Script, registered, script
from support.raw import ReplyError
from support.runner import Runner, Scene

FOLDER = files("echomq.protocol") / "lua"
NAMES = sorted(p.name.removesuffix(".lua") for p in FOLDER.iterdir() if p.name.endswith(".lua"))
PIECES = sorted(p.name for p in (FOLDER / "lib").iterdir())
FIRST_LINE = re.compile(r"#!lua( flags=[a-z,-]+)?")
# What adds data is refused when the server is full; nothing else may be.
GROWS = {
    *("cron_fire", "cron_put", "cron_run"),
    *("admit", "enqueue", "enqueue_lane", "enqueue_many", "fire", "flow_add", "register", "schedule", "upsert"),
    *("add_log", "update_data", "pay"),
}


def text_of(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def header_of(text: str) -> str:
    """The comment before the first line of code."""
    lines = text.splitlines()[1:]
    end = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return "\n".join(lines[:end])


@pytest.mark.parametrize("name", NAMES)
def test_a_script_opens_with_its_contract(name: str) -> None:
    text = text_of(f"{name}.lua")
    assert FIRST_LINE.fullmatch(text.splitlines()[0])
    header = header_of(text)
    assert re.match(r"-- [\w ]+: ", header), "the first line says what it does"
    assert "§" in header, "the header names the section of the protocol"
    assert "-- returns " in header
    for word, said in (("KEYS", "-- KEYS"), ("ARGV", "-- ARGV")):
        if word in text.replace(header, ""):
            assert said in header or f"   {said[3:]}" in header, f"the header maps {word}"
    used = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", text.replace(header, ""))}
    mapped = {int(n) for n in re.findall(r"KEYS\[(\d+)\]", header)}
    assert used <= mapped, f"KEYS {used - mapped} are not in the header"


@pytest.mark.parametrize("piece", PIECES)
def test_a_shared_piece_says_what_it_is_for(piece: str) -> None:
    assert text_of(f"lib/{piece}").startswith("-- ")


@pytest.mark.parametrize("piece", PIECES)
def test_a_shared_piece_is_included_somewhere(piece: str) -> None:
    include = f"-- @include {piece.removesuffix('.lua')}\n"
    everything = [text_of(f"{name}.lua") for name in NAMES] + [text_of(f"lib/{p}") for p in PIECES]
    assert any(include in text for text in everything)


@pytest.mark.parametrize("name", NAMES)
def test_a_source_is_whole_and_holds_no_comment(name: str) -> None:
    source = Script(name).source
    assert source.startswith("#!lua")
    assert "@include" not in source
    assert not [line for line in source.splitlines() if line.lstrip().startswith("--")]
    locals_ = re.findall(r"^local function (\w+)", source, re.MULTILINE)
    assert len(locals_) == len(set(locals_)), "a piece is included once however often it is named"


@pytest.mark.parametrize("name", NAMES)
def test_only_what_adds_data_is_refused_by_a_full_server(name: str) -> None:
    flags = text_of(f"{name}.lua").splitlines()[0]
    assert ("allow-oom" in flags or "no-writes" in flags) == (name not in GROWS)


def test_a_name_stands_for_one_script() -> None:
    assert script("claim") is script("claim")
    assert len({s.sha for s in registered()}) == len(registered())


def test_the_server_knows_a_script_by_the_hash_we_send(runner: Runner) -> None:
    for name in NAMES:
        each = Script(name)
        assert runner.execute("SCRIPT", "LOAD", each.source) == each.sha.encode()


def test_a_first_key_that_is_no_queues_is_refused(runner: Runner) -> None:
    source = Script("enqueue").source
    for key in ("job:x", "emq:q:pending", "emq:{}:pending", "xemq:{q}:pending"):
        with pytest.raises(ReplyError, match=r"ERR EMQ\.ENQUEUE first key must begin with"):
            runner.execute("EVAL", source, 2, key, key, "JOB0NgWEfAEJfs", "p")
    assert runner.execute("DBSIZE") == 0


def test_no_script_touches_a_key_outside_its_queue(confined: Scene) -> None:
    scene, q = confined, confined.queue
    with pytest.raises(ReplyError, match="NOPERM"):
        scene.execute("SET", "emq:{other}:pending", "x")
    a, b, c, d, e = scene.minter.mint_many(5)
    scene.into_lane("LAN00000000001", d)
    scene.run(jobs.enqueue(q, a, b"p"))
    scene.run(jobs.enqueue_many(q, [(b, b"p")]))
    scene.run(jobs.enqueue_in(q, c, b"p", delay_ms=0))
    scene.run(jobs.reschedule(q, c, at_ms=1))
    scene.run(jobs.promote(q))
    claims = scene.run(jobs.claim_many(q, 9))
    assert len(claims.jobs) == 4
    scene.run(jobs.extend(q, a, 1))
    scene.run(jobs.extend_many(q, [(b, 1)]))
    scene.run(jobs.retry(q, a, 1, delay_ms=0, max_attempts=9, error="e"))
    scene.run(jobs.delay(q, b, 1, at_ms=1))
    scene.run(jobs.release(q, c, 1))
    scene.lapse(d)
    scene.run(jobs.reap(q))
    assert len(scene.run(jobs.claim_many(q, 9)).jobs) == 2
    scene.lapse(d)
    scene.run(jobs.sweep(q))
    scene.run(jobs.complete(q, c, 2))
    scene.run(jobs.complete_many(q, [(a, 1)]))
    scene.run(repeat.register(q, "n", every_ms=5, template=b"t", first_run_ms=1))
    scene.run(repeat.upsert(q, "n", every_ms=6, template=b"t", first_run_ms=1))
    (due,) = scene.run(repeat.due(q, now_ms=9))
    scene.run(repeat.fire(q, "n", score=due.score, job_id=e))
    scene.run(repeat.advance(q, "n", next_run_ms=5))
    scene.run(repeat.cancel(q, "n"))
    for call in (metrics.counts(q), metrics.state(q, a), metrics.row(q, a), repeat.count(q)):
        scene.run(call)
    for call in (jobs.browse(q), jobs.browse_dead(q), jobs.pending_size(q)):
        scene.run(call)
    assert all(key.startswith(b"emq:{confined}:") for key in scene.dump())
