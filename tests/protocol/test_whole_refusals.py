"""A verb that fails has written nothing (protocol §5): whatever another client has put at any key that it may write.

And a script touches the keys of one queue only, that of its first key, whatever its other keys and arguments name.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from echomq.protocol import survey
from echomq.protocol.call import Arg
from echomq.protocol.keys import keys
from echomq.protocol.scripts import script
from support.every_verb import ALONE, FLOWS, every_key, kept, put_back
from support.raw import ReplyError
from support.runner import Scene

pytestmark = pytest.mark.strays("a key of the queue holds what no client of the protocol writes")

OTHER_TYPES = (("RPUSH", "x"), ("SET", "abc"), ("HSET", "x", "1"))
LUA = files("echomq.protocol") / "lua"
GHOST = "EMQSTALE job gone"
"""The refusal of a verb that has met a member without a row, which it drops (protocol §5)."""

ELSEWHERE = {"node_renew", "audit_books"}
"""Scripts that write and are not among the calls: of no queue; of a plan that reads all before."""


@pytest.mark.deadline(180)
@pytest.mark.parametrize("verb", ALONE)
def test_a_verb_that_fails_has_written_nothing(scene: Scene, verb: str) -> None:
    call = ALONE[verb](scene)
    sound = kept(scene)
    assert not isinstance(scene.runner.reply(call), ReplyError)
    halves = []
    put_back(scene, sound)
    for name in list(every_key(scene, call)):
        for command, *value in OTHER_TYPES:
            put_back(scene, sound)
            scene.execute("DEL", scene.keys.base + name)
            scene.execute(command, scene.keys.base + name, *value)
            before = kept(scene)
            reply = scene.runner.reply(call)
            if isinstance(reply, ReplyError) and str(reply) != GHOST and kept(scene) != before:
                after = kept(scene)
                written = {key for key in {*before, *after} if before.get(key) != after.get(key)}
                halves.append(f"{name} by {command}: {reply}, and wrote {written}")
    assert halves == []


def renamed(words: tuple[Arg, ...], scene: Scene, other: Scene) -> tuple[Arg, ...]:
    return tuple(w.replace(scene.keys.base, other.keys.base) if isinstance(w, str) else w for w in words)


@pytest.mark.parametrize("verb", [*ALONE, *FLOWS])
def test_a_script_writes_to_no_other_queue_than_that_of_its_first_key(scene: Scene, other: Scene, verb: str) -> None:
    call = {**ALONE, **FLOWS}[verb](scene)
    sound = kept(scene)
    first, *rest = call.keys
    foreign = (first, *renamed(tuple(rest), scene, other))  # type: ignore[arg-type]
    for changes in ({"keys": foreign}, {"args": renamed(call.args, scene, other)}):
        put_back(scene, sound)
        for key in sound:
            theirs = key.decode().replace(scene.keys.base, other.keys.base)
            scene.execute("COPY", key, theirs, "REPLACE")
        before = kept(other)
        scene.runner.reply(replace(call, **changes))
        assert kept(other) == before


def scripts() -> list[str]:
    return sorted(path.name.removesuffix(".lua") for path in LUA.iterdir() if path.name.endswith(".lua"))


def test_every_script_that_writes_is_among_the_calls(scene: Scene) -> None:
    called: set[str] = set()
    for build in (*ALONE.values(), *FLOWS.values()):
        put_back(scene, {})
        used = build(scene).script
        called |= {used.name} if used else set()
    writing = {name for name in scripts() if "no-writes" not in (LUA / f"{name}.lua").read_text().partition("\n")[0]}
    assert {name for name in writing - called - ELSEWHERE if not name.startswith("flow_")} == set()


def test_no_script_takes_a_later_key_as_it_is_given(scene: Scene) -> None:
    text = {name: script(name).source for name in scripts()}
    later = {name for name, source in text.items() if re.search(r"KEYS\[[^1]|KEYS\[1\d|\(KEYS\)", source)}
    assert later <= {"survey_jobs", "drain"}  # one looks at its base first, the other asks whether it is there
    page = survey.dead_after(scene.queue)
    refusal = scene.refusal(replace(page, keys=(page.keys[0], keys(scene.queue + "2").pending)))
    assert refusal.reply == "ERR survey jobs place is of another queue"
