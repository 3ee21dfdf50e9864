"""The cells of a worker: processes for jobs that are to have one, and for those that have lapsed before.

A job with `process=True` gets one of a few that are used again. A job whose lease has lapsed, which may have killed its
worker, gets a fresh one for itself, and nothing else is in hand there when it does so again. Either way the worker sees
a process die at once, and the lapse is counted (`Lapsed`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from echomq.app.address import Address
from echomq.app.child import ended, framed, start, unframed
from echomq.app.outcomes import heard
from echomq.identity.errors import EchoMQError
from echomq.protocol.replies import Claimed
from echomq.runtime.outcome import Done, Outcome

log: Final = logging.getLogger("echomq.worker")

CANCEL_S: Final = 0.5
"""How long a job that is told to end may take before its process is killed: less than a drain waits for it."""

_FAREWELL_S: Final = 1.0
_LAST_WORDS_S: Final = 0.2


class CellDiedError(EchoMQError):
    """The process of a job has ended, and the job has not."""


class CellUnavailableError(EchoMQError):
    """No process can be started for a job, or none that finds the app."""


def _nobody(_: int) -> None:
    pass


def _moved(limit: asyncio.Timeout, granted: Callable[[int], None], more_ms: int) -> None:
    granted(more_ms)
    if (when := limit.when()) is not None:
        limit.reschedule(when + more_ms / 1_000)


class Cell:
    """One process, and what is started in it, which ends with it. To be used on the loop that it was made on."""

    def __init__(self, address: Address) -> None:
        # Imported when used: what runs in a cell dispatches jobs as a worker does, and a worker dispatches to cells.
        from echomq.app.cell import work

        self._loop = asyncio.get_running_loop()
        self.jobs = 0
        self.rss = 0
        self._died: asyncio.Future[int] = self._loop.create_future()
        try:
            process, self._socket = start(partial(work, address), f"echomq job {address.target}", signal.SIGKILL)
        except OSError as error:
            raise CellUnavailableError(f"no process can be started: {error}") from error
        self._process = process
        self._reaping = threading.Lock()
        threading.Thread(target=self._wait, args=(process,), name="echomq cell", daemon=True).start()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[list[Any] | None] | None = None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    async def ready(self) -> None:
        """Returns when it has imported the app; `CellUnavailableError` when it cannot."""
        if self._reader is not None:
            return
        self._socket.setblocking(False)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        try:
            word, *rest = await self._frame()
        except CellDiedError as error:
            raise CellUnavailableError(f"its process ended while it imported the app: {error}") from error
        if word != "ready":
            raise CellUnavailableError(f"its process cannot begin: {' '.join(map(str, rest))}")

    async def run(self, queue: str, claimed: Claimed, granted: Callable[[int], None]) -> Outcome:
        """What becomes of a job; `CellDiedError` when the process has died. `granted` hears of time it is given."""
        self.jobs += 1
        self._send("run", queue, tuple(claimed))
        return await self._outcome(granted)

    async def cancel(self) -> Outcome | None:
        """Tells the job to end, waits a little, and kills the process. What became of it, if it has said so."""
        try:
            self._send("cancel", "the job is to end")
            async with asyncio.timeout(CANCEL_S):
                return await self._outcome()
        except (TimeoutError, CellDiedError):
            return None
        finally:
            self.kill()

    async def end(self) -> None:
        """Lets an idle process end what the app has begun in it, and kills it if that takes long."""
        try:
            self._send("end")
            await asyncio.wait((self._died,), timeout=_FAREWELL_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the process here and now, with what its jobs have started in its group."""
        with self._reaping:
            if self._process.returncode is None:
                _end_group(self._process.pid)
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return not self._died.done()

    async def _outcome(self, granted: Callable[[int], None] = _nobody) -> Outcome:
        word, *rest = await self._frame()
        while word == "more":
            granted(*rest)
            word, *rest = await self._frame()
        if word != "done":
            self.kill()
            raise CellDiedError(f"its process gave up: {' '.join(map(str, rest))}")
        name, members, self.rss = rest
        return heard(name, members)

    def _send(self, *words: object) -> None:
        assert self._writer is not None
        self._writer.write(framed(words))

    async def _frame(self) -> list[Any]:
        """The next frame; `CellDiedError` when there is none to come, and no process."""
        # It goes on where somebody stops waiting for it, so that nothing is lost.
        reading = self._reading = self._reading or asyncio.ensure_future(self._read())
        await asyncio.wait((reading, self._died), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            # What it has said before it died may still be on its way. A child of its own may hold the line open.
            await asyncio.wait((reading,), timeout=_LAST_WORDS_S)
        if reading.done() and not reading.cancelled() and (answer := reading.result()) is not None:
            self._reading = None
            return answer
        self.kill()  # it has cut its line, and cannot be spoken to
        raise CellDiedError(f"its process ended with {ended(await asyncio.shield(self._died))}")

    async def _read(self) -> list[Any] | None:
        assert self._reader is not None
        try:
            head = await self._reader.readexactly(4)
            return unframed(await self._reader.readexactly(int.from_bytes(head, "big")))
        except (OSError, EOFError):
            return None

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # somebody else has waited for it
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
                with self._reaping:
                    # Until it is waited for, its number is that of its group, and of nothing else.
                    _end_group(process.pid)
                    process.wait()
        code = process.wait()
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        if not self._died.done():
            self._died.set_result(code)


def _end_group(pid: int) -> None:
    """Ends a process that is not waited for yet, and all that is left of the group that it was made to lead."""
    for kill in (os.killpg, os.kill):  # its job may have put it into another one
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


class Pool:
    """At most `size` processes that are used again, and as many fresh ones beside them.

    `worn(cell)` says whether a process has done enough, and is to be replaced.
    """

    def __init__(self, address: Address, size: int, worn: Callable[[Cell], bool]) -> None:
        self._address = address
        self._worn = worn
        self._idle: list[Cell] = []
        self._all: set[Cell] = set()
        self._ending: set[asyncio.Future[None]] = set()
        self._killed = False
        self._turns = asyncio.Semaphore(size)
        self._fresh_turns = asyncio.Semaphore(size)

    async def run(
        self,
        queue: str,
        claimed: Claimed,
        *,
        fresh: bool,
        limit_s: float | None,
        granted: Callable[[int], None] = _nobody,
    ) -> Outcome:
        """Runs a job in a process, in a fresh one of its own if so wanted, and says what became of it.

        `CellDiedError` when that has died, `CellUnavailableError` when there can be none, `TimeoutError` when the job
        was not done `limit_s` seconds after its start, and its process was killed; `granted` is called with what it is
        given beyond that. Cancelled, it ends the job.
        """
        async with self._fresh_turns if fresh else self._turns:
            one = await self._begin(fresh=fresh)
            try:
                async with asyncio.timeout(limit_s) as limit:
                    outcome = await one.run(queue, claimed, partial(_moved, limit, granted))
            except asyncio.CancelledError:
                said = await one.cancel()
                self._all.discard(one)
                if isinstance(said, Done):
                    return said  # it was done before it heard of it
                raise
            except BaseException:
                one.kill()
                self._all.discard(one)
                if self._killed:
                    await asyncio.Event().wait()  # it did not die by itself; the job is about to be handed back
                raise
            if fresh or self._worn(one):
                self._ends(one)
            else:
                self._idle.append(one)
            return outcome

    async def _begin(self, *, fresh: bool) -> Cell:
        while self._idle and not fresh:
            one = self._idle.pop()
            if one.alive:
                return one
            self._all.discard(one)
            one.kill()
        one = Cell(self._address)
        self._all.add(one)
        try:
            await one.ready()
        except BaseException:
            self._all.discard(one)
            one.kill()
            raise
        return one

    def _ends(self, one: Cell) -> None:
        ending = asyncio.ensure_future(one.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        ending.add_done_callback(lambda _: self._all.discard(one))

    def kill(self) -> None:
        """Ends every process here and now, whatever runs in it."""
        self._killed = True
        for one in tuple(self._all):
            one.kill()

    async def close(self) -> None:
        """Ends the idle processes; to be called when no job runs in any."""
        idle, self._idle = self._idle, []
        for one in idle:
            self._ends(one)
        try:
            if self._ending:
                await asyncio.wait(self._ending)
        finally:
            self.kill()
