"""A cell: a process that a worker hands jobs to, one at a time. This is what runs in it; the worker's side is `pool`.

Whatever a job does to its process, by an exit, a crash or its memory, it does to this one. The worker keeps the job's
lease, its slot and its time, and settles it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from echomq.app.address import Address
from echomq.app.child import Line, LineClosedError
from echomq.app.dispatch import Dispatch
from echomq.app.echomq import EchoMQ
from echomq.app.lifecycle import Lifecycle
from echomq.app.outcomes import said
from echomq.app.patience import Patience
from echomq.app.process import complete, new_runner
from echomq.app.recycle import rss_bytes
from echomq.identity.errors import EchoMQError
from echomq.protocol.replies import Claimed
from echomq.runtime.hand import Held
from echomq.runtime.outcome import brief
from echomq.runtime.runner import Router, Runner


def work(address: Address, line: Line) -> int:
    """The orders of a cell (`child.Orders`)."""
    _first_to_go()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Whoever tells a whole group of processes to end tells the worker, too, and that one knows what is in hand.
        signal.signal(number, _passes)
    try:
        mq = address.load()
        runner = new_runner()
        complete(runner, _Cell(mq, line).serve(), lambda: True)
        runner.close()
    except LineClosedError:
        return 1
    except asyncio.CancelledError:
        with suppress(LineClosedError):
            line.send("broken", "its job has cancelled the tasks that run it")
        return 1
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the user's modules may raise anything)
        why = str(error) if isinstance(error, EchoMQError) else f"{type(error).__name__}: {brief(error)}"
        with suppress(LineClosedError):
            line.send("broken", why)
        return 2
    return 0


class _Cell:
    def __init__(self, mq: EchoMQ, line: Line) -> None:
        self._mq = mq
        self._line = line
        self._queue = ""
        self._held: Held | None = None

    async def serve(self) -> None:
        """Runs what it is handed until it is told to end."""
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        life = Lifecycle()
        for job in self._mq.jobs.values():
            life.needs(job.arguments.needs.values())
        dispatch = Dispatch(self._mq.names, Patience(), life, self._mq.layers.around, alone=True)
        router = Router(lambda claimed: dispatch.route(self._queue, claimed))
        runner = Runner(router, queue="job", threads=1, ended=self._ended)
        await life.start(self._mq.life)
        try:
            self._line.send("ready")
            threading.Thread(target=self._listen, args=(loop, runner, end), name="echomq line", daemon=True).start()
            await end.wait()
        finally:
            await life.stop()
            runner.close()
            dispatch.aside.close()
            await self._mq.aclose()

    def _listen(self, loop: asyncio.AbstractEventLoop, runner: Runner, end: asyncio.Event) -> None:
        while True:
            try:
                word, *rest = self._line.receive()
            except LineClosedError:
                os._exit(1)  # the worker has gone, and with it the lease of what may run here
            match word:
                case "run":
                    loop.call_soon_threadsafe(partial(self._run, runner, *rest))
                case "cancel":
                    loop.call_soon_threadsafe(partial(self._cancel, runner, *rest))
                case _:
                    loop.call_soon_threadsafe(end.set)

    def _run(self, runner: Runner, queue: str, members: list[Any]) -> None:
        self._queue = queue
        self._held = Held(Claimed(*members))
        self._held.on_grant = self._granted
        runner.start(self._held)

    def _granted(self, more_ms: int) -> None:
        with suppress(LineClosedError):
            self._line.send("more", more_ms)

    def _cancel(self, runner: Runner, reason: str) -> None:
        if self._held is not None:
            self._held.cancel(reason)
            runner.interrupt(self._held)

    def _ended(self, held: Held) -> None:
        assert held.outcome is not None
        # Whatever was printed is seen, should this process be killed before the next one.
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        with suppress(LineClosedError):
            self._line.send("done", *said(held.outcome), rss_bytes())


def _passes(*_: object) -> None:
    """A handler, not SIG_IGN: what a job starts does not inherit it."""


def _first_to_go() -> None:
    """Where memory runs out, Linux is to end the job, not its worker."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
