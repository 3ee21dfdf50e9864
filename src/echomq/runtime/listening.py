"""Listening to what happens to the jobs of a queue (protocol §10), awaited or blocking."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, cast, overload

from echomq.identity.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.wire import AsyncConnector, Connector
from echomq.wire.subscriptions import AsyncSubscription, Message
from echomq.wire.syncsubscription import Subscription


@dataclass(frozen=True, slots=True)
class Event:
    """What was published about a job. `more` holds what else came with it, all of it text."""

    event: str
    job: str
    more: Mapping[str, str]

    @property
    def error(self) -> str | None:
        """Of `retried`, `dead` and `cancelled`."""
        return self.more.get("error")

    @property
    def progress(self) -> str | None:
        """Of `progress`."""
        return self.more.get("progress")

    @property
    def attempt(self) -> int | None:
        """1 at first, and one more after each failure."""
        text = self.more.get("attempt", "")
        return int(text) if text.isdecimal() else None


def read(data: bytes) -> Event | None:
    """The event in a message; None when it is malformed: no JSON object, a value that is no text, no event or job."""
    try:
        found: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    members = cast("dict[str, object]", found)
    texts = {name: value for name, value in members.items() if isinstance(value, str)}
    event, job = texts.pop("event", ""), texts.pop("job", "")
    return Event(event, job, texts) if event and job and len(texts) + 2 == len(members) else None


class _Reader:
    """What both faces have in common."""

    def __init__(self, subscription: AsyncSubscription | Subscription) -> None:
        self._messages = subscription
        self.malformed = 0
        """Messages that were no event, and were left out."""

    @property
    def dropped(self) -> int:
        """Messages that this reader was too slow for."""
        return self._messages.dropped

    @property
    def restored(self) -> int:
        """How often the connection was lost and came back; events may be missing there."""
        return self._messages.restored

    def _read(self, message: Message) -> Event | None:
        event = read(message.data)
        self.malformed += event is None
        return event


class AsyncEvents(_Reader):
    """The events of a queue as they come: `async with` it and `async for` over it."""

    def __init__(self, subscription: AsyncSubscription) -> None:
        super().__init__(subscription)
        self._subscription = subscription

    async def get(self) -> Event | None:
        """The next event; None when the subscription has ended."""
        while (message := await self._subscription.get()) is not None:
            if (event := self._read(message)) is not None:
                return event
        return None

    async def __aenter__(self) -> Self:
        await self._subscription.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._subscription.__aexit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for message in self._subscription:
            if (event := self._read(message)) is not None:
                yield event


class Events(_Reader):
    """The events of a queue as they come: enter it and iterate, in one thread at a time."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        self._subscription = subscription

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None after `timeout` seconds without a message (None: never) or when it has ended."""
        while (message := self._subscription.get(timeout)) is not None:
            if (event := self._read(message)) is not None:
                return event
        return None

    def close(self) -> None:
        """End it; a thread that waits for an event returns."""
        self._subscription.close()

    def __enter__(self) -> Self:
        self._subscription.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._subscription.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event


@overload
def events(conn: AsyncConnector, queue: str) -> AsyncEvents: ...
@overload
def events(conn: Connector, queue: str) -> Events: ...
def events(conn: AsyncConnector | Connector, queue: str) -> AsyncEvents | Events:
    """The events of `queue`, over a connector's subscriptions: they come back by themselves after a lost connection.

    At most once: what is published while nobody listens, or while the connection is lost, is gone.
    """
    channel = keys(queue).events
    if isinstance(conn, AsyncConnector):
        return AsyncEvents(conn.subscribe(channel))
    if isinstance(conn, Connector):
        return Events(conn.subscribe(channel))
    raise InvalidInputError(f"events need a connector, awaited or blocking, not {type(conn).__name__}")
