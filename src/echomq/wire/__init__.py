"""Floor 2, the wire: connectors that carry calls to a server, and the embedded server."""

from __future__ import annotations

from echomq.wire.aio import AsyncConnector, aconnect
from echomq.wire.dialect import Wire
from echomq.wire.options import FENCE, Options
from echomq.wire.source import FixedSource, Source, resolve
from echomq.wire.subscriptions import AsyncSubscription, Message
from echomq.wire.sync import Connector, connect
from echomq.wire.syncsubscription import Subscription
from echomq.wire.url import Target, parse_url

__all__ = [
    "FENCE",
    "AsyncConnector",
    "AsyncSubscription",
    "Connector",
    "FixedSource",
    "Message",
    "Options",
    "Source",
    "Subscription",
    "Target",
    "Wire",
    "aconnect",
    "connect",
    "parse_url",
    "resolve",
]
