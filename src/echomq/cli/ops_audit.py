"""`echomq audit`: every breach of a queue's invariants (protocol §12.1)."""

from __future__ import annotations

from typing import Annotated

import typer

from echomq.cli.ops_common import Fence, Json, Queue, Url, WireText, known_queue, opened


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("audit")(audit)


def audit(
    queue: Queue,
    mend: Annotated[bool, typer.Option("--mend", help="Set the books of the lanes right.")] = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Look for what must not be in a queue.

    A job in two places or in none, books of lanes that do not add up. It reads every row of the queue, in steps, so
    that a queue in use goes on. With --mend the books of the lanes are set right, and the queue is looked at again.

    Exit codes: 0 there is no breach, or none is left; 1 there is one, or the server cannot be reached; 2 something is
    written wrongly.

    \b
    Examples:
      echomq audit mail
      echomq audit mail --mend
    """
    from echomq.cli import ops_view
    from echomq.protocol.audit import audit as audit_

    with opened(url, fence, wire) as conn:
        found = conn.run(audit_(known_queue(conn, queue), mend=mend))
        left = conn.run(audit_(queue)) if mend and found else found
    if json:
        told: dict[str, object] = {"queue": queue, "breaches": [{"subject": b.subject, "what": b.what} for b in found]}
        if mend:
            told["left"] = [{"subject": b.subject, "what": b.what} for b in left]
        ops_view.document(told)
    else:
        for breach in found:
            ops_view.say(f"{breach.subject}: {breach.what}")
        said = f"{len(found):,} breach{'es' if len(found) > 1 else ''}" if found else "no breach"
        ops_view.say(f"queue {queue}: {said}" + (f", {len(left):,} left after mending" if mend and found else ""))
    raise typer.Exit(1 if left else 0)
