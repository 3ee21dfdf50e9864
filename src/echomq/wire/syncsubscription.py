"""Messages of channels for threads that may block.

It has a connection of its own: a thread that waits for messages would otherwise take turns with those that run
calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType

from echomq.protocol.backoff import delay_ms
from echomq.protocol.errors import ConnectError, EchoMQError
from echomq.wire import forks
from echomq.wire.handshake import FINAL
from echomq.wire.options import RECONNECT
from echomq.wire.pipe import Entry
from echomq.wire.resp import pack, raw
from echomq.wire.subscriptions import Box, Channels, Message
from echomq.wire.synclink import Slot, SyncLink

_FOREVER = float("inf")


class Subscription:
    """Messages as they come: enter it, then iterate or `get`; used by one thread at a time.

    It comes back by itself after a lost connection, and raises when the server refuses it for good.
    """

    def __init__(self, box: Box, dial: Callable[[], SyncLink], timeout: float) -> None:
        self._box = box
        self._dial = dial
        self._timeout = timeout
        self._link: SyncLink | None = None
        self._channels = Channels()
        self._channels.add(box)
        self._failures = 0
        self._was_connected = False
        forks.watch(self)

    @property
    def dropped(self) -> int:
        """How many messages this reader was too slow for."""
        return self._box.dropped

    @property
    def restored(self) -> int:
        """How often the subscription was restored after a reconnect; messages may be missing there."""
        return self._box.restored

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None after `timeout` seconds without one (None: never) or when it has ended."""
        box = self._box
        deadline = _FOREVER if timeout is None else time.monotonic() + timeout
        while not box.messages and not box.ended:
            link = self._link
            try:
                if link is None:
                    link = self._link = self._subscribe()
                for push in link.listen(deadline):
                    self._channels.deliver(push)
            except TimeoutError:
                return None
            except OSError:
                self._link = None
            except FINAL:
                raise
            except ConnectError:
                self._failures += 1
                pause = delay_ms(RECONNECT, self._failures) / 1_000
                if time.monotonic() + pause > deadline:
                    time.sleep(max(0.0, deadline - time.monotonic()))
                    return None
                time.sleep(pause)
        return box.messages.popleft() if box.messages else None

    def _subscribe(self) -> SyncLink:
        link = self._dial()
        deadline = time.monotonic() + self._timeout
        entries = [
            Entry(call, Slot(), pack(call)) for call in (raw("SUBSCRIBE", name) for name in self._channels.names())
        ]
        try:
            link.exchange(entries, deadline)
        except TimeoutError as error:
            raise ConnectError(f"{link.target.address} does not answer SUBSCRIBE") from error
        for entry in entries:
            if entry.sink is not None and isinstance(entry.sink.value, EchoMQError):
                link.close()
                raise entry.sink.value
        if self._was_connected:
            self._box.restored += 1
        self._was_connected = True
        self._failures = 0
        return link

    def close(self) -> None:
        """End it; a thread that waits in `get` returns."""
        self._box.end()
        if self._link is not None:
            self._link.interrupt()

    def __enter__(self) -> Subscription:
        if self._link is None:
            self._link = self._subscribe()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._box.end()
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message

    def after_fork(self) -> None:
        """Leave the parent its connection; the child subscribes anew."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
