"""A call of a job that is ready to be sent, and many of them on their way at once. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from echomq.app.errors import EnqueueManyError
from echomq.app.handles import Job
from echomq.app.telling import added
from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.identity.minter import minter
from echomq.protocol import jobs
from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call
from echomq.protocol.replies import Admission

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.job import JobFunction
    from echomq.app.options import Options

R_co = TypeVar("R_co", covariant=True)

FLIGHT: Final = 5_000
"""Jobs that leave in one flight."""
FLIGHT_BYTES: Final = 16 * 1024 * 1024
BULK: Final = 500
"""Jobs in one call of the bulk admission: a server does nothing else for as long as one call takes."""
BULK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bound(Generic[R_co]):
    """A job with its options and its arguments, what `send.s(...)` gives; `R_co` is what its function returns.

    The arguments are checked and encoded already: what the caller changes afterwards is not sent. It may be sent as
    often as wanted, each time as another job.
    """

    job: JobFunction[..., R_co]
    options: Options
    encoded: bytes
    """Its envelope, but for what depends on when it is sent."""

    @property
    def queue(self) -> str:
        """The queue that it goes to."""
        return self.options.queue or self.job.queue

    @property
    def payload(self) -> bytes:
        """Its envelope (protocol §13) if it is sent now: `expires` counts from here."""
        expires_ms = self.options.expires_at_ms()
        return self.encoded if expires_ms is None else b'%b,"expires_ms":%d}' % (self.encoded[:-1], expires_ms)

    def __repr__(self) -> str:
        return f"<call of {self.job.name} for {self.queue}, {len(self.encoded)} bytes>"


class Flight:
    """Bound calls that leave together, each under a fresh id: those without a time, lane or key in bulk."""

    def __init__(self, mq: EchoMQ, bounds: Sequence[Bound[Any]], payloads: Sequence[bytes]) -> None:
        self.bounds = bounds
        self._mq = mq
        self._ids = minter.mint_many(len(bounds))
        self._places: list[Sequence[int]] = []
        """The places in `bounds` that each call answers for."""
        self._answers: list[Admitted | EchoMQError] = []
        self.calls: list[Call[Any]] = []
        bulks: dict[str, list[int]] = {}
        for place, bound in enumerate(bounds):
            if bound.options.is_bulk:
                bulks.setdefault(bound.queue, []).append(place)
            else:
                self._places.append((place,))
                self.calls.append(bound.options.admit(bound.queue, self._ids[place], payloads[place]))
        for queue, places in bulks.items():
            for part in _parts(places, payloads):
                self._places.append(part)
                self.calls.append(jobs.enqueue_many(queue, [(self._ids[at], payloads[at]) for at in part]))

    def land(self, outcomes: Sequence[object]) -> list[int]:
        """Takes one outcome a call; gives the places whose fresh id was taken, to be `sent_again` one by one."""
        answers: list[Any] = [None] * len(self.bounds)
        for places, outcome in zip(self._places, outcomes, strict=True):
            verdicts: Sequence[Any] = outcome if isinstance(outcome, tuple) else [outcome] * len(places)
            for place, verdict in zip(places, verdicts, strict=True):
                answers[place] = Admitted(verdict, self._ids[place]) if isinstance(verdict, Admission) else verdict
        self._answers = answers
        again = Admission.DUPLICATE
        return [
            place
            for place, answer in enumerate(self._answers)
            if isinstance(answer, Admitted) and answer.verdict is again and answer.id == self._ids[place]
        ]

    def sent_again(self, place: int, answer: Admitted | EchoMQError) -> None:
        """What became of a job that was sent again under another id."""
        self._answers[place] = answer

    def tell(self) -> list[Call[None]]:
        """Tells this process's observers; gives the calls that publish what was added, when events are wanted."""
        mq = self._mq
        pairs = zip(self.bounds, self._answers, strict=True)
        told = [added(bound.queue, answer, events=mq.events) for bound, answer in pairs if isinstance(answer, Admitted)]
        return [call for call in told if call is not None]

    def handles(self) -> Iterator[tuple[Job[Any], EchoMQError | None]]:
        """A handle for each, in order; that of one without an answer has the id it was sent under."""
        mq, duplicate = self._mq, Admission.DUPLICATE
        for bound, job_id, answer in zip(self.bounds, self._ids, self._answers, strict=True):
            if isinstance(answer, Admitted):
                yield Job(answer.id, bound.job.name, bound.queue, answer.verdict is duplicate, mq), None
            else:
                yield Job(job_id, bound.job.name, bound.queue, False, mq), answer


class Shipment:
    """An iterable of bound calls, taken flight by flight, and what has become of all of them so far."""

    def __init__(self, mq: EchoMQ, bounds: Iterable[Bound[Any]]) -> None:
        if isinstance(bounds, Bound):
            raise InvalidInputError("enqueue_many takes many calls: write enqueue_many([send.s(...), send.s(...)])")
        self._mq = mq
        self._bounds = iter(bounds)
        self._jobs: list[Job[Any]] = []
        self._errors: dict[int, EchoMQError] = {}

    def flights(self) -> Iterator[Flight]:
        """The next flight, as soon as the last one has been `done`; raises what the iterable raises."""
        going = True
        while going:
            bounds: list[Bound[Any]] = []
            payloads: list[bytes] = []
            size = 0
            going = False
            try:
                for bound in self._bounds:
                    payload = self._payload(bound)
                    bounds.append(bound)
                    payloads.append(payload)
                    size += len(payload)
                    if len(bounds) >= FLIGHT or size >= FLIGHT_BYTES:
                        going = True
                        break
            except Exception as error:
                if not self._jobs:
                    raise
                raise self._error(f"and then the calls ended with {type(error).__name__}: {error}") from error
            if bounds:
                yield Flight(self._mq, bounds, payloads)

    def done(self, flight: Flight) -> None:
        """Takes over what has become of a flight."""
        for job, error in flight.handles():
            if error is not None:
                self._errors[len(self._jobs)] = error
            self._jobs.append(job)

    def result(self) -> list[Job[Any]]:
        """A handle for each call, in order; `EnqueueManyError` when one was not accepted."""
        if self._errors:
            raise self._error(f"the first of the others failed with {next(iter(self._errors.values()))}")
        return self._jobs

    def _payload(self, bound: Bound[Any]) -> bytes:
        if not isinstance(bound, Bound):
            raise InvalidInputError(
                f"enqueue_many takes calls such as send.s(...), not {type(bound).__name__}: {bound!r:.200}"
            )
        if bound.job.mq is not self._mq:
            raise InvalidInputError(f"{bound!r} belongs to another EchoMQ: send it with that one's enqueue_many")
        return bound.payload

    def _error(self, why: str) -> EnqueueManyError:
        sent = len(self._jobs) - len(self._errors)
        return EnqueueManyError(f"{sent:,} of {len(self._jobs):,} jobs are sent; {why}", self._jobs, self._errors)


def _parts(places: Sequence[int], payloads: Sequence[bytes]) -> Iterator[Sequence[int]]:
    """`places` cut into what one call of the bulk admission takes."""
    start = size = 0
    for end, place in enumerate(places):
        if end > start and (end - start >= BULK or size + len(payloads[place]) > BULK_BYTES):
            yield places[start:end]
            start, size = end, 0
        size += len(payloads[place])
    yield places[start:]
