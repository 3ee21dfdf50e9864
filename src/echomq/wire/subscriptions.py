"""Messages of channels, for both faces: a bounded box a subscriber, filled by what the server pushes.

A box that is full drops its oldest message and counts it: a slow reader sees the present, not the past, and never
makes the connector hold memory without end. Messages are at most once; `restored` counts the reconnects, during
which some may have been missed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Reply
from echomq.protocol.errors import EchoMQError

BUFFER: Final = 1_000
"""Messages that one subscriber may be behind."""


@dataclass(frozen=True, slots=True)
class Message:
    """What was published to a channel."""

    channel: str
    data: bytes


class Box:
    """One subscriber's messages, and what became of those it was too slow for."""

    def __init__(self, channels: tuple[str, ...], buffer: int = BUFFER) -> None:
        if not channels:
            raise InvalidInputError("subscribe to one channel or more")
        for channel in channels:
            if not isinstance(channel, str) or not channel:
                raise InvalidInputError(f"channel {channel!r}: a text that is not empty is allowed")
        if buffer < 1:
            raise InvalidInputError(f"buffer={buffer!r}: room for 1 message or more is needed")
        self.channels = tuple(dict.fromkeys(channels))
        self.messages: deque[Message] = deque(maxlen=buffer)
        self.dropped = 0
        self.restored = 0
        self.attached = False
        self.ended = False
        self.error: EchoMQError | None = None
        self.awake: Callable[[], None] = _nothing

    def put(self, message: Message) -> None:
        """Keep `message`, dropping the oldest when there is no room."""
        if len(self.messages) == self.messages.maxlen:
            self.dropped += 1
        self.messages.append(message)
        self.awake()

    def end(self, error: EchoMQError | None = None) -> None:
        """No message will come any more, because of `error` or of a close."""
        if not self.ended:
            self.ended = True
            self.error = error
            self.awake()


class Channels:
    """Which boxes want which channels of one connection."""

    def __init__(self) -> None:
        self._boxes: dict[bytes, list[Box]] = {}

    def __bool__(self) -> bool:
        return bool(self._boxes)

    def names(self) -> tuple[bytes, ...]:
        """Every channel that a connection has to be subscribed to."""
        return tuple(self._boxes)

    def boxes(self) -> tuple[Box, ...]:
        """Every box, once."""
        return tuple({id(box): box for boxes in self._boxes.values() for box in boxes}.values())

    def add(self, box: Box) -> tuple[bytes, ...]:
        """The channels that are new with `box`."""
        new: list[bytes] = []
        for channel in box.channels:
            name = channel.encode()
            if name not in self._boxes:
                new.append(name)
            self._boxes.setdefault(name, []).append(box)
        box.attached = True
        return tuple(new)

    def remove(self, box: Box) -> tuple[bytes, ...]:
        """The channels that nobody wants without `box`."""
        gone: list[bytes] = []
        for channel in box.channels:
            name = channel.encode()
            boxes = self._boxes.get(name, [])
            if box in boxes:
                boxes.remove(box)
                if not boxes:
                    del self._boxes[name]
                    gone.append(name)
        return tuple(gone)

    def deliver(self, push: list[Reply]) -> None:
        """Put a pushed message into the boxes that want it; other pushes are not ours."""
        if len(push) != 3 or push[0] != b"message":
            return
        channel, data = push[1], push[2]
        if isinstance(channel, bytes) and isinstance(data, bytes):
            message = Message(channel.decode("utf-8", "replace"), data)
            for box in self._boxes.get(channel, ()):
                box.put(message)


class AsyncSubscription:
    """Messages as they come: `async with` it and `async for` over it, or `async for` alone.

    It ends when it is left or its connector is closed, and raises when the server refuses it for good.
    """

    def __init__(
        self,
        box: Box,
        attach: Callable[[Box], Awaitable[None]],
        detach: Callable[[Box], Awaitable[None]],
    ) -> None:
        self._box = box
        self._attach = attach
        self._detach = detach
        self._waiter: asyncio.Future[None] | None = None
        box.awake = self._wake

    @property
    def dropped(self) -> int:
        """How many messages this reader was too slow for."""
        return self._box.dropped

    @property
    def restored(self) -> int:
        """How often the subscription was restored after a reconnect; messages may be missing there."""
        return self._box.restored

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Message | None:
        """The next message; None when the subscription has ended."""
        box = self._box
        while not box.messages:
            if box.error is not None:
                raise box.error
            if box.ended:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return box.messages.popleft()

    async def __aenter__(self) -> AsyncSubscription:
        await self._attach(self._box)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._box.ended:
            self._box.end()
            await self._detach(self._box)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncGenerator[Message, None]:
        alone = not self._box.attached
        if alone:
            await self._attach(self._box)
        try:
            while (message := await self.get()) is not None:
                yield message
        finally:
            if alone:
                await self.__aexit__(None, None, None)


def _nothing() -> None:
    pass
