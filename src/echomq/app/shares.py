"""Which queues a worker serves, and how they share its slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

from echomq.app.echomq import EchoMQ
from echomq.app.text import nearest
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import integer
from echomq.runtime.budget import MAX_WEIGHT

Order: TypeAlias = Literal["shares", "strict"]
Queues: TypeAlias = Iterable[str] | Mapping[str, int]


def shares_of(mq: EchoMQ, wanted: Queues | None, order: Order) -> dict[str, int]:
    """The weight of each queue by its whole name, in their order; `InvalidInputError` for what cannot be served."""
    if order not in ("shares", "strict"):
        raise InvalidInputError(f"order must be 'shares' or 'strict', not {order!r:.200}")
    known = mq.queues
    if not mq.jobs:
        raise InvalidInputError("this EchoMQ has no jobs yet: decorate a function with @mq.job")
    if wanted is None and order == "strict":
        raise InvalidInputError("a strict order is that of the queues given: give queues=[...], the first one first")
    if wanted is None:
        return dict.fromkeys(known, 1)
    if isinstance(wanted, str):
        raise InvalidInputError(f"queues must be a list of names, not a text; write queues=[{wanted!r:.200}]")
    if not isinstance(wanted, Iterable):
        raise InvalidInputError(f"queues must be a list of names, or weights by name, not {wanted!r:.200}")
    given: Any = wanted
    weights: dict[Any, Any] = dict(given) if isinstance(wanted, Mapping) else dict.fromkeys(given, 1)
    if order == "strict" and any(weight != 1 for weight in weights.values()):
        raise InvalidInputError(
            "in a strict order a queue has no weight: give weights, or order='strict' and the names, first one first"
        )
    shares: dict[str, int] = {}
    for queue, weight in weights.items():
        if not isinstance(queue, str):
            raise InvalidInputError(f"queues must be a list of names, not of {type(queue).__name__}: {queue!r:.200}")
        if mq.queue_name(queue) not in known:
            raise InvalidInputError(f"no job is in queue {queue!r}; there are jobs in {nearest(queue, known)}")
        share = integer(f"the weight of queue {queue!r}", cast("int", weight), least=1, most=MAX_WEIGHT)
        shares.setdefault(mq.queue_name(queue), share)
    if not shares:
        raise InvalidInputError("a worker needs one queue or more")
    return shares
