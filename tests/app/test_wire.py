"""The wire of an app: what its server has, unless the program, the URL or the command line says otherwise."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echomq import EchoMQ, Worker
from echomq.errors import InvalidInputError, NativeMissingError
from echomq.wire import Wire
from support.desk import until
from support.program import cli
from support.servers import Server

StartServer = Callable[..., Server]


def where(server: Server, wire: str = "") -> str:
    return f"unix://{server.socket_path}{wire and '?wire='}{wire}"


def native_calls(server: Server) -> dict[str, int]:
    """The native commands that were called, and how often."""
    with server.client() as client:
        calls = client.calls()
    return {name.removeprefix("emq."): count for name, count in calls.items() if name.startswith("emq.")}


@pytest.mark.parametrize("native", [True, False])
async def test_an_app_and_its_worker_use_what_the_server_has(
    start_server: StartServer, queue: str, native: bool
) -> None:
    server = start_server(module=native)
    mq = EchoMQ(where(server))
    seen: list[str] = []

    @mq.job(queue=queue, name="note")
    async def note(word: str) -> None:
        seen.append(word)

    await note.after(milliseconds=1).aenqueue("later")
    await note.options(lane="acme").after(milliseconds=1).aenqueue("of a lane")
    assert (await mq.aconnection()).wire == (6 if native else 4)
    assert (await asyncio.to_thread(mq.connection)).wire == (6 if native else 4)
    worker = Worker(mq)
    serving = asyncio.ensure_future(worker.serve())
    await until(lambda: len(seen) == 2, "both jobs")
    worker.stop()
    await serving
    await mq.aclose()
    assert sorted(seen) == ["later", "of a lane"]
    assert bool(native_calls(server).get("promote")) is native


@pytest.mark.parametrize(
    ("in_url", "given", "wire"),
    [("", None, 6), ("4", None, 4), ("6", None, 6), ("6", 4, 4), ("4", "auto", 6), ("", 4, 4)],
)
def test_the_program_goes_before_the_url_and_both_before_auto(
    start_server: StartServer, in_url: str, given: Wire | None, wire: int
) -> None:
    server = start_server(module=True)
    with EchoMQ(where(server, in_url), wire=given) as mq:
        assert mq.connection().wire == wire
        assert mq.dial().wire == (given or (int(in_url) if in_url else "auto"))
        with mq.dial().connect("test") as conn:
            assert conn.wire == wire


def test_another_wire_or_server_can_be_named_before_anything_is_sent(start_server: StartServer) -> None:
    server, bare = start_server(module=True), start_server(module=False)
    with EchoMQ(where(server), wire=4) as mq:
        mq.use_server(wire=6)
        assert mq.connection().wire == 6
        mq.use_server(where(bare), wire="auto")
        assert mq.connection().wire == 4
        mq.use_server(wire=6)
        with pytest.raises(NativeMissingError, match="wire=4"):
            mq.connection()
        mq.use_server(where(server))
        assert mq.connection().wire == 6


def test_a_wire_that_is_none_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidInputError, match=r"wire=5: 4 \(scripts\), 6"):
        EchoMQ("valkey://h", wire=5)  # type: ignore[arg-type]


def test_a_worker_takes_the_wire_from_its_command_line(start_server: StartServer, queue: str, tmp_path: Path) -> None:
    server, bare = start_server(module=True), start_server(module=False)
    (tmp_path / "tasks.py").write_text(
        f"from echomq import EchoMQ\nmq = EchoMQ(wire=4)\n@mq.job(queue={queue!r})\ndef note(word: str) -> None: ...\n"
    )

    def worker(*words: str) -> subprocess.CompletedProcess[str]:
        return cli("worker", "tasks:mq", "--burst", *words, folder=tmp_path, ECHOMQ_URL="")

    done = worker("--url", where(server))
    assert (done.returncode, native_calls(server)) == (0, {}), done.stderr
    with EchoMQ(where(server), wire=4) as mq:
        mq.job(queue=queue, name="tasks.note")(print).after(milliseconds=1).enqueue("x")
    done = worker("--url", where(server), "--wire", "6")
    assert done.returncode == 0, done.stderr
    assert native_calls(server).get("promote")
    done = worker("--url", where(bare), "--wire", "6")
    assert done.returncode == 1
    assert "no native commands" in done.stderr
    assert "Traceback" not in done.stderr
    done = worker("--wire", "5")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--wire 5: 4 (scripts), 6 (native commands) or auto is allowed" in done.stderr
