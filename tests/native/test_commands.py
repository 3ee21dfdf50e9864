"""What a server knows of the native commands: their keys, flags and categories, on either protocol of replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Call
from echomq.protocol.keys import keys
from support.native import NativeRunner, ScriptRunner
from support.raw import RawClient, ReplyError
from support.runner import Scene
from support.servers import Kind, Server, free_port, wait_until

JOB = "JOB0NgWEfAEJfs"
CALLS: dict[str, Call[Any]] = {
    "schedule": jobs.enqueue_at("commands", JOB, b"p", at_ms=5),
    "reschedule": jobs.reschedule("commands", JOB, at_ms=5),
    "promote": jobs.promote("commands"),
    "delay": jobs.delay("commands", JOB, 1, at_ms=5),
    "enqueue": jobs.enqueue("commands", JOB, b"p"),
    "enqueuemany": jobs.enqueue_many("commands", [(JOB, b"p")]),
    "claim": jobs.claim("commands"),
    "completemany": jobs.complete_many("commands", [(JOB, 1)]),
}
OF_ANY_LENGTH = {"enqueuemany", "completemany"}
SLOW = {"promote", "claim", *OF_ANY_LENGTH}
ADMIT = {"schedule", "enqueue", "enqueuemany"}


def _texts(words: Any) -> set[str]:
    return {word.decode() if isinstance(word, bytes) else str(word) for word in words}


@pytest.mark.parametrize("verb", sorted(CALLS))
def test_a_command_says_its_arity_flags_and_keys(server: Server, verb: str) -> None:
    call = CALLS[verb]
    with server.client() as client:
        name, arity, flags, first, last, step, *_ = client.execute("COMMAND", "INFO", f"EMQ.{verb.upper()}")[0]
    words = len(call.native_words())
    assert (name.decode(), arity) == (f"emq.{verb}", -words if verb in OF_ANY_LENGTH else words)
    assert _texts(flags) == {
        *("write", "module"),
        *(["denyoom"] if verb in ADMIT else []),
        *([] if verb in SLOW else ["fast"]),
    }
    assert (first, last, step) == (2, 1 + len(call.keys), 1)


@pytest.mark.parametrize("verb", sorted(CALLS))
def test_the_server_finds_the_keys(server: Server, verb: str) -> None:
    call = CALLS[verb]
    with server.client() as client:
        assert client.execute("COMMAND", "GETKEYS", *call.native_words()) == [key.encode() for key in call.keys]


@pytest.mark.parametrize("verb", sorted(CALLS))
def test_the_commands_lie_in_the_categories_of_what_they_touch(kind: Kind, server: Server, verb: str) -> None:
    with server.client() as client:
        of = {c: f"emq.{verb}".encode() in client.execute("ACL", "CAT", c) for c in ("write", "sortedset", "fast")}
        dangerous = client.execute("ACL", "CAT", "dangerous")
    # Redis 7.0 puts no command of a module into a category: docs/native.md.
    known = kind is not Kind.REDIS
    assert of == {"write": known, "sortedset": known, "fast": known and verb not in SLOW}
    assert f"emq.{verb}".encode() not in dangerous


def test_a_user_is_held_to_the_commands_and_keys_that_it_may_use(server: Server) -> None:
    with server.client() as root, server.client() as client:
        root.execute("ACL", "SETUSER", "narrow", "on", ">s", "-@all", "+emq.schedule", "~emq:{mine}:*")
        try:
            client.execute("AUTH", "narrow", "s")
            mine = jobs.enqueue_at("mine", JOB, b"p", at_ms=5)
            assert client.execute(*mine.native_words()) == 1
            for call in (jobs.enqueue_at("yours", JOB, b"p", at_ms=5), jobs.promote("mine")):
                with pytest.raises(ReplyError, match="NOPERM"):
                    client.execute(*call.native_words())
        finally:
            root.execute("ACL", "DELUSER", "narrow")


@pytest.mark.parametrize("version", [2, 3])
def test_replies_are_the_same_on_both_protocols(server: Server, queue: str, version: int) -> None:
    with server.client() as client:
        client.execute("HELLO", version)
        words = [
            jobs.enqueue_at(queue, JOB, b"p", at_ms=5).native_words(),
            jobs.enqueue_at(queue, JOB, b"p", at_ms=5).native_words(),
            jobs.reschedule(queue, "JOB0NgWEfAEJft", at_ms=5).native_words(),
            jobs.delay(queue, JOB, 1, at_ms=5).native_words(),
            jobs.promote(queue).native_words(),
        ]
        replies = client.execute_all(words)
    assert [str(reply) if isinstance(reply, ReplyError) else reply for reply in replies] == [
        *(1, 0, -1, "EMQSTALE delay token mismatch", 1)
    ]


def test_a_cluster_knows_the_slot_by_the_keys(kind: Kind, start_server: Callable[..., Server]) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    node = start_server(kind, module=True, tcp=True, options=options)
    with RawClient(("127.0.0.1", node.port)) as client:
        mine, other = "a", next(name for name in map(str, range(99)) if slot(client, name) != slot(client, "a"))
        client.execute("CLUSTER", "ADDSLOTS", slot(client, mine))
        client.execute("CONFIG", "SET", "cluster-require-full-coverage", "no")
        wait_until(lambda: b"cluster_state:ok" in client.execute("CLUSTER", "INFO"), what="the cluster")
        scene = Scene(NativeRunner(client), mine)
        assert scene.runner.reply(jobs.enqueue_at(mine, JOB, b"p", at_ms=5)) == 1
        unserved = scene.runner.reply(jobs.enqueue_at(other, JOB, b"p", at_ms=5))
        assert str(unserved).startswith(("CLUSTERDOWN", "MOVED"))
        crossed = client.execute_all([("EMQ.PROMOTE", 2, keys(mine).schedule, keys(other).pending, "x", 1)])
        assert str(crossed[0]).startswith("CROSSSLOT")


@pytest.mark.strays("rows that another node has")
def test_what_a_cluster_has_moved_is_not_taken_for_gone(kind: Kind, start_server: Callable[..., Server]) -> None:
    ports = [("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2)]
    nodes = [start_server(kind, module=True, tcp=True, options=options) for options in ports]
    with RawClient(("127.0.0.1", nodes[0].port)) as client, RawClient(("127.0.0.1", nodes[1].port)) as other:
        client.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        port = other.execute("CONFIG", "GET", "cluster-port")[1]
        client.execute("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, port)
        there = other.execute("CLUSTER", "MYID")
        wait_until(lambda: there in client.execute("CLUSTER", "NODES"), seconds=20, what="the nodes meet")
        wait_until(lambda: b"cluster_state:ok" in client.execute("CLUSTER", "INFO"), what="the cluster")
        scene = Scene(NativeRunner(client), "a")
        held, waiting, due = ids = scene.minter.mint_many(3)
        scene.run(jobs.enqueue_many("a", [(held, b"p"), (waiting, b"p")]))
        scene.run(jobs.claim("a"))
        scene.run(jobs.enqueue_at("a", due, b"p", at_ms=1))
        client.execute("CLUSTER", "SETSLOT", slot(client, "a"), "MIGRATING", there)
        scripts = ScriptRunner(client)
        for job_id in ids:
            client.execute("DEL", scene.keys.job(job_id))
        for call in (
            jobs.enqueue_many("a", [(waiting, b"p")]),
            jobs.claim("a"),
            jobs.promote("a"),
            jobs.complete_many("a", [(held, 1)]),
        ):
            assert str(scene.runner.reply(call)).startswith("TRYAGAIN"), call
            said = scripts.reply(call)
            assert isinstance(said, ReplyError), (call, said)
        client.execute("CLUSTER", "SETSLOT", slot(client, "a"), "STABLE")
        places = (scene.keys.active, scene.keys.pending, scene.keys.schedule)
        assert [client.execute("ZCARD", place) for place in places] == [1, 1, 1]
        assert scene.run(jobs.promote("a")) == 1


def slot(client: RawClient, queue: str) -> int:
    found: int = client.execute("CLUSTER", "KEYSLOT", keys(queue).pending)
    return found


def test_the_module_is_listed_by_its_name(server: Server) -> None:
    with server.client() as client:
        modules = [dict(zip(m[::2], m[1::2], strict=True)) for m in client.execute("MODULE", "LIST")]
    assert [module[b"ver"] for module in modules if module[b"name"] == b"echomq"] == [1]


def test_a_second_load_of_it_is_refused(kind: Kind) -> None:
    with pytest.raises(RuntimeError, match="ended at its start"), _twice(kind) as server:
        assert server.running


def _twice(kind: Kind) -> Server:
    from echomq.wire.module import module_path

    return Server(kind, module=True, options=("--loadmodule", str(module_path())))
