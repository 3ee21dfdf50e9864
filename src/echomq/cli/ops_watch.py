"""`echomq stats --watch`: the same numbers again and again, with the speed between two readings."""

from __future__ import annotations

import json as json_
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

from echomq.cli import ops_overview, ops_view
from echomq.protocol import discover

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from echomq.app.inspect import Overview
    from echomq.wire import Connector

__all__ = ["Watch"]

_LOOK_AGAIN_S: Final = 30.0
"""How often all keys of the server are walked for new queues."""

HEADINGS: Final = (*ops_overview.HEADINGS[:-1], ">done/s", ">failed/s", "notes")


class Watch:
    """Reads the queues every so many seconds, until Ctrl-C or for a number of times."""

    def __init__(
        self, conn: Connector, queue: str | None, queues: Sequence[str], seconds: float, times: int | None
    ) -> None:
        self._conn = conn
        self._all = queue is None
        self._queues = queues
        self._seconds = seconds
        self._times = times
        self._looked = time.monotonic()
        self._before: dict[str, Overview] = {}
        self._broken: list[str] = []

    def run(self, *, json: bool) -> None:
        """Shows a reading after the other: in the place of the one before on a terminal, else below it."""
        for found in self._readings():
            if json:
                print(json_.dumps(self._json(found)), flush=True)
            else:
                ops_view.clear()
                ops_view.say(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %Z}")
                if found:
                    ops_view.table(HEADINGS, self._rows(found))
                elif not self._broken:
                    ops_view.say("no queue is on this server")
                for warning in self._broken:
                    ops_view.warn(warning)
                print(flush=True)
            self._before = {each.queue: each for each in found}

    def _readings(self) -> Iterator[list[Overview]]:
        done = 0
        while True:
            yield self._read()
            done += 1
            if self._times is not None and done >= self._times:
                return
            time.sleep(self._seconds)

    def _read(self) -> list[Overview]:
        if self._all and time.monotonic() - self._looked > _LOOK_AGAIN_S:
            self._queues = self._conn.run(discover.queues())
            self._looked = time.monotonic()
        found, broken = ops_overview.read(self._conn, self._queues)
        self._broken = ops_overview.unreadable(broken)
        return found

    def _speed(self, each: Overview) -> tuple[float, float] | None:
        """Completions and deaths a second since the reading before, by the server's clock."""
        before = self._before.get(each.queue)
        if before is None or each.seen.now_ms <= before.seen.now_ms:
            return None
        seconds = (each.seen.now_ms - before.seen.now_ms) / 1_000
        done = (each.seen.completed - before.seen.completed) / seconds
        return done, (each.seen.failed - before.seen.failed) / seconds

    def _rows(self, found: list[Overview]) -> list[list[str]]:
        rows: list[list[str]] = []
        speeds = [self._speed(each) for each in found]
        for each, speed in zip(found, speeds, strict=True):
            rows.append(_with_speed(ops_overview.row(each), speed))
        if self._all and found:
            known = [speed for speed in speeds if speed is not None]
            total = (sum(done for done, _ in known), sum(failed for _, failed in known)) if known else None
            rows.append(_with_speed(ops_overview.total_row(found), total))
        return rows

    def _json(self, found: list[Overview]) -> dict[str, object]:
        told = ops_overview.stats_json(found) | {"warnings": self._broken}
        speeds = {each.queue: self._speed(each) for each in found}
        told["per_second"] = {
            queue: {"completed": round(speed[0], 3), "failed": round(speed[1], 3)}
            for queue, speed in speeds.items()
            if speed is not None
        }
        return told


def _with_speed(row: list[str], speed: tuple[float, float] | None) -> list[str]:
    shown = [f"{each:,.1f}" for each in speed] if speed else ["-", "-"]
    return [*row[:-1], *shown, row[-1]]
