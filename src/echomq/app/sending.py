"""Sending: one job under a fresh id, and many on their way at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from echomq.app.bound import Bound, said, said_argument
from echomq.app.errors import EnqueueManyError
from echomq.app.handles import Job
from echomq.app.options import Options
from echomq.app.telling import added
from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.identity.minter import mint, minter
from echomq.protocol import jobs
from echomq.protocol.admission import Admitted, admit_fresh
from echomq.protocol.call import Call, Plan
from echomq.protocol.replies import Admission

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

R = TypeVar("R")

FLIGHT: Final = 2_000
"""Jobs that leave in one flight."""
TURN: Final = 200
"""Jobs that are made ready before an event loop has a turn."""
FLIGHT_BYTES: Final = 16 * 1024 * 1024
BULK: Final = 500
"""Jobs in one call of the bulk admission: a server does nothing else for as long as one call takes."""
BULK_BYTES: Final = 1024 * 1024

_DUPLICATE: Final = Admission.DUPLICATE


def admission(name: str, queue: str, payload: bytes, options: Options, *, events: bool) -> Plan[Admitted]:
    """A job admitted under a fresh id, and told of."""
    admitted = yield from admit_fresh(f"job {name!r}", mint, partial(options.admit, queue, payload=payload))
    told = added(queue, admitted, events=events)
    if told is not None:
        with suppress(EchoMQError):  # the job is there, whether anybody hears of it or not
            yield told
    return admitted


def send_all(mq: EchoMQ, bounds: Iterable[Bound[R]]) -> list[Job[R]]:
    """See `EchoMQ.enqueue_many`. The next flight is made while one is in the air."""
    from concurrent.futures import Future, ThreadPoolExecutor

    shipment = Shipment(mq, bounds)
    if (eager := mq.ground.eager) is not None:
        for bound in shipment.each():
            shipment.ran(bound, eager.admit(bound.queue, bound.payload, bound.options))
        return shipment.result()
    flights = filter(None, shipment.flights())
    flight = next(flights, None)
    if flight is None:
        return shipment.result()
    mq.connection()  # where there is none, its own error says so: nothing has been sent
    if not flight.is_full:
        shipment.done(_flown(mq, flight))
        return shipment.result()
    with ThreadPoolExecutor(1, "echomq-enqueue-many") as pilot:
        while flight is not None:
            flying: Future[Flight] = pilot.submit(_flown, mq, flight)
            flight = next(flights, None)
            shipment.done(flying.result())
    return shipment.result()


async def asend_all(mq: EchoMQ, bounds: Iterable[Bound[R]]) -> list[Job[R]]:
    """See `EchoMQ.aenqueue_many`. The next flight is made while one is in the air."""
    shipment = Shipment(mq, bounds)
    if (eager := mq.ground.eager) is not None:
        for bound in shipment.each():
            shipment.ran(bound, await eager.aadmit(bound.queue, bound.payload, bound.options))
        return shipment.result()
    flying: asyncio.Task[Flight] | None = None
    try:
        for flight in shipment.flights():
            if flight is None:
                await asyncio.sleep(0)
                continue
            if flying is None:
                await mq.aconnection()  # where there is none, its own error says so: nothing has been sent
            else:
                shipment.done(await flying)
            flying = asyncio.ensure_future(_aflown(mq, flight))
        if flying is not None:
            shipment.done(await flying)
    finally:
        if flying is not None:
            flying.cancel()
    return shipment.result()


def _flown(mq: EchoMQ, flight: Flight) -> Flight:
    for place in flight.land(_outcomes(mq, flight.calls)):
        try:
            flight.sent_again(place, mq.run(flight.again(place)))
        except EchoMQError as error:
            flight.sent_again(place, error)
    if told := flight.told():
        _outcomes(mq, told)
    return flight


def _outcomes(mq: EchoMQ, calls: list[Call[Any]]) -> Sequence[object]:
    try:
        return mq.connection().run_many(calls)
    except EchoMQError as error:  # it was closed meanwhile, and cannot be opened again
        return [error] * len(calls)


async def _aflown(mq: EchoMQ, flight: Flight) -> Flight:
    for place in flight.land(await _aoutcomes(mq, flight.calls)):
        try:
            flight.sent_again(place, await mq.arun(flight.again(place)))
        except EchoMQError as error:
            flight.sent_again(place, error)
    if told := flight.told():
        await _aoutcomes(mq, told)
    return flight


async def _aoutcomes(mq: EchoMQ, calls: list[Call[Any]]) -> Sequence[object]:
    try:
        return await (await mq.aconnection()).run_many(calls)
    except EchoMQError as error:
        return [error] * len(calls)


class Flight:
    """Bound calls that leave together, each under a fresh id: those without a time, lane or key in bulk."""

    def __init__(self, mq: EchoMQ, bounds: Sequence[Bound[Any]], payloads: Sequence[bytes]) -> None:
        self.bounds = bounds
        self._mq = mq
        self._payloads = payloads
        self._ids = minter.mint_many(len(bounds))
        self._queues = [bound.queue for bound in bounds]
        self._places: list[Sequence[int]] = []
        """The places in `bounds` that each call answers for."""
        self._answers: list[Admission | Admitted | EchoMQError] = []
        self.calls: list[Call[Any]] = []
        bulks: dict[str, list[int]] = {}
        for place, bound in enumerate(bounds):
            if bound.options.is_bulk:
                bulks.setdefault(self._queues[place], []).append(place)
            else:
                self._places.append((place,))
                self.calls.append(bound.options.admit(self._queues[place], self._ids[place], payloads[place]))
        for queue, places in bulks.items():
            for part in _parts(places, payloads):
                self._places.append(part)
                self.calls.append(jobs.enqueue_many(queue, [(self._ids[at], payloads[at]) for at in part]))

    def land(self, outcomes: Sequence[Any]) -> list[int]:
        """Takes one outcome a call; gives the places whose fresh id was taken, to be `sent_again` one by one."""
        answers: list[Any] = [None] * len(self.bounds)
        for places, outcome in zip(self._places, outcomes, strict=True):
            each: Sequence[Any] = [outcome] * len(places)
            if isinstance(outcome, tuple):
                each = cast("Sequence[Any]", outcome)
            for place, answer in zip(places, each, strict=True):
                answers[place] = answer
        self._answers = answers
        return [place for place in range(len(answers)) if self._is_taken(place)] if _DUPLICATE in answers else []

    @property
    def is_full(self) -> bool:
        """Whether another flight may follow."""
        return len(self.bounds) >= FLIGHT or sum(map(len, self._payloads)) >= FLIGHT_BYTES

    def again(self, place: int) -> Plan[Admitted]:
        """The job of a place under another id."""
        bound = self.bounds[place]
        return admission(bound.job.name, self._queues[place], self._payloads[place], bound.options, events=False)

    def sent_again(self, place: int, answer: Admitted | EchoMQError) -> None:
        """What became of a job that was sent again under another id."""
        self._answers[place] = answer

    def told(self) -> list[Call[None]]:
        """Tells this process's observers; gives the calls that publish what was added, when events are wanted."""
        events = self._mq.events
        if not events and "echomq.runtime.telemetry" not in sys.modules:
            return []
        known = zip(self._queues, self._ids, self._answers, strict=True)
        calls = [
            added(queue, answer if isinstance(answer, Admitted) else Admitted(answer, job_id), events=events)
            for queue, job_id, answer in known
            if not isinstance(answer, EchoMQError)
        ]
        return [call for call in calls if call is not None]

    def handles(self) -> list[Job[Any]]:
        """A handle for each, in order; that of one without an answer has the id it was sent under."""
        mq, admitted = self._mq, Admission.ADMITTED
        return [
            Job(job_id, bound.job.name, queue, False, mq, bound.job.keeps(bound.options))
            if answer is admitted
            else self._handle(bound, queue, job_id, answer)
            for bound, queue, job_id, answer in zip(self.bounds, self._queues, self._ids, self._answers, strict=True)
        ]

    def errors(self) -> dict[int, EchoMQError]:
        """The failures by their places."""
        return {place: each for place, each in enumerate(self._answers) if isinstance(each, EchoMQError)}

    def _handle(
        self, bound: Bound[Any], queue: str, job_id: str, answer: Admission | Admitted | EchoMQError
    ) -> Job[Any]:
        job, duplicate = bound.job, False
        if isinstance(answer, Admitted):
            job_id, duplicate = answer.id, answer.verdict is _DUPLICATE
        return Job(job_id, job.name, queue, duplicate, self._mq, duplicate or job.keeps(bound.options))

    def _is_taken(self, place: int) -> bool:
        answer = self._answers[place]
        if isinstance(answer, Admitted):
            return answer.verdict is _DUPLICATE and answer.id == self._ids[place]
        return answer is _DUPLICATE


class Shipment:
    """An iterable of bound calls, taken flight by flight, and what has become of all of them so far."""

    def __init__(self, mq: EchoMQ, bounds: Iterable[Bound[Any]]) -> None:
        if isinstance(bounds, Bound):
            raise InvalidInputError("enqueue_many takes many calls: write enqueue_many([send.s(...), send.s(...)])")
        if not isinstance(bounds, Iterable):
            raise InvalidInputError(f"enqueue_many takes many calls, as in [send.s(...)], not {bounds!r:.200}")
        self._mq = mq
        self._bounds = iter(bounds)
        self._jobs: list[Job[Any]] = []
        self._errors: dict[int, EchoMQError] = {}
        self._ended_by: Exception | None = None

    def flights(self) -> Iterator[Flight | None]:
        """The flights, each made when it is asked for; None at times, for others to have a turn meanwhile.

        What the iterable raises ends them, and `result` tells.
        """
        bounds: list[Bound[Any]] = []
        payloads: list[bytes] = []
        size = 0
        try:
            for bound in self._bounds:
                payload = self._payload(bound)
                bounds.append(bound)
                payloads.append(payload)
                size += len(payload)
                if len(bounds) >= FLIGHT or size >= FLIGHT_BYTES:
                    yield Flight(self._mq, bounds, payloads)
                    bounds, payloads, size = [], [], 0
                elif not len(bounds) % TURN:
                    yield None
        except Exception as error:  # noqa: BLE001  (the user's own code: what is in flight has to land first)
            self._ended_by = error
            return
        if bounds:
            yield Flight(self._mq, bounds, payloads)

    def each(self) -> Iterator[Bound[Any]]:
        """The calls one by one; what making them raises is noted, and comes out in `result`."""
        try:
            for bound in self._bounds:
                self._payload(bound)
                yield bound
        except Exception as error:  # noqa: BLE001  (the caller's iterable may raise anything)
            self._ended_by = error

    def ran(self, bound: Bound[Any], admitted: Admitted) -> None:
        """Takes over a call that was run where it was sent."""
        self._jobs.append(
            Job(admitted.id, bound.job.name, bound.queue, False, self._mq, bound.job.keeps(bound.options))
        )

    def done(self, flight: Flight) -> None:
        """Takes over what has become of a flight."""
        start = len(self._jobs)
        self._jobs += flight.handles()
        self._errors.update((start + place, error) for place, error in flight.errors().items())

    def result(self) -> list[Job[Any]]:
        """A handle for each call, in order.

        `EnqueueManyError` when one was not accepted, or when the iterable raised after something was sent.
        """
        if (error := self._ended_by) is not None:
            if not self._jobs:
                raise error
            raise self._error(f"then making the calls failed with {type(error).__name__}: {error}") from error
        if self._errors:
            raise self._error(f"the first of the others failed with {next(iter(self._errors.values()))}")
        return self._jobs

    def _payload(self, bound: Bound[Any]) -> bytes:
        if not isinstance(bound, Bound):
            raise InvalidInputError(
                f"enqueue_many takes calls such as send.s(...), not {type(bound).__name__}: {bound!r:.200}"
            )
        if bound.job.mq is not self._mq:
            raise InvalidInputError(f"{said(bound)} belongs to another EchoMQ: send it with that one's enqueue_many")
        if bound.takes:
            from echomq.app.holes import word_of

            place, takes = bound.takes[0]
            raise InvalidInputError(
                f"{said_argument(bound, place)} is {word_of(takes)}, which only the jobs before it in a flow or a chain"
                " know: put it into one, or give it a value"
            )
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
