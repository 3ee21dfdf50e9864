"""What is looked at before a run: whether this server and this user let the suite work at all.

A right that is missing, or a server without room, would fail every scenario and say nothing of the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from echomq.conformance.desk import FAR_MS, PAST, Desk
from echomq.conformance.rights import is_denied
from echomq.protocol import admin, jobs
from echomq.protocol.errors import EchoMQError, ServerError, ServerFullError, WireError
from echomq.wire.handshake import RefusedError

__all__ = ["check"]


def check(desk: Desk) -> None:
    """A round of work, as the scenarios do it, on a desk of its own, which is cleared.

    Raises `RefusedError` that names the right that the user lacks, `ServerFullError` for a server that admits nothing,
    and the `WireError` of one that does not answer. Whatever else goes wrong is for the scenarios to find.
    """
    try:
        for act in _round(desk):
            try:
                act()
            except ServerFullError as error:
                raise ServerFullError(
                    f"this server is full and admits no job, so nothing can be tried on it: free memory or raise its "
                    f"maxmemory, then run again ({error.reply})",
                    reply=error.reply,
                ) from error
            except ServerError as error:
                if is_denied(error):
                    said = str(error)
                    if "ACL SETUSER" not in said:
                        said = f"{error.reply}{desk.bench.advice()}"
                    raise RefusedError(f"this user may not do what a run does: {said}") from error
            except WireError:
                raise
            except Exception:  # noqa: BLE001, S112  (a reply that nobody can read: the scenarios name it)
                continue
    finally:
        with suppress(EchoMQError):
            desk.clear()


def _round(desk: Desk) -> Iterator[Callable[[], object]]:
    q, conn = desk.queue, desk.bench.conn
    first, second = desk.mint_many(2)
    held = [(first, "1"), (second, "1")]
    key = desk.key("de:trial")
    plain = (  # what takes keys away comes first, so that whoever may not has written none
        *(("UNLINK", key), ("SCAN", "0", "COUNT", 1), ("EXISTS", key), ("DUMP", key), ("PTTL", key), ("TIME",)),
        *(("INFO", "server"), ("COMMAND", "INFO", "GET"), ("SET", key, "1"), ("EVAL", "return 1", 1, key)),
    )
    for words in plain:
        yield partial(conn.execute, *words)
    yield lambda: conn.run(jobs.enqueue_many(q, [(first, b"p")]))
    yield lambda: conn.run(jobs.enqueue_at(q, second, b"p", at_ms=PAST))
    yield lambda: conn.run(jobs.promote(q))
    yield lambda: conn.run(jobs.claim_many(q, 2))
    yield lambda: conn.run(jobs.sweep(q))
    yield lambda: conn.run(jobs.extend_many(q, held))
    yield lambda: conn.run(jobs.retry(q, second, 1, delay_ms=FAR_MS, max_attempts=2, error="e"))
    yield lambda: conn.subscribe(desk.keys.events).close()
    yield lambda: conn.run(admin.update_progress(q, first, "1"))
    yield lambda: conn.run(jobs.complete_many(q, held[:1]))
