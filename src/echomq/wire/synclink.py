"""One connection of the blocking face: a socket with its pipe. It never reconnects, and is used by one thread."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeAlias, cast

from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import ConnectError
from echomq.wire.handshake import Batch, Handshake, Outcome, RefusedError
from echomq.wire.options import Options
from echomq.wire.pipe import Entry, Pipe, outcome
from echomq.wire.resp import pack
from echomq.wire.sockets import reach
from echomq.wire.url import Target

_CHUNK: Final = 1 << 16
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_FOREVER: Final = float("inf")

PENDING: Final = object()


class Slot:
    """Where one call's outcome lands."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: object = PENDING

    def done(self) -> bool:
        """Whether the outcome is there."""
        return self.value is not PENDING


Waiting: TypeAlias = Entry[Slot]


class SyncLink:
    """A connected socket after its handshake."""

    def __init__(self, target: Target, steps: Handshake, options: Options) -> None:
        self.target = target
        self.pipe: Pipe[Slot] = Pipe()
        self._out = memoryview(b"")
        self._unsent: deque[Waiting] = deque()
        self._deaf = False
        self._said = ""
        self._deadline = time.monotonic() + options.timeout
        address = target.address
        try:
            self._sock = reach(target, options.tls, max(0.001, self._deadline - time.monotonic()))
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(f"{address} is not trusted: {error.verify_message}") from error
        except TimeoutError as error:
            hint = " (does it speak TLS?)" if options.tls or target.tls else ""
            raise ConnectError(f"cannot connect to {address}: not within {options.timeout:g} s{hint}") from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error.strerror or error}") from error
        try:
            self._sock.setblocking(False)
            self._poll = select.poll()
            self._watched = select.POLLIN
            self._poll.register(self._sock, self._watched)
            self._greet(steps)
        except TimeoutError as error:
            self.close()
            state = f"it says: {self._said}" if self._said else "no answer"
            raise ConnectError(f"cannot connect to {address}: not within {options.timeout:g} s ({state})") from error
        except OSError as error:
            self.close()
            raise ConnectError(f"cannot connect to {address}: {error.strerror or error}") from error
        except BaseException:
            self.close()
            raise

    def _greet(self, steps: Handshake) -> None:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Batch):
                    step = steps.send(self._ask(step.calls))
                else:
                    self._said = step.reason
                    if time.monotonic() + step.seconds > self._deadline:
                        raise TimeoutError
                    time.sleep(step.seconds)
                    step = steps.send([])
        except StopIteration as stop:
            self.pipe.agree(stop.value)

    def _ask(self, calls: Iterable[Call[Reply]]) -> list[Outcome]:
        entries = [Entry(call, Slot(), pack(call)) for call in calls]
        self.exchange(entries, self._deadline)
        return [cast("Outcome", entry.sink.value) for entry in entries if entry.sink is not None]

    def exchange(self, entries: list[Waiting], deadline: float) -> None:
        """Send `entries`, at once if the server's limits allow, and read until each has its outcome.

        Raises `OSError` (`TimeoutError` at the deadline) and leaves the other slots pending; then, as after any
        other exception, the connection is closed.
        """
        unsent = self._unsent = deque(entries)
        left = len(unsent)
        try:
            while True:
                if not self._out and (unsent or self.pipe.missing) and not self._deaf:
                    self._out = memoryview(self.pipe.take(unsent))
                    left -= self._refuse()
                if not left:
                    return
                if self._out:
                    self._send()
                left -= self._settle(self._receive(deadline))
        except BaseException:
            self.close()
            raise

    def unsent(self) -> set[Waiting]:
        """After a failed exchange: the calls that surely never ran."""
        never = {*self.pipe.missing, *self._unsent}
        room = len(self._out)
        for entry in reversed(self.pipe.sent):
            room -= len(entry.packed)
            if room < 0:
                break
            never.add(entry)
        return never

    def listen(self, deadline: float) -> list[list[Reply]]:
        """What the server pushes next; `TimeoutError` at the deadline."""
        try:
            while not self.pipe.pushes:
                self._settle(self._receive(deadline))
        except TimeoutError:
            raise
        except BaseException:
            self.close()
            raise
        pushes, self.pipe.pushes = self.pipe.pushes, []
        return pushes

    def alive(self) -> bool:
        """Whether an idle connection is still there."""
        if not self._poll.poll(0):
            return True
        try:
            self._settle(self._read())
        except OSError:
            return False
        return True

    def interrupt(self) -> None:
        """Make a thread that waits on this connection see its end."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _refuse(self) -> int:
        refused, self.pipe.refused = self.pipe.refused, []
        for entry, error in refused:
            if entry.sink is not None:
                entry.sink.value = error
        return len(refused)

    def _settle(self, data: bytes) -> int:
        settled = 0
        for entry, answer in self.pipe.feed(data):
            if entry.sink is not None:
                entry.sink.value = outcome(entry.call, answer)
                settled += 1
        if self.pipe.broken:
            raise ConnectionError(self.pipe.broken)
        return settled

    def _send(self) -> None:
        try:
            sent = self._sock.send(self._out[: _CHUNK * 4])
        except _NOT_NOW:
            return
        except (BrokenPipeError, ConnectionResetError):
            # Its last words, such as being full, may still be there to read.
            self._out = self._out[:0]
            self._deaf = True
            return
        self._out = self._out[sent:]

    def _receive(self, deadline: float) -> bytes:
        """What the socket has, waiting for it; nothing when it only became writable."""
        if not (isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()):
            self._wait(deadline)
        return self._read()

    def _read(self) -> bytes:
        try:
            data = self._sock.recv(_CHUNK)
        except _NOT_NOW:
            return b""
        if not data:
            raise ConnectionError("the server closed it")
        return data

    def _wait(self, deadline: float) -> None:
        events = select.POLLIN | select.POLLOUT if self._out else select.POLLIN
        if events != self._watched:
            self._poll.modify(self._sock, events)
            self._watched = events
        if deadline == _FOREVER:
            self._poll.poll()
            return
        left = deadline - time.monotonic()
        if left <= 0 or not self._poll.poll(left * 1_000):
            raise TimeoutError
