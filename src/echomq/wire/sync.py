"""The blocking connector: threads may share it, and each flight has the connection to itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Literal, TypeVar, Unpack, cast
from weakref import WeakSet

from echomq.identity.minter import minter
from echomq.protocol.backoff import delay_ms
from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.errors import (
    ConnectError,
    DisconnectedError,
    EchoMQError,
    OverloadedError,
    WireError,
)
from echomq.wire import forks, node
from echomq.wire.commands import check_command
from echomq.wire.handshake import FINAL, handshake
from echomq.wire.options import DEFAULT, RECONNECT, Options, OptionWords, Timeout
from echomq.wire.pipe import Entry, lost
from echomq.wire.plans import check_calls, drive_blocking, no_call
from echomq.wire.resp import pack, raw
from echomq.wire.source import Source, prepared, resolve
from echomq.wire.subscriptions import BUFFER, Box
from echomq.wire.synclink import Slot, SyncLink, Waiting
from echomq.wire.syncsubscription import Subscription

T = TypeVar("T")

_FOREVER: Final = float("inf")


class Connector:
    """A connection to one server; opened by `open`, `with` or its first call. Threads may share it.

    `where` is a URL, a source, or None for the embedded server; `InvalidInputError` for what is none of these.
    Each connect holds the server to the fence (protocol §11); the minter's node is leased by it (§1), renewed by its
    calls.

    It reopens by itself after a lost connection and in a forked child. A call that was written when its
    connection died fails with `DisconnectedError(sent=True)` and is never repeated; one that was not written waits up
    to `Options.timeout` seconds for the next connection. All limits here are seconds on this host's monotonic clock.
    """

    def __init__(self, where: str | Source | None = None, options: Options | None = None) -> None:
        self._source = resolve(where)
        self._options = options or Options()
        self._link: SyncLink | None = None
        self._lease: node.NodeLease | None = None
        self._was_connected = False
        self._closing = False
        self._closed = False
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._new_locks()
        forks.watch(self)

    def _new_locks(self) -> None:
        self._turn = threading.Lock()
        self._holder = 0
        self._counting = threading.Lock()
        self._waiting = 0
        self._preparing = threading.Lock()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._link is not None else "not connected"
        return f"<Connector {self._source!r}, {state}>"

    @property
    def wire(self) -> Literal[4, 6] | None:
        """What the connection of this moment speaks: 6 when it sends native commands; None without a connection."""
        link = self._link
        return None if link is None else 6 if link.pipe.native else 4

    # Calls

    def run(self, work: Call[T] | Plan[T], *, timeout: Timeout = DEFAULT) -> T:
        """The answer to a call, or what a plan returns.

        After `timeout` seconds without an answer (None: never) the connection is dropped. Raises `ServerError` for
        what the server refused (protocol §11); for what was not sent, `InvalidInputError`, `PayloadTooLargeError`
        above the server's limit for a string, `OverloadedError` beyond `max_pending`; `ConnectError` or `FenceError`
        when no connection comes about; `DisconnectedError` when one is lost, its `sent` telling whether the call may
        have run; `WireError` in a signal handler that interrupts a call of this thread.
        """
        self._keep_node()
        if isinstance(work, Call):
            return self._one(work, timeout)
        return drive_blocking(work, lambda call: self._one(call, timeout))

    def run_many(self, calls: Iterable[Call[T]], *, timeout: Timeout = DEFAULT) -> list[T | EchoMQError]:
        """One outcome a call, in their order: its answer, or its error (those of `run`) as a value.

        They leave in one flight; more than `max_pending` or the server allows go in several, one after another, with
        up to `timeout` seconds for each `max_pending // 4` calls.
        """
        check_calls(calls)
        self._keep_node()
        slots: list[Slot] = []
        entries: list[Waiting] = []
        for call in calls:
            slot = Slot()
            slots.append(slot)
            try:
                entries.append(self._entry(call, slot))
            except EchoMQError as error:
                slot.value = error
        size = max(1, self._options.max_pending // 4)
        for start in range(0, len(entries), size):
            flight = entries[start : start + size]
            try:
                self._fly(flight, timeout)
            except EchoMQError as error:
                for entry in flight:
                    if entry.sink is not None:
                        entry.sink.value = error
        return [cast("T | EchoMQError", slot.value) for slot in slots]

    def execute(self, *words: Arg, timeout: Timeout = DEFAULT) -> Reply:
        """A raw command's reply; raises as `run` does, and `InvalidInputError` for what no shared connection allows.

        A blocking command needs `timeout=None` and a connector of its own.
        """
        check_command(words)
        self._keep_node()
        return self._one(raw(*words), timeout)

    def mint(self, namespace: str = "JOB") -> str:
        """A new id from the process's minter (protocol §1), by this host's clock; no I/O."""
        return minter.mint(namespace)

    def subscribe(self, *channels: str, buffer: int = BUFFER) -> Subscription:
        """The messages of `channels`, on a connection of their own: enter it to begin.

        At most `buffer` messages wait for the reader, the newest. `InvalidInputError` for a channel without a name,
        `DisconnectedError` on a closed connector.
        """
        if self._closed:
            raise DisconnectedError("not subscribed: the connector is closed", sent=False)
        subscription = Subscription(Box(channels, buffer), self._dial, self._options.timeout)
        self._subscriptions.add(subscription)
        return subscription

    # Flights

    def _one(self, call: Call[T], timeout: Timeout = DEFAULT) -> T:
        slot = Slot()
        self._fly([self._entry(call, slot)], timeout)
        if isinstance(slot.value, EchoMQError):
            raise slot.value
        return cast("T", slot.value)

    def _entry(self, call: Call[T], slot: Slot) -> Waiting:
        link = self._link
        try:
            native = link is not None and call.script in link.pipe.native
            packed = pack(call, native=native)
        except AttributeError:
            if isinstance(call, Call):
                raise
            raise no_call(call) from None
        return Entry(call, slot, packed, native=native)

    def _fly(self, entries: list[Waiting], timeout: Timeout) -> None:
        """Fill the slots of `entries`; raises what keeps all of them from being sent."""
        seconds = self._options.seconds(timeout)
        with self._counting:
            if self._waiting and self._waiting + len(entries) > self._options.max_pending:
                raise OverloadedError(
                    f"{entries[0].call.verb}: {self._waiting} calls of other threads already wait, max_pending is "
                    f"{self._options.max_pending}; the call was not sent"
                )
            self._waiting += len(entries)
        try:
            self._take_turn(seconds)
            try:
                self._exchange(self._ready(), entries, seconds)
            finally:
                self._holder = 0
                self._turn.release()
        finally:
            with self._counting:
                self._waiting -= len(entries)

    def _take_turn(self, seconds: float | None) -> None:
        if self._holder == threading.get_ident():
            raise WireError("this thread already waits for an answer here; a signal handler needs its own connector")
        if not self._turn.acquire(timeout=-1 if seconds is None else seconds):
            raise DisconnectedError(f"not sent: another thread's call has lasted over {seconds:g} s", sent=False)
        self._holder = threading.get_ident()

    def _exchange(self, link: SyncLink, entries: list[Waiting], seconds: float | None) -> None:
        try:
            link.exchange(entries, _FOREVER if seconds is None else time.monotonic() + seconds)
        except TimeoutError:
            reason = f"no answer within {seconds:g} s, the server may be frozen"
        except OSError as error:
            reason = error.strerror or str(error)
        except BaseException:
            self._link = None
            raise
        else:
            return
        self._link = None
        never = link.unsent()
        for entry in entries:
            if entry.sink is not None and not entry.sink.done():
                entry.sink.value = lost(entry.call, link.target.address, reason, sent=entry not in never)

    # Life

    def open(self) -> None:
        """Connect now, by one try: `ConnectError` or `FenceError` says what stands in the way."""
        self._take_turn(self._options.call_timeout)
        try:
            self._ready(patient=False)
        finally:
            self._holder = 0
            self._turn.release()
        self._keep_node()

    def _ready(self, *, patient: bool = True) -> SyncLink:
        """The connection, made again if it was lost; if `patient`, tried for up to `timeout` seconds."""
        if self._closed:
            raise DisconnectedError("not sent: the connector is closed", sent=False)
        if self._link is not None:
            if self._link.alive():
                return self._link
            self._link.close()
            self._link = None
        if self._closing:
            raise DisconnectedError("not sent: the connector is closing", sent=False)
        until = time.monotonic() + self._options.timeout
        failures = 0
        while self._link is None:
            try:
                self._link = self._dial()
            except FINAL:
                raise
            except ConnectError as error:
                failures += 1
                pause = delay_ms(RECONNECT, failures) / 1_000
                if not patient:
                    raise
                if time.monotonic() + pause >= until:
                    if self._was_connected:
                        raise DisconnectedError(f"not sent: {error}", sent=False) from error
                    raise
                time.sleep(pause)
        self._was_connected = True
        if self._options.lease_node and self._lease is None:
            self._lease = node.join(self._link.target, self)
        return self._link

    def _dial(self) -> SyncLink:
        with self._preparing:
            target = prepared(self._source)
        options = self._options
        steps = handshake(target, name=options.name, fence=options.fence, wire=options.wire)
        return SyncLink(target, steps, options)

    def _keep_node(self) -> None:
        if self._lease is not None and self._lease.wait_s() == 0:
            drive_blocking(self._lease.keep(), self._one)

    def close(self) -> None:
        """Take no more calls, wait up to `timeout` for the one under way, and close; again does nothing."""
        if self._closed:
            return
        self._closing = True
        lease, self._lease = self._lease, None
        if lease is not None and node.leave(lease, self):
            drive_blocking(lease.give_back(), lambda call: self._one(call, self._options.timeout))
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.close()
        if not self._turn.acquire(timeout=self._options.timeout):
            if self._link is not None:
                self._link.interrupt()
            self._turn.acquire()
        if self._link is not None:
            self._link.close()
            self._link = None
        self._turn.release()
        self._source.release()

    def __enter__(self) -> Connector:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork(self) -> None:
        """Leave the parent its connection; the child's first call opens one of its own."""
        if self._link is not None:
            self._link.close()
        self._link = None
        self._lease = None
        self._new_locks()


def connect(where: str | Source | None = None, **options: Unpack[OptionWords]) -> Connector:
    """An open `Connector`, closed by `with` or `close`.

    `where` is a URL (see `echomq.wire.url`), a source, or None for the embedded server; `options` are those of
    `Options`, times in seconds. It is one try of at most `timeout` seconds, without an embedded server's start.
    Raises `InvalidInputError` for a URL or an option that is none, `ConnectError` (for the embedded server
    `EmbeddedServerError`) when there is no connection, `FenceError` when the server belongs to another version of the
    protocol (§11).
    """
    connector = Connector(where, Options(**options))
    try:
        connector.open()
    except BaseException:
        connector.close()
        raise
    return connector
