"""`echomq conformance`: holds a server, and the wire to it, to the contract, a line a scenario."""

from __future__ import annotations

import json as json_
import os
import signal
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.wires import WireText, wire_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from echomq.conformance import Result

_INSTEAD: Final = {"FAIL": "Seen instead", "skip": "Skipped"}


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("conformance")(conformance)


def conformance(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", help="The server. Default: $ECHOMQ_URL, else the embedded server.", show_default=False
        ),
    ] = None,
    wire: WireText = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run this scenario alone; may be given several times.", metavar="NAME")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    fence: Annotated[
        str | None, typer.Option(help="The version string of a server that is shared with another client.")
    ] = None,
) -> None:
    """Hold a server to the protocol's contract.

    One line a scenario, and what was seen instead where it fails.

    Every scenario works on a queue of its own and takes away what it wrote, so a server in use may be tried: other
    queues are never touched. `stale` flushes the script cache once; other clients load their scripts again.

    Exit codes: 0 every scenario is ok or skipped; 1 one failed, or the server is out of reach, is full, refuses this
    user what a run does, or died on the way; 2 a wrong argument.

    \b
    Examples:
      echomq conformance
      echomq conformance valkey://localhost:6379
      echomq conformance valkey://localhost:6379 --wire 6
      echomq conformance --only claim --only stale --json
    """
    from echomq.cli.program import fail
    from echomq.conformance import Status, choose, run
    from echomq.conformance.bench import Bench
    from echomq.protocol.errors import WireError
    from echomq.wire import FENCE

    asked = wire_of(wire)
    scenarios = choose(only or [])
    results: list[Result] = []
    with _tidy(), Bench(url or os.environ.get("ECHOMQ_URL") or None, wire=asked, fence=fence or FENCE) as bench:
        server, spoken = bench.server(), bench.wire
        ended: WireError | None = None
        try:
            with closing(run(bench, scenarios)) as running:
                for result in running:
                    results.append(result)
                    if not json:
                        print(_line(result), flush=True)
        except WireError as error:
            if not results:
                raise
            ended = error
    counts = {status: sum(result.status is status for result in results) for status in Status}
    seconds = sum(result.seconds for result in results)
    if json:
        print(
            json_.dumps(
                {
                    "server": server,
                    "wire": spoken,
                    "total": len(results),
                    **{status.value.lower(): count for status, count in counts.items()},
                    "seconds": round(seconds, 3),
                    "error": None if ended is None else str(ended),
                    "scenarios": [_as_json(result) for result in results],
                },
                indent=2,
            )
        )
    else:
        print(
            f"{len(results)} scenarios on {server}, wire {spoken}: "
            f"{counts[Status.OK]} ok, {counts[Status.FAIL]} failed, {counts[Status.SKIP]} skipped, in {seconds:.1f} s"
        )
    if ended is not None:
        fail(str(ended), 1)  # a machine has been told above
    raise typer.Exit(1 if counts[Status.FAIL] else 0)


@contextmanager
def _tidy() -> Generator[None, None, None]:
    """A SIGTERM unwinds like Ctrl-C, so that it leaves no keys behind either."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _line(result: Result) -> str:
    said = f"{result.status.value:<4} {result.name:<24} {result.contract}"
    return f"{said} {_INSTEAD[result.status.value]}: {result.seen}" if result.seen else said


def _as_json(result: Result) -> dict[str, object]:
    return {
        "name": result.name,
        "status": result.status.value.lower(),
        "contract": result.contract,
        "seen": result.seen,
        "ms": round(result.seconds * 1_000, 1),
    }
