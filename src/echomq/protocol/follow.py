"""Jobs that follow others: admitted in the very step that settles the one they follow (docs/additions.md).

A completion and a retry take them along, see `jobs.complete` and `jobs.retry`. A job that dies in nobody's hands, by
the sweep, a cancellation or a child's failure, leaves a note when its envelope has the member `on_dead`: `owed` reads
the notes, `pay` turns one into the job that follows, in one step, so that none is lost and none is doubled.
"""

from __future__ import annotations

from dataclasses import dataclass

from echomq.protocol.call import Arg, Call
from echomq.protocol.checks import check_job, integer, payload_of
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_blobs, as_flag
from echomq.protocol.scripts import script

__all__ = ["Follow", "Owed", "owed", "pay", "words"]

_PAY = script("pay")


@dataclass(frozen=True, slots=True)
class Follow:
    """A job that follows another one: a freshly minted id, and its payload."""

    id: str
    payload: bytes | str

    def words(self) -> tuple[Arg, Arg]:
        """Its two arguments, checked."""
        return check_job(self.id), payload_of(self.payload)


def words(*follows: Follow | None) -> tuple[Arg, ...]:
    """The arguments of each, two empty ones for None; nothing at all where there is none."""
    out: list[Arg] = []
    if any(follows):
        for each in follows:
            out += ("", b"") if each is None else each.words()
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Owed:
    """A death that is to be followed. `died_ms` is on the server's clock; `entry` is the note itself."""

    entry: bytes
    id: str
    attempts: int
    failures: int
    stalled: int
    died_ms: int
    error: str
    payload: bytes

    @classmethod
    def of(cls, entry: bytes) -> Owed:
        """What a note says; `InvalidInputError` when it is malformed."""
        try:
            job_id, attempts, failures, stalled, died_ms, length, rest = entry.split(b"\0", 6)
            size = integer("length", int(length), least=0, most=len(rest))
            return cls(
                entry,
                check_job(job_id.decode()),
                int(attempts),
                int(failures),
                int(stalled),
                int(died_ms),
                rest[:size].decode("utf-8", "replace"),
                rest[size:],
            )
        except ValueError as error:
            raise InvalidInputError(f"a note of what is owed cannot be read: {entry[:200]!r}: {error}") from error


def owed(queue: str, *, limit: int = 100) -> Call[tuple[bytes, ...]]:
    """The oldest notes of deaths that are to be followed; `Owed.of` reads one."""
    args = (0, integer("limit", limit, least=1) - 1)
    return Call("owed", (keys(queue).owed,), args, as_blobs, command="LRANGE", subject=queue)


def pay(queue: str, entry: bytes, follow: Follow | None) -> Call[bool]:
    """Takes a note off the list and admits what follows, None for nothing; False when another one was first.

    `KindError` for an id that is no job's; refused at `maxmemory`, before anything is written.
    """
    if not isinstance(entry, bytes):
        raise InvalidInputError(f"a note must be bytes, not {type(entry).__name__}: {entry!r:.200}")
    k = keys(queue)
    return Call("pay", (k.owed, k.pending), (entry, *words(follow)), as_flag, _PAY, subject=queue)
