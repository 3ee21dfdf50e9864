"""What a worker has follow the jobs that it settles: their outcomes with the jobs that are admitted along with them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from echomq.app.envelope import Envelope, decode, opened, written
from echomq.app.errors import EnvelopeError
from echomq.app.follow import Failure, Success
from echomq.app.misfits import discreet
from echomq.identity.minter import mint
from echomq.protocol.checks import payload_of
from echomq.protocol.errors import PayloadTooLargeError
from echomq.protocol.follow import Follow, Owed
from echomq.protocol.replies import Claimed
from echomq.runtime.outcome import Bury, Done, Outcome, Retry, brief

if TYPE_CHECKING:
    from echomq.app.job import JobFunction

log: Final = logging.getLogger("echomq.worker")


class Succession:
    """What follows the jobs of one app, given by their names."""

    def __init__(self, jobs: Mapping[str, JobFunction[..., Any]]) -> None:
        self._jobs = jobs

    def after(
        self, outcome: Outcome, job: JobFunction[..., Any], queue: str, claimed: Claimed, envelope: Envelope
    ) -> Outcome:
        """The outcome with what follows it."""
        follows = job.defaults.follows
        attempt = claimed.failures + 1
        if isinstance(outcome, Done):
            if follows.on_success is None:
                return outcome
            told = _Told(claimed.id, job, job.name, queue, envelope)
            success = Success(
                claimed.id, job.name, queue, attempt, job.returns.plain(payload_of(outcome.result)), *told.rest()
            )
            return replace(outcome, then=self._job(follows.on_success, success))
        told = _Told(claimed.id, job, job.name, queue, envelope)
        if isinstance(outcome, Retry):
            dead = attempt >= (outcome.max_attempts or job.defaults.max_attempts)
            failure = told.failure(attempt, outcome.error, None if dead else outcome.delay_ms, dead=dead)
            return replace(
                outcome,
                then=self._job(follows.on_failure, failure),
                at_death=self._job(follows.on_dead, failure) if dead else None,
            )
        if isinstance(outcome, Bury):
            failure = told.failure(attempt, outcome.error, dead=True)
            return replace(outcome, at_death=self._job(follows.on_dead, failure))
        return outcome

    def death(self, queue: str, owed: Owed) -> Follow | None:
        """What follows a death in nobody's hands; None when its envelope does not say."""
        try:
            envelope = decode(owed.payload)
        except EnvelopeError:
            return None
        if not isinstance(envelope.on_dead, str):
            return None
        job = self._jobs.get(envelope.job)
        told = _Told(owed.id, job, envelope.job if job is None else job.name, queue, envelope)
        # A lapse ends an attempt that no failure counts.
        attempt = owed.failures + 1 if owed.stalled and owed.error.startswith("stalled") else owed.failures
        return self._job(envelope.on_dead, told.failure(attempt, owed.error, dead=True))

    def _job(self, name: str | None, record: Success | Failure) -> Follow | None:
        """The job of that name with the record as its argument; without arguments and result where it is too much."""
        if name is None:
            return None
        try:
            try:
                return Follow(mint(), self._payload(name, record))
            except PayloadTooLargeError:
                less = {"args": None, "kwargs": None} | ({"result": None} if isinstance(record, Success) else {})
                short = msgspec.structs.replace(record, **less)
                return Follow(mint(), self._payload(name, short))
        except Exception as error:  # noqa: BLE001  (a codec may raise anything)
            # Without its own text, which may quote the arguments.
            why = discreet(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            log.error("%s: %s cannot follow it: %s", record.id, brief(name), why)
            return None

    def _payload(self, name: str, record: Success | Failure) -> bytes:
        job = self._jobs.get(name)
        args = (msgspec.to_builtins(record),)
        if job is not None:
            return job.payload(args, {}, job.stamped(job.defaults.sends))
        # Known to another worker of the queue, as in a rolling deploy; every job of this one is of the same app.
        mq = next(iter(self._jobs.values())).mq
        return written(name, args, {}, codec=mq.codecs.first, max_bytes=mq.max_payload)


class _Told:
    """What both records say of a job."""

    __slots__ = ("_envelope", "_job", "id", "name", "queue")

    def __init__(
        self, job_id: str, job: JobFunction[..., Any] | None, name: str, queue: str, envelope: Envelope
    ) -> None:
        self.id = job_id
        self.name = name
        self.queue = queue
        self._job = job
        self._envelope = envelope

    def rest(self) -> tuple[list[Any] | None, dict[str, Any] | None, dict[str, Any] | None]:
        """Its arguments and its meta."""
        sent = self._envelope
        if sent.codec is not None:
            codec = None if self._job is None else self._job.mq.codecs.get(sent.codec)
            try:
                sent = sent if codec is None else opened(sent, codec)
            except EnvelopeError:
                codec = None
            if codec is None:
                return None, None, sent.meta
        return sent.args, sent.kwargs, sent.meta

    def failure(self, attempt: int, error: str, retry_in_ms: int | None = None, *, dead: bool) -> Failure:
        """The record of a failure."""
        # As the row has it: an error may quote what is no Unicode, a file's name say.
        error = error.encode("utf-8", "backslashreplace").decode()
        return Failure(self.id, self.name, self.queue, attempt, error, dead, retry_in_ms, *self.rest())
