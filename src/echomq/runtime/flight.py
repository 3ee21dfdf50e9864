"""One flight of a consumer: the calls that leave together, and what came back, each by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from echomq.identity.errors import EchoMQError
from echomq.protocol.call import Call, Reply
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_int, as_list
from echomq.wire import AsyncConnector

T = TypeVar("T")

_HEADS: Final = ("schedule", "repeat", "cron")


async def fly(conn: AsyncConnector, calls: Sequence[Call[Any]], cancelled: Callable[[], None]) -> list[Any]:
    """One answer a call, or its `EchoMQError`. Cancelling the caller does not end it: `cancelled` is told.

    The futures are the connector's own, so that even cancelling every task of the loop leaves a claim and its
    settlement whole.
    """
    flight: list[asyncio.Future[Any] | EchoMQError] = []
    for call in calls:
        try:
            flight.append(conn.submit(call))
        except EchoMQError as error:
            flight.append(error)
    # Answers come in order: the last one is nearly always the one to wait for.
    for each in reversed(flight):
        if isinstance(each, asyncio.Future):
            await outlast(each, cancelled)
    return [each if isinstance(each, EchoMQError) else _answer(each) for each in flight]


async def outlast(future: asyncio.Future[Any], cancelled: Callable[[], None]) -> None:
    """Wait until `future` is done, whoever cancels the caller."""
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            cancelled()


def _answer(future: asyncio.Future[Any]) -> Any:
    if future.cancelled():
        return EchoMQError("the call was cancelled")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, EchoMQError):
        return error
    raise error


def heads(queue: str) -> list[Call[int | None]]:
    """The earliest run-at in the schedule and of the recurrences, for a consumer that has no slot to claim for."""
    base = keys(queue).base
    return [
        Call("head", (base + name,), (0, 0, "WITHSCORES"), _head, command="ZRANGE", subject=queue) for name in _HEADS
    ]


def _head(reply: Reply) -> int | None:
    items = as_list(reply)
    while items and isinstance(items[0], list):
        items = items[0]  # RESP3 pairs a member with its score
    if len(items) < 2:
        return None
    score = items[1]
    return int(score) if isinstance(score, float) else as_int(score)
