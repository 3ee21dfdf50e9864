"""What others see of the native commands: replicas, append-only files, watchers, blocked clients, transactions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from echomq.protocol import jobs
from support.native import NativeRunner
from support.raw import RawClient, ReplyError
from support.runner import Scene
from support.servers import Kind, Server, wait_until

FAR = 2**52


def run_all(scene: Scene, count: int = 1_200) -> None:
    """Every native command, refusals among them, with what it leaves behind."""
    ids = scene.minter.mint_many(count)
    for i, job_id in enumerate(ids):
        scene.run(jobs.enqueue_at(scene.queue, job_id, b"p\r\n\0", at_ms=1 if i % 3 else FAR))
    ghost = scene.ghost("schedule", 1)
    assert scene.run(jobs.promote(scene.queue, batch=count)) == 1 + count - len(ids[::3])
    assert scene.places(ghost) == []
    claims = scene.run(jobs.claim_many(scene.queue, 20))
    for job in claims.jobs[:10]:
        scene.run(jobs.delay(scene.queue, job.id, job.attempts, delay_ms=60_000))
    for job_id in ids[:12:3]:
        scene.run(jobs.reschedule(scene.queue, job_id, delay_ms=90_000))
    stale = scene.outcome(jobs.delay(scene.queue, claims.jobs[0].id, 9, delay_ms=1))
    assert "EMQSTALE" in str(stale)


def everything(client: RawClient) -> dict[bytes, Any]:
    """Every key as the server serialises it, and when it ends."""
    keys = sorted(client.execute("KEYS", "*"))
    return {key: (client.execute("DUMP", key), client.execute("PEXPIRETIME", key)) for key in keys}


def commands_in(server: Server) -> set[str]:
    """The names of all commands in a server's append-only files."""
    names: set[str] = set()
    for path in server.folder.glob("appendonlydir/*.aof"):
        names |= {m[1].decode().upper() for m in re.finditer(rb"\*\d+\r\n\$\d+\r\n([A-Za-z.]+)\r\n", path.read_bytes())}
    return names


def test_an_append_only_file_loads_on_a_server_without_the_module(
    kind: Kind, start_server: Callable[..., Server]
) -> None:
    server = start_server(kind, module=True, aof=True, options=("--appendfsync", "always"))
    with server.client() as client:
        run_all(Scene(NativeRunner(client), "aof"))
        before = everything(client)
    names = commands_in(server)
    assert {"HSET", "ZADD", "ZREM", "LPUSH"} <= names
    assert [name for name in names if name.startswith(("EMQ", "EVAL"))] == []
    server.native = False
    server.restart()
    with server.client() as client:
        assert client.execute("COMMAND", "INFO", "EMQ.SCHEDULE") == [None]
        assert everything(client) == before


def test_a_replica_without_the_module_follows(kind: Kind, start_server: Callable[..., Server]) -> None:
    primary = start_server(kind, module=True, tcp=True, options=("--repl-diskless-sync-delay", "0"))
    replica = start_server(kind, module=False, options=("--replicaof", f"127.0.0.1 {primary.port}"))
    with primary.client() as client, replica.client() as follower:
        wait_until(lambda: b"master_link_status:up" in follower.execute("INFO", "replication"), what="the replica")
        run_all(Scene(NativeRunner(client), "replica"))
        assert client.execute("WAIT", 1, 10_000) == 1
        assert everything(follower) == everything(client)
        assert follower.execute("COMMAND", "INFO", "EMQ.SCHEDULE") == [None]


def test_a_replica_with_the_module_refuses_to_write(kind: Kind, start_server: Callable[..., Server]) -> None:
    primary = start_server(kind, module=True, tcp=True, options=("--repl-diskless-sync-delay", "0"))
    replica = start_server(kind, module=True, options=("--replicaof", f"127.0.0.1 {primary.port}"))
    with replica.client() as client:
        wait_until(lambda: b"master_link_status:up" in client.execute("INFO", "replication"), what="the replica")
        scene = Scene(NativeRunner(client), "q")
        assert str(scene.outcome(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5))).count("READONLY") == 1


def test_a_promote_is_replicated_by_a_vector_for_a_thousand(kind: Kind, start_server: Callable[..., Server]) -> None:
    server = start_server(kind, module=True, aof=True, options=("--appendfsync", "always"))
    with server.client() as client:
        scene = Scene(NativeRunner(client), "aof")
        ids = scene.minter.mint_many(1_500)
        for job_id in ids:
            scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1))
        scene.execute("LPUSH", scene.keys.wake, *["1"] * (64 - scene.tokens()))
        size = {path: path.stat().st_size for path in server.folder.glob("appendonlydir/*.aof")}
        assert scene.run(jobs.promote(scene.queue, batch=5_000)) == 1_500
        new = b"".join(path.read_bytes()[size[path] :] for path in size).upper()
    counts = {name: new.count(b"\r\n%s\r\n" % name) for name in (b"ZADD", b"ZREM", b"HSET", b"LPUSH", b"MULTI")}
    assert counts == {b"ZADD": 2, b"ZREM": 2, b"HSET": 1_500, b"LPUSH": 0, b"MULTI": 1}


def test_a_parked_consumer_wakes(server: Server, scene: Scene) -> None:
    with server.client() as parked:
        first, second = scene.minter.mint_many(2)

        def waits() -> None:
            wait_until(lambda: "blocked_clients:0" in _text(scene.execute("INFO", "clients")), what="nobody parked")
            parked.send("BLPOP", scene.keys.wake, 0)
            wait_until(lambda: "blocked_clients:1" in _text(scene.execute("INFO", "clients")), what="parked")

        waits()
        scene.run(jobs.enqueue_at(scene.queue, first, b"p", at_ms=1))
        assert parked.receive() == [scene.keys.wake.encode(), b"1"]
        waits()
        scene.run(jobs.promote(scene.queue))
        assert parked.receive() == [scene.keys.wake.encode(), b"1"]
        scene.run(jobs.enqueue_at(scene.queue, second, b"p", at_ms=FAR))
        scene.drop_tokens()
        waits()
        scene.run(jobs.reschedule(scene.queue, second, at_ms=FAR - 1))
        assert parked.receive() == [scene.keys.wake.encode(), b"1"]
        scene.run(jobs.reschedule(scene.queue, second, at_ms=1))
        job = scene.run(jobs.claim(scene.queue))
        assert job is not None
        scene.drop_tokens()
        waits()
        scene.run(jobs.delay(scene.queue, job.id, job.attempts, at_ms=0))
        assert parked.receive() == [scene.keys.wake.encode(), b"1"]


def _text(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def test_a_transaction_runs_them_in_one_step(scene: Scene) -> None:
    job_id = scene.mint()
    sound = jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1)
    scene.execute("MULTI")
    for call in (sound, sound, jobs.delay(scene.queue, job_id, 1, at_ms=5), jobs.promote(scene.queue)):
        assert _text(scene.execute(*call.native_words())) == "QUEUED"
    replies = scene.execute("EXEC")
    assert [str(reply) if isinstance(reply, ReplyError) else reply for reply in replies] == [
        *(1, 0, "EMQSTALE delay token mismatch", 1)
    ]
    assert scene.places(job_id) == ["pending"]


def test_whoever_watches_a_key_sees_a_write_and_no_refusal(server: Server, scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=FAR))
    with server.client() as watcher:
        watched = (scene.keys.job(job_id), scene.keys.schedule, scene.keys.active, scene.keys.pending, scene.keys.wake)

        def disturbed(act: Callable[[], object]) -> bool:
            watcher.execute("WATCH", *watched)
            act()
            watcher.execute("MULTI")
            return watcher.execute("EXEC") is None

        assert not disturbed(lambda: scene.outcome(jobs.delay(scene.queue, job_id, 1, at_ms=5)))
        assert not disturbed(lambda: scene.outcome(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=5)))
        assert not disturbed(lambda: scene.run(jobs.promote(scene.queue)))
        assert disturbed(lambda: scene.run(jobs.reschedule(scene.queue, job_id, at_ms=1)))
        assert disturbed(lambda: scene.run(jobs.promote(scene.queue)))


def test_keyspace_events_are_the_scripts(server: Server, scene: Scene) -> None:
    scene.execute("CONFIG", "SET", "notify-keyspace-events", "KA")
    try:
        with server.client() as ear:
            ear.execute("PSUBSCRIBE", "__keyspace@0__:*")
            job_id = scene.mint()
            scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1))
            heard = {tuple(_text(part).split(":", 1)[-1] for part in ear.receive()[2:]) for _ in range(3)}
        base = scene.keys.base
        assert heard == {(f"{base}schedule", "zadd"), (f"{base}job:{job_id}", "hset"), (f"{base}wake", "lpush")}
    finally:
        scene.execute("CONFIG", "SET", "notify-keyspace-events", "")
