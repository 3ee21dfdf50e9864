"""A program as a process of its own: run to its end, or `echomq worker` with its tasks, what it says, how it ends."""

from __future__ import annotations

import os
import queue as queues
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import echomq
from support.embedded import alive
from support.servers import Server

SOURCE = str(Path(echomq.__file__).parents[1])

NOTING = """
import asyncio, os, sys, time
from datetime import timedelta
from pathlib import Path
from echomq import EchoMQ

mq = EchoMQ(os.environ["ECHOMQ_URL"], default_queue=os.environ["QUEUE"])
here = Path(__file__).parent

def note(what, number):
    with (here / what).open("a") as file:
        file.write(f"{number} {os.getpid()}\\n")
"""
"""How a program of tasks begins that notes, in files beside it, which of its jobs ran in which process."""


def noted(path: Path) -> list[tuple[int, int]]:
    """The numbers of jobs that such a program has noted in a file, and the processes that they ran in."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), int(pid)) for number, pid in map(str.split, lines)]


def python(*words: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python WORDS`, in that folder and to its end, with the package under test."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": SOURCE} | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def cli(*words: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """`echomq WORDS`, the same."""
    return python("-m", "echomq.cli", *words, folder=folder, **environment)


class Process:
    """`echomq worker tasks:mq` in `folder` with `tasks` in its `tasks.py`; or another `command`."""

    def __init__(
        self,
        folder: Path,
        tasks: str,
        server: Server,
        queue: str,
        *options: str,
        url: str | None = None,
        home: str = "",
        command: tuple[str, ...] = ("-m", "echomq.cli", "worker", "tasks:mq"),
    ) -> None:
        (folder / "tasks.py").write_text(tasks)
        self.process = subprocess.Popen(
            [sys.executable, *command, *options],
            cwd=folder,
            env=os.environ
            | {"ECHOMQ_URL": server.url if url is None else url, "QUEUE": queue, "PYTHONPATH": SOURCE}
            | ({"ECHOMQ_HOME": home} if home else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: queues.Queue[str] = queues.Queue()
        self.log = ""
        self._readers = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    def line(self) -> str:
        """The next line on its stdout."""
        try:
            return self.lines.get(timeout=30)
        except queues.Empty:
            raise AssertionError(f"it says nothing more:\n{self.log}") from None

    def expect(self, line: str) -> None:
        assert self.line() == line, self.log

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def workers(self) -> list[int]:
        """The processes that its supervisor has started, by its log."""
        return [int(pid) for pid in re.findall(r"worker \d+ is process (\d+)", self.log)]

    def wait(self, seconds: float = 30) -> int:
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join()
        return code

    def close(self) -> None:
        self.process.kill()
        self.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


Start = Callable[..., Process]


@contextmanager
def starting(folder: Path, tasks: str, server: Server, queue: str, second: signal.Signals) -> Iterator[Start]:
    """Starts programs, with options and `tasks=` of their own; all are told to end, twice, and leave no worker."""
    started: list[Process] = []

    def start(*options: str, tasks: str = tasks) -> Process:
        started.append(Process(folder, tasks, server, queue, *options))
        return started[-1]

    yield start
    for each in started:
        each.signal(signal.SIGTERM)
        each.signal(second)
        try:
            each.wait()
        finally:
            each.close()
            print(each.log)  # shown when the test has failed
        assert not any(map(alive, each.workers()))
