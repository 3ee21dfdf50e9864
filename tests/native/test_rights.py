"""A command does what its user may do: keys that it goes by without being given them, and channels (docs/native.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Call
from echomq.wire.dialect import is_missing
from support.native import NativeRunner, ScriptRunner
from support.raw import RawClient, ReplyError
from support.runner import Scene
from support.servers import Kind, Server

FORBIDDEN = "NOPERM No permissions to access a key"

CALLS: dict[str, Callable[[Scene, str], Call[Any]]] = {
    "schedule": lambda s, new: jobs.enqueue_at(s.queue, new, b"p", at_ms=5),
    "enqueue": lambda s, new: jobs.enqueue(s.queue, new, b"p"),
    "enqueue_many": lambda s, new: jobs.enqueue_many(s.queue, [(new, b"p")]),
    "claim": lambda s, _: jobs.claim_many(s.queue, 10),
    "promote": lambda s, _: jobs.promote(s.queue),
    "reschedule": lambda s, _: jobs.reschedule(s.queue, only(s, s.keys.schedule), at_ms=7),
    "delay": lambda s, _: jobs.delay(s.queue, only(s, s.keys.active), 1, at_ms=7),
    "complete_many": lambda s, _: jobs.complete_many(s.queue, [(only(s, s.keys.active), 1)]),
}


def only(scene: Scene, key: str) -> str:
    (member,) = scene.execute("ZRANGE", key, 0, -1)
    return member.decode() if isinstance(member, bytes) else str(member)


def fill(scene: Scene) -> None:
    """A job in hand, one pending and one that is due."""
    held, waiting, due = scene.minter.mint_many(3)
    scene.run(jobs.enqueue(scene.queue, held, b"p"))
    assert scene.run(jobs.claim(scene.queue)) is not None
    scene.run(jobs.enqueue(scene.queue, waiting, b"p"))
    scene.run(jobs.enqueue_at(scene.queue, due, b"p", at_ms=1))


@pytest.fixture
def user(server: Server, scene: Scene) -> Iterator[Callable[..., RawClient]]:
    """Gives a user of the test's own these rules, and its connection."""
    name = f"u{scene.queue}"
    with server.client() as client:

        def made(*rules: str) -> RawClient:
            scene.execute("ACL", "SETUSER", name, "reset", "on", ">s", "+@all", *rules)
            client.execute("AUTH", name, "s")
            return client

        yield made
        scene.execute("ACL", "DELUSER", name)


def stray(call: Call[Any], place: int) -> Call[Any]:
    """The call with one of its keys named as another of the queue."""
    base = call.keys[0].partition("}")[0] + "}:"
    given = list(call.keys)
    given[place] = f"{base}mine:{place}"
    return replace(call, keys=tuple(given))


def places() -> list[tuple[str, int]]:
    counts = {"enqueue_many": 1, "complete_many": 1, "delay": 3}
    return [(verb, place) for verb in sorted(CALLS) for place in range(counts.get(verb, 2))]


@pytest.mark.parametrize(("verb", "place"), places())
def test_a_key_that_the_call_names_as_another_is_held_to_the_rights_of_the_user(
    scene: Scene, user: Callable[..., RawClient], verb: str, place: int
) -> None:
    fill(scene)
    call = CALLS[verb](scene, scene.mint())
    bent = stray(call, place)
    client = user("&*", *(f"~{key}" for key in bent.keys))
    before = scene.dump()
    client.send(*bent.native_words())
    refused = str(client.receive())
    assert refused == FORBIDDEN
    assert not is_missing(refused)
    assert scene.dump() == before
    in_script = ScriptRunner(client).reply(bent)
    assert isinstance(in_script, ReplyError)
    assert scene.dump() == before
    may = user("&*", f"~{scene.keys.base}*")
    answer = NativeRunner(may).reply(bent)
    assert not isinstance(answer, ReplyError), "whoever may touch the right keys is answered as ever"
    assert scene.dump() != before


def test_a_script_and_a_transaction_are_no_way_around_it(scene: Scene, user: Callable[..., RawClient]) -> None:
    fill(scene)
    bent = stray(jobs.promote(scene.queue), 1)
    client = user("&*", *(f"~{key}" for key in bent.keys))
    before = scene.dump()
    words = bent.native_words()
    lua = "return redis.call(ARGV[1], 2, KEYS[1], KEYS[2], ARGV[2], ARGV[3])"
    client.send("EVAL", lua, 2, *bent.keys, words[0], *bent.args)
    assert str(client.receive()).startswith(FORBIDDEN)
    client.execute("MULTI")
    client.execute(*words)
    assert [str(reply) for reply in client.execute("EXEC")] == [FORBIDDEN]
    assert scene.dump() == before


def test_a_file_that_holds_a_command_with_such_keys_loads(kind: Kind, start_server: Callable[..., Server]) -> None:
    server = start_server(kind, module=True, aof=True, options=("--appendfsync", "always"))
    with server.client() as client:
        scene = Scene(NativeRunner(client), "file")
        fill(scene)
        due = only(scene, scene.keys.schedule)
        bent = stray(jobs.promote("file"), 1)
    server.kill9()
    (file,) = server.folder.glob("appendonlydir/*.incr.aof")
    words = [str(word).encode() for word in bent.native_words()]
    with file.open("ab") as out:
        out.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    server.start()
    with server.client() as client:
        assert Scene(NativeRunner(client), "file").places(due) == ["pending"]


@pytest.mark.parametrize("rules", [("resetchannels",), ("&*", "-publish")], ids=["channel", "command"])
def test_nobody_is_told_where_the_user_may_not_publish(
    server: Server, scene: Scene, user: Callable[..., RawClient], rules: tuple[str, ...]
) -> None:
    ids = scene.minter.mint_many(3)
    with server.client() as ear:
        ear.execute("SUBSCRIBE", scene.keys.results)
        for runner, job_id, rights in (
            (NativeRunner, ids[0], rules),
            (ScriptRunner, ids[1], rules),
            (NativeRunner, ids[2], ("resetchannels", f"&{scene.keys.results}")),
        ):
            scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
            assert scene.run(jobs.claim(scene.queue)) is not None
            client = user(f"~{scene.keys.base}*", *rights)
            call = jobs.complete_many(scene.queue, [(job_id, 1)], result_ttl_ms=60_000)
            assert runner(client).reply(call) == [1]
            assert scene.execute("EXISTS", scene.keys.job(job_id) + ":result") == 1
        assert ear.receive() == [b"message", scene.keys.results.encode(), ids[2].encode()], "the last alone is told"
