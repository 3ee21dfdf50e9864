"""Wire 6 and auto on servers with and without the module: who is refused, what is sent, what goes on as a script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.identity.minter import mint
from echomq.protocol import admin, admission, jobs, lanes
from echomq.protocol.call import Call
from echomq.protocol.errors import FenceError, NativeMissingError, ServerError
from echomq.protocol.replies import Completion, Rescheduling
from echomq.protocol.scripts import NATIVE, twins
from echomq.runtime import Dial
from echomq.wire import AsyncConnector, Connector, Options, Wire, aconnect, connect, parse_url
from echomq.wire.dialect import question, read
from echomq.wire.preflight import rights_advice
from support.desk import until
from support.scripted import append, key, note
from support.servers import Kind, Server

PAST = 1_000
LANE = lanes.lane_id("acme")

StartServer = Callable[..., Server]


class Face(Protocol):
    """Runs calls in one flight on a connector of its own, and gives each its outcome."""

    def __call__(self, server: Server, calls: list[Call[Any]], wire: Wire | None = 6) -> list[Any]: ...


def where(server: Server) -> str:
    """The server without a word on the wire."""
    return f"unix://{server.socket_path}"


def blocking(server: Server, calls: list[Call[Any]], wire: Wire | None = 6) -> list[Any]:
    with connect(where(server), wire=wire, lease_node=False) as conn:
        return conn.run_many(calls)


def awaited(server: Server, calls: list[Call[Any]], wire: Wire | None = 6) -> list[Any]:
    async def run() -> list[Any]:
        async with aconnect(where(server), wire=wire, lease_node=False) as conn:
            return await conn.run_many(calls)

    return asyncio.run(run())


@pytest.fixture(params=[blocking, awaited], ids=["blocking", "awaited"])
def face(request: pytest.FixtureRequest) -> Face:
    found: Face = request.param
    return found


def calls_of(server: Server, *names: str) -> list[int]:
    """How often each command was called."""
    with server.client() as client:
        calls = client.calls()
    return [calls.get(name, 0) for name in names]


def grouped_due(server: Server, queue: str) -> str:
    """A due job of a lane, scheduled; and its lane has nothing else."""
    job_id = mint()
    [admitted] = blocking(server, [admission.admit(queue, job_id, b"p", at_ms=PAST, group=LANE)], 4)
    assert admitted.id == job_id
    return job_id


# What is sent


def test_the_table_of_twins_is_what_the_module_has(start_server: StartServer) -> None:
    with start_server(module=True).client() as client:
        there = {name.decode() for name in client.execute("COMMAND", "LIST", "FILTERBY", "MODULE", "echomq")}
        assert there == {script.native.lower() for script in twins()}
        assert all(client.execute(*question()))
    assert {script.name for script in twins()} == NATIVE
    assert question()[:3] == ("COMMAND", "INFO", "EMQ.SCHEDULE")


def test_wire_6_sends_commands_for_what_has_a_twin(start_server: StartServer, queue: str, face: Face) -> None:
    server = start_server(module=True)
    job_id = mint()
    scheduled, promoted = face(server, [jobs.enqueue_at(queue, job_id, b"p", at_ms=PAST), jobs.promote(queue)])
    [claimed] = face(server, [jobs.claim(queue)])
    assert (scheduled.name, promoted, claimed.id) == ("SCHEDULED", 1, job_id)
    assert face(server, [jobs.delay(queue, job_id, claimed.token, at_ms=5)]) == [None]
    assert face(server, [jobs.reschedule(queue, job_id, at_ms=7)]) == [Rescheduling.MOVED]
    names = ("emq.schedule", "emq.promote", "emq.delay", "emq.reschedule")
    assert calls_of(server, *names) == [1] * 4
    evaluated = calls_of(server, "evalsha")
    face(server, [jobs.promote(queue)])
    assert calls_of(server, "emq.promote") == [2]
    assert calls_of(server, "evalsha") == evaluated


def test_wire_4_is_the_default_and_sends_none(start_server: StartServer, queue: str, face: Face) -> None:
    server = start_server(module=True)
    assert face(server, [jobs.promote(queue)], None) == face(server, [jobs.promote(queue)], 4) == [0]
    assert calls_of(server, "emq.promote", "command|info") == [0, 0]


def test_auto_sends_commands_where_they_are_and_scripts_elsewhere(
    start_server: StartServer, queue: str, face: Face
) -> None:
    native, bare = start_server(module=True), start_server(module=False)
    assert face(native, [jobs.promote(queue)], "auto") == face(bare, [jobs.promote(queue)], "auto") == [0]
    assert calls_of(native, "emq.promote") == [1]
    with connect(where(native), wire="auto") as one, connect(where(bare), wire="auto") as other:
        assert (one.wire, other.wire) == (6, 4)


async def test_what_was_submitted_before_the_connect_goes_native(start_server: StartServer, queue: str) -> None:
    server = start_server(module=True)
    conn = AsyncConnector(where(server), Options(wire="auto"))
    assert conn.wire is None
    assert await conn.run(jobs.promote(queue)) == 0
    assert conn.wire == 6
    assert calls_of(server, "emq.promote") == [1]
    await conn.close()


def test_the_url_may_name_the_wire_and_the_option_goes_before_it(start_server: StartServer) -> None:
    server = start_server(module=True)
    with connect(where(server) + "?wire=6") as conn:
        assert conn.wire == 6
    with connect(where(server) + "?wire=6", wire=4) as conn:
        assert conn.wire == 4
    with Dial(where(server), wire="auto").connect("test") as conn:
        assert conn.wire == 6
    assert parse_url("valkeys://h/3?wire=auto&check_hostname=false").wire == "auto"
    assert parse_url("valkey://h").wire is None


@pytest.mark.parametrize("wire", [5, 0, True, "six", "", 6.0, b"6"])
def test_a_wire_that_is_none_is_refused_with_what_is_allowed(wire: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"wire=.*: 4 \(scripts\), 6 \(native commands\) or auto is allowed"):
        Options(wire=wire)
    if isinstance(wire, str):
        with pytest.raises(InvalidInputError, match=r"'valkey://h': wire=.*: 4 \(scripts\)"):
            parse_url(f"valkey://h?wire={wire}")


# Servers without the module, or with a part of it


def test_wire_6_refuses_a_server_without_the_module_at_once(start_server: StartServer, face: Face) -> None:
    server = start_server(module=False)
    began = time.monotonic()
    with pytest.raises(NativeMissingError, match=r"/s has no native commands.*EMQ\.SCHEDULE is unknown.*wire=4"):
        face(server, [])
    with pytest.raises(NativeMissingError, match="wire=4"):
        asyncio.run(AsyncConnector(where(server), Options(wire=6)).run(jobs.promote("q")))
    with pytest.raises(NativeMissingError, match="wire=4"):
        Connector(where(server), Options(wire=6)).run(jobs.promote("q"))
    assert time.monotonic() - began < Options().timeout
    with server.client() as client:
        assert client.execute("KEYS", "*") == [], "who is refused claims no fence"
        client.execute("SET", "{emq}:version", "other")
    with pytest.raises(FenceError, match="'other'"):
        face(server, [])


def test_of_an_older_module_the_commands_that_it_has_are_used() -> None:
    schedule, *others = twins()
    some: list[Any] = [[b"emq.schedule"], None, [b"emq.promote"]]
    for wire in (6, "auto"):
        assert read("host:1", wire, some) == {schedule, others[1]}
    without: list[Any] = [None, [b"emq.delay"]]
    assert read("host:1", "auto", without) == {others[0]}
    with pytest.raises(NativeMissingError, match="host:1 has no native commands"):
        read("host:1", 6, without)


def test_a_server_that_may_not_be_asked_is_spoken_to_by_scripts_and_refused_on_wire_6() -> None:
    refusal = ServerError("", reply="NOPERM this user has no permissions to run the 'command|info' command")
    assert read("host:1", "auto", refusal) == frozenset()
    with pytest.raises(NativeMissingError, match=r"COMMAND INFO answers: NOPERM.*wire=4"):
        read("host:1", 6, refusal)


def test_a_user_who_may_not_run_a_command_runs_its_script(start_server: StartServer, queue: str, face: Face) -> None:
    server = start_server(module=True)
    with server.client() as client:
        client.execute("ACL", "SETUSER", "default", "-emq.promote")
    job_id = mint()
    calls = [jobs.enqueue_at(queue, job_id, b"p", at_ms=PAST), jobs.promote(queue), jobs.promote(queue)]
    assert face(server, calls, "auto")[1:] == [1, 0]
    assert calls_of(server, "emq.schedule") == [1]
    [refused] = face(server, [jobs.promote(queue)], 6)
    assert isinstance(refused, ServerError)
    assert refused.reply.startswith("NOPERM")


def test_the_rights_that_a_connect_advises_are_enough_for_native_commands(
    start_server: StartServer, queue: str
) -> None:
    server = start_server(module=True)
    words = rights_advice(parse_url("valkey://mail@h")).removeprefix(": ").split()
    with server.client() as client:
        client.execute(*words, "on", "nopass")
    url = f"unix://mail:any@{server.socket_path}"
    with connect(url, wire="auto") as conn:
        assert conn.run(jobs.enqueue_at(queue, mint(), b"p", at_ms=PAST)).name == "SCHEDULED"
        assert conn.run(jobs.promote(queue)) == 1
    if server.kind is Kind.REDIS:  # whose module commands are in no category: by name, or as scripts
        with connect(url, wire=6) as conn, pytest.raises(ServerError, match=r"NOPERM.*; give the user \+emq\.promote"):
            conn.run(jobs.promote(queue))
        with server.client() as client:
            client.execute("ACL", "SETUSER", "mail", "+emq.promote")
    before = calls_of(server, "emq.promote")[0]
    with connect(url, wire=6) as conn:
        assert conn.run(jobs.promote(queue)) == 0
    assert calls_of(server, "emq.promote") == [before + 1]


# Half-way


async def replaced(server: Server, native: bool, conn: AsyncConnector) -> None:
    """The server crashes, and another comes up at its place and on its file; `conn` has seen the end of the first."""
    server.native = native
    server.kill9()
    await until(lambda: conn.wire is None, "the connection's end")
    await asyncio.to_thread(server.start)


async def test_auto_goes_on_when_the_server_comes_back_without_the_module(
    start_server: StartServer, queue: str
) -> None:
    server = start_server(module=True, tcp=True, aof=True, options=["--appendfsync", "always"])
    url = f"valkey://127.0.0.1:{server.port}?wire=auto"
    with connect(url) as one:
        async with aconnect(url) as other:
            for native in (True, False, True):
                await replaced(server, native, other)
                one.run(jobs.enqueue_at(queue, mint(), b"p", at_ms=PAST))
                assert await other.run(jobs.promote(queue)) == 1
                assert (one.wire, other.wire) == ((6, 6) if native else (4, 4))
                assert calls_of(server, "emq.schedule", "emq.promote") == [int(native)] * 2


async def test_wire_6_says_so_when_the_server_comes_back_without_the_module(
    start_server: StartServer, queue: str
) -> None:
    server = start_server(module=True)
    with connect(where(server), wire=6) as one:
        async with aconnect(where(server), wire=6) as other:
            await replaced(server, False, other)
            with pytest.raises(NativeMissingError, match="wire=4"):
                one.run(jobs.promote(queue))
            with pytest.raises(NativeMissingError, match="wire=4"):
                await other.run(jobs.promote(queue))
            await replaced(server, True, other)
            assert one.run(jobs.promote(queue)) == await other.run(jobs.promote(queue)) == 0
            assert (one.wire, other.wire) == (6, 6)


def unloaded_in(server: Server, flight: list[Call[Any]], wire: Wire, face: str) -> list[Any]:
    """The outcomes of `flight` on a connection whose server has lost its module since the connect."""

    def unload() -> None:
        with server.client() as client:
            client.execute("MODULE", "UNLOAD", "echomq")

    if face == "blocking":
        with connect(where(server), wire=wire) as conn:
            unload()
            return [*conn.run_many(flight), conn.wire]

    async def run() -> list[Any]:
        async with aconnect(where(server), wire=wire) as conn:
            unload()
            return [*await conn.run_many(flight), conn.wire]

    return asyncio.run(run())


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_a_module_that_goes_away_under_a_connection_leaves_its_calls_to_scripts_in_their_order(
    start_server: StartServer, queue: str, face: str
) -> None:
    server = start_server(module=True, options=["--enable-module-command", "yes"])
    ids = [mint() for _ in range(3)]
    flight: list[Call[Any]] = [
        jobs.enqueue_at(queue, ids[0], b"p", at_ms=PAST),
        append(queue, "."),
        jobs.enqueue_at(queue, ids[0], b"again", at_ms=PAST),
        jobs.promote(queue, 1),
        jobs.enqueue_at(queue, ids[1], b"p", at_ms=PAST),
        jobs.promote(queue, 5),
        jobs.promote(queue, 5),
    ]
    first, _, again, one, second, other, none, wire = unloaded_in(server, flight, "auto", face)
    assert [first.name, again.name, second.name] == ["SCHEDULED", "DUPLICATE", "SCHEDULED"]
    assert (one, other, none) == (1, 1, 0)
    assert wire == 4, "a server that does not know one command that it had has lost the module"


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_on_wire_6_a_module_that_goes_away_is_the_caller_s_error(
    start_server: StartServer, queue: str, face: str
) -> None:
    server = start_server(module=True, options=["--enable-module-command", "yes"])
    length, refused, _ = unloaded_in(server, [append(queue, "."), jobs.promote(queue)], 6, face)
    assert isinstance(refused, ServerError)
    assert "ERR unknown command 'EMQ.PROMOTE'" in str(refused)
    assert "connect with wire='auto' or wire=4" in str(refused)
    assert length == 1


# What a command leaves to its script


@pytest.mark.parametrize("wire", [6, "auto"])
def test_a_due_job_of_a_lane_is_promoted_by_the_script_invisibly(
    start_server: StartServer, queue: str, face: Face, wire: Wire
) -> None:
    server = start_server(module=True)
    job_id = grouped_due(server, queue)
    before = calls_of(server, "evalsha")[0]
    assert face(server, [jobs.promote(queue)], wire) == [1]
    assert calls_of(server, "emq.promote", "evalsha") == [1, before + 1]
    [claimed] = face(server, [jobs.claim(queue)], wire)
    assert (claimed.id, claimed.group) == (job_id, LANE)
    assert face(server, [jobs.delay(queue, job_id, claimed.token, at_ms=PAST)], wire) == [None]
    assert calls_of(server, "emq.delay") == [1]
    assert face(server, [jobs.promote(queue), jobs.promote(queue)], wire) == [1, 0]
    assert calls_of(server, "emq.promote") == [2], "the first of the two goes as the script: another follows it"


def test_a_flight_keeps_the_order_of_what_its_server_left_to_scripts(
    start_server: StartServer, queue: str, face: Face
) -> None:
    server = start_server(module=True)
    ids = [grouped_due(server, queue) for _ in range(3)]
    flat = mint()
    calls: list[Call[Any]] = [
        jobs.enqueue_at(queue, flat, b"p", at_ms=2_000),
        note(queue, "1"),  # answers NOSCRIPT the first time
        jobs.promote(queue, 1),
        append(queue, "."),
        jobs.promote(queue, 2),
        note(queue, "2"),
        jobs.promote(queue, 9),
        jobs.promote(queue, 9),
    ]
    outcomes = face(server, calls)
    assert [outcomes[i] for i in (2, 4, 6, 7)] == [1, 2, 1, 0]
    with server.client() as client:
        assert client.execute("GET", key(queue, "notes")) == b"1.2"
        assert client.execute("ZRANGE", f"emq:{{{queue}}}:g:{LANE}:pending", 0, -1) == [each.encode() for each in ids]
        assert client.execute("ZRANGE", f"emq:{{{queue}}}:pending", 0, -1) == [flat.encode()]


@pytest.mark.parametrize("wire", [4, 6, "auto"])
def test_what_follows_a_call_that_is_left_to_its_script_meets_what_that_has_done(
    start_server: StartServer, queue: str, face: Face, wire: Wire
) -> None:
    server = start_server(module=True)
    grouped_due(server, queue)
    promoted, claimed = face(server, [jobs.promote(queue), jobs.claim(queue)], wire)
    assert (promoted, claimed.group) == (1, LANE)
    put_off, moved = face(
        server,
        [
            jobs.delay(queue, claimed.id, claimed.token, at_ms=2**52),
            jobs.reschedule(queue, claimed.id, at_ms=7),
        ],
        wire,
    )
    assert (put_off, moved) == (None, Rescheduling.MOVED)
    first, second = mint(), mint()
    keyed = [admission.admit(queue, each, b"p", dedup=admission.Dedup("k")) for each in (first, second)]
    _, held = face(server, [keyed[0], jobs.claim(queue)], wire)
    done, admitted = face(server, [jobs.complete_many(queue, [jobs.Finished(first, held.token)]), keyed[1]], wire)
    assert (done, admitted.verdict.name) == ((Completion.RETIRED,), "ADMITTED")


def test_what_follows_a_command_that_a_user_may_not_run_meets_what_its_script_has_done(
    start_server: StartServer, queue: str, face: Face
) -> None:
    server = start_server(module=True)
    with server.client() as client:
        client.execute("ACL", "SETUSER", "default", "-emq.enqueue")
    job_id = mint()
    outcomes = face(server, [jobs.enqueue(queue, job_id, b"p"), admin.update_data(queue, job_id, b"new")], "auto")
    assert outcomes[1] is True


async def test_what_is_submitted_meanwhile_does_not_overtake_the_script(start_server: StartServer, queue: str) -> None:
    server = start_server(module=True)
    job_id = grouped_due(server, queue)
    async with aconnect(where(server), wire=6) as conn:
        claims: list[asyncio.Future[Any]] = []
        plain = conn.submit(append(queue, "."))
        plain.add_done_callback(lambda _: claims.append(conn.submit(jobs.claim(queue))))
        promoted = conn.submit(jobs.promote(queue))
        assert (await plain, await promoted) == (1, 1)
        assert (await claims[0]).id == job_id


def test_a_plan_runs_on_wire_6(start_server: StartServer, queue: str) -> None:
    server = start_server(module=True)
    job_id = grouped_due(server, queue)

    def due_now() -> Any:
        assert (yield jobs.reschedule(queue, job_id, at_ms=1)) is Rescheduling.MOVED
        return (yield jobs.promote(queue))

    with connect(where(server), wire=6) as conn:
        assert conn.run(due_now()) == 1
