"""`echomq workers`: who is there, and what each has in hand."""

from __future__ import annotations

import json as json_
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from echomq.cli.ops_common import Fence, Json, Url, WireText, counted, known_queues, opened, queue_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.workers import Seen
    from echomq.wire import Connector

HEADINGS: Final = ("worker", "host", ">pid", "queues", ">in hand", ">up for", ">silent for", "version", "state")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("workers")(workers)


def workers(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue.", show_default=False, callback=queue_name)
    ] = None,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """List the workers, and how long each is silent.

    They are those that have registered with the queues of the server. One that has been silent for a minute, or for
    its lease with something in hand, counts as gone; after five minutes it is forgotten. Clients that do not register,
    such as loops of your own made of verbs, are not seen here.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq workers
      echomq workers mail --json
    """
    from echomq.cli import ops_view

    with opened(url, fence, wire) as conn:
        found = read(conn, known_queues(conn, [queue] if queue else []))
    if json:
        ops_view.document({"workers": [each.as_json() for each in found]})
        return
    if found:
        ops_view.table(HEADINGS, [each.row() for each in found])
    alive = sum(each.alive for each in found)
    where = f"queue {queue}" if queue else "all queues"
    ops_view.say(f"{counted(alive, 'live worker')} in the registry of {where}, {len(found) - alive:,} silent")


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as the registries of one or more queues know it."""

    name: str
    host: str
    pid: int | None
    queues: tuple[str, ...]
    in_hand: int | None
    concurrency: int | None
    lease_ms: int
    ids: tuple[str, ...]
    version: str
    started_ms: int | None
    seen_ms: int
    silent_ms: int

    @property
    def alive(self) -> bool:
        """Whether it was seen lately: within a minute, and within its lease while it has something in hand."""
        from echomq.protocol.survey import LIVE_MS, QUIET_MS

        patience_ms = min(LIVE_MS, max(self.lease_ms, QUIET_MS)) if self.in_hand else LIVE_MS
        return self.silent_ms <= patience_ms

    def row(self) -> list[str]:
        """For a person."""
        from echomq.cli.ops_text import shown_span

        up_ms = None if self.started_ms is None else self.seen_ms - self.started_ms
        return [
            self.name,
            self.host or "-",
            "-" if self.pid is None else str(self.pid),
            ", ".join(self.queues),
            self._hands(),
            shown_span(up_ms),
            shown_span(self.silent_ms),
            self.version or "-",
            "alive" if self.alive else "silent",
        ]

    def _hands(self) -> str:
        if self.in_hand is None:
            return "-"
        return f"{self.in_hand:,}" if self.concurrency is None else f"{self.in_hand:,} of {self.concurrency:,}"

    def as_json(self) -> dict[str, object]:
        """For a machine."""
        return {
            "name": self.name,
            "host": self.host or None,
            "pid": self.pid,
            "queues": list(self.queues),
            "in_hand": self.in_hand,
            "concurrency": self.concurrency,
            "lease_ms": self.lease_ms,
            "ids": list(self.ids),
            "version": self.version or None,
            "started_ms": self.started_ms,
            "silent_ms": self.silent_ms,
            "alive": self.alive,
        }


def read(conn: Connector, queues: Sequence[str]) -> list[Worker]:
    """The workers of some queues, each once, the latest seen first."""
    from echomq.protocol import discover
    from echomq.protocol import workers as registry
    from echomq.protocol.errors import EchoMQError

    now_ms = conn.run(discover.clock())
    records: dict[str, list[tuple[str, Seen]]] = {}
    for queue, answer in zip(queues, conn.run_many([registry.seen(queue) for queue in queues]), strict=True):
        if isinstance(answer, EchoMQError):
            raise answer
        for seen in answer:
            records.setdefault(seen.name, []).append((queue, seen))
    found = [_merged(name, each, now_ms) for name, each in records.items()]
    return sorted(found, key=lambda worker: (worker.silent_ms, worker.name))


def holder(conn: Connector, queue: str, job_id: str) -> str | None:
    """The worker that says it has a job of the queue in hand, the latest that did; None where none does."""
    from echomq.protocol import workers as registry

    records = conn.run(registry.seen(queue))
    return next((seen.name for seen in records if job_id in _texts(_info(seen.info), "ids")), None)


def _merged(name: str, records: list[tuple[str, Seen]], now_ms: int) -> Worker:
    """One worker from its records, one a queue; the latest says who it is, each what it has in hand of its queue."""
    from echomq.protocol.jobs import LEASE_MS

    latest = min((seen for _, seen in records), key=lambda seen: seen.silent_ms)
    info = _info(latest.info)
    infos = [_info(seen.info) for _, seen in records]
    return Worker(
        name=name,
        host=_text(info, "host"),
        pid=_number(info, "pid"),
        queues=tuple(sorted({queue for queue, _ in records} | set(_texts(info, "queues")))),
        in_hand=_sum(infos, "in_hand"),
        concurrency=_sum(infos, "concurrency"),
        lease_ms=_number(info, "lease_ms") or LEASE_MS,
        ids=tuple(each for one in infos for each in _texts(one, "ids")),
        version=_text(info, "version"),
        started_ms=_number(info, "started_ms"),
        seen_ms=now_ms,
        silent_ms=max(0, latest.silent_ms),
    )


def _info(raw: bytes) -> dict[str, object]:
    """What a worker says of itself: anybody's JSON, or nothing."""
    try:
        value: object = json_.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _number(info: dict[str, object], name: str) -> int | None:
    value = info.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(info: dict[str, object], name: str) -> str:
    value = info.get(name)
    return value if isinstance(value, str) else ""


def _texts(info: dict[str, object], name: str) -> list[str]:
    value = info.get(name)
    if not isinstance(value, list):
        return []
    return [each for each in cast("list[object]", value) if isinstance(each, str)]


def _sum(infos: list[dict[str, object]], name: str) -> int | None:
    known = [number for info in infos if (number := _number(info, name)) is not None]
    return sum(known) if known else None
