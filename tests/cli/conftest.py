"""The operators' commands at work: the program in this process, on the run's server, and an eye of its own on it."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import typer

from echomq.cli import program
from echomq.identity.minter import mint
from echomq.protocol import admission, jobs, lanes
from echomq.protocol.keys import Keys, keys
from echomq.wire import Connector, connect
from support.servers import Server


@dataclass(frozen=True, slots=True)
class Said:
    """How the program ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        assert self.code in (0, 1, 3, 4), self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """The lines on stdout."""
        return self.out.splitlines()


Ops = Callable[..., Said]

_build = program.build
_command = cache(lambda only: typer.main.get_command(_build(only)))
"""The program with a command, put together once: that takes longer than most of what it is asked here."""


@pytest.fixture
def ops(server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ops:
    """Runs `echomq WORDS`, with `answer` on its stdin; neither stream is a terminal."""
    monkeypatch.setenv("ECHOMQ_URL", server.url)
    monkeypatch.setattr(program, "build", _command)

    def ops(*words: str, answer: str = "") -> Said:
        monkeypatch.setattr(sys, "argv", ["echomq", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            program.run()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "\x1b" not in said.out + said.err, "no control codes where nobody looks"
        code = ended.value.code
        return Said(code if isinstance(code, int) else int(bool(code)), said.out, said.err)

    return ops


class Shop:
    """A queue that is filled by verbs and looked at with plain commands."""

    def __init__(self, conn: Connector, raw: Any, queue: str) -> None:
        self.conn = conn
        self.raw = raw
        self.queue = queue
        self.keys: Keys = keys(queue)
        self.run = conn.run

    def put(self, name: str = "send", *args: object, **kwargs: object) -> str:
        """A flat job."""
        job_id = mint()
        self.run(jobs.enqueue(self.queue, job_id, envelope(name, *args, **kwargs)))
        return job_id

    def later(self, delay_ms: int = 100_000, name: str = "later") -> str:
        """A job for later."""
        job_id = mint()
        self.run(jobs.enqueue_in(self.queue, job_id, envelope(name), delay_ms=delay_ms))
        return job_id

    def overdue(self, name: str = "overdue") -> str:
        """A job whose time has come."""
        job_id = mint()
        self.run(jobs.enqueue_at(self.queue, job_id, envelope(name), at_ms=0))
        return job_id

    def lane(self, text: str, name: str = "tenant") -> str:
        """A job in a lane."""
        job_id = mint()
        call = admission.admit(self.queue, job_id, envelope(name), group=lanes.lane_id(text), lane_text=text)
        self.run(call)
        return job_id

    def hold(self, name: str = "held") -> tuple[str, str]:
        """A job in hand, and its token."""
        self.put(name)
        job = self.run(jobs.claim(self.queue, lease_ms=100_000))
        assert job is not None
        return job.id, job.token

    def dead(self, name: str = "boom", error: str = "TimeoutError: no answer") -> str:
        """A dead job; the queue must hold nothing else that could be claimed."""
        job_id, token = self.hold(name)
        self.run(jobs.retry(self.queue, job_id, token, delay_ms=0, max_attempts=1, error=error))
        return job_id

    def row(self, job_id: str) -> dict[str, str]:
        """The row of a job."""
        flat = [each.decode() for each in self.raw.execute("HGETALL", self.keys.job(job_id))]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def members(self, key: str) -> list[str]:
        """The members of a sorted set."""
        return [each.decode() for each in self.raw.execute("ZRANGE", key, 0, -1)]

    def meta(self) -> dict[str, str]:
        """The queue's settings."""
        flat = [each.decode() for each in self.raw.execute("HGETALL", self.keys.meta)]
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def calls(self) -> dict[str, int]:
        """How often each command has run since `forget_calls`."""
        return self.raw.calls()

    def forget_calls(self) -> None:
        """Begins to count anew."""
        self.raw.execute("CONFIG", "RESETSTAT")


def envelope(name: str, *args: object, **kwargs: object) -> str:
    """The payload of an app job."""
    return json.dumps({"v": 1, "job": name, "args": args, "kwargs": kwargs})


@pytest.fixture
def open_shop(server: Server) -> Iterator[Callable[[str], Shop]]:
    """Opens shops on the run's server, one a queue."""
    with connect(server.url, name="shop") as conn, server.client() as raw:
        yield lambda queue: Shop(conn, raw, queue)


@pytest.fixture
def shop(open_shop: Callable[[str], Shop], queue: str) -> Shop:
    """A queue of the test's own."""
    return open_shop(queue)
