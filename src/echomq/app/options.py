"""The options of one send: when, where, under which key; chosen before the arguments, so that these stay typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Final, TypedDict

import msgspec

from echomq.app.flag import flag
from echomq.app.middleware import Layers
from echomq.app.misfits import reason
from echomq.app.plain import altered, encode_value
from echomq.app.text import check_words
from echomq.app.times import first_ms, limit_ms
from echomq.identity.errors import InvalidInputError
from echomq.identity.minter import wall_clock_ms
from echomq.protocol import admission, jobs
from echomq.protocol.admission import Admitted, admit
from echomq.protocol.call import Call
from echomq.protocol.checks import MAX_MS, integer, name_of
from echomq.protocol.keys import check_queue
from echomq.protocol.lanes import lane_id
from echomq.protocol.replies import Admission


@dataclass(frozen=True, slots=True)
class Dedup:
    """A deduplication key of a queue: while a living job holds it, enqueueing gives that job instead of another one.

    The key is free again when its job completes, dies or is removed, or `window` after the enqueue, whichever is
    first. With `replace` the living job gets the new call's payload, unless it is running: its name, its arguments and
    the options that travel in it. Its id, its time, its lane and its place stay.
    """

    key: str
    window: timedelta | None = None
    replace: bool = False

    def __post_init__(self) -> None:
        self.verb()
        flag("replace of a Dedup", self.replace)

    def verb(self) -> admission.Dedup:
        """The same in the words of the verbs."""
        window_ms = None if self.window is None else limit_ms("the window of a Dedup", self.window)
        return admission.Dedup(name_of("deduplication key", self.key), window_ms, self.replace)


class OptionWords(TypedDict, total=False):
    """What `options(...)` takes; None says nothing."""

    queue: str | None
    """Another queue than the job's own."""
    lane: str | None
    """Any text; each lane of a queue gets its share of the workers."""
    dedup: str | Dedup | None
    """A key, or a `Dedup`: while a living job of the queue holds it, there is no second one."""
    max_attempts: int | None
    """In the place of the job's own."""
    expires: timedelta | None
    """The job does not start later than this after the instant that it is sent for."""
    timeout: timedelta | None
    """How long one run may take."""
    result_ttl: timedelta | None
    """How long its result is kept; zero: not at all."""
    meta: Mapping[str, object] | None
    """A mapping that travels with the job: `current_job().meta`."""


_WORDS: Final = tuple(OptionWords.__annotations__)


@dataclass(frozen=True, slots=True)
class When:
    """When a job can be claimed: an instant on the caller's clock, a delay on the server's, or at once."""

    at_ms: int | None = None
    delay_ms: int | None = None

    def expected_ms(self) -> int:
        """That instant on this host's clock, Unix ms."""
        return self.at_ms if self.at_ms is not None else wall_clock_ms() + (self.delay_ms or 0)


@dataclass(frozen=True, slots=True)
class Options:
    """How one send differs from what `@mq.job` says. None: it does not."""

    when: When = When()
    queue: str | None = None
    lane: str | None = None
    dedup: Dedup | None = None
    max_attempts: int | None = None
    expires_ms: int | None = None
    """How late it may start, from the instant it is sent for."""
    timeout_ms: int | None = None
    result_ttl_ms: int | None = None
    meta: msgspec.Raw | None = None
    on_dead: str | None = None
    """The job that follows its death."""

    def chosen(self, words: OptionWords) -> Options:
        """These options with `words` in the place of their own; `InvalidInputError` names a wrong one."""
        check_words("options", words, _WORDS)
        out = self
        if (queue := words.get("queue")) is not None:
            out = replace(out, queue=check_queue(queue))
        if (lane := words.get("lane")) is not None:
            out = replace(out, lane=name_of("lane", lane))
        if (dedup := words.get("dedup")) is not None:
            out = replace(out, dedup=_dedup(dedup))
        if (most := words.get("max_attempts")) is not None:
            out = replace(out, max_attempts=integer("max_attempts", most, least=1))
        if (expires := words.get("expires")) is not None:
            out = replace(out, expires_ms=limit_ms("expires", expires))
        if (timeout := words.get("timeout")) is not None:
            out = replace(out, timeout_ms=limit_ms("timeout", timeout))
        if (result_ttl := words.get("result_ttl")) is not None:
            out = replace(out, result_ttl_ms=first_ms("result_ttl", result_ttl))
        if (meta := words.get("meta")) is not None:
            out = replace(out, meta=_meta(meta))
        return out

    def followed(self, on_dead: str | None) -> Options:
        """These options, with a job that follows the death."""
        return self if on_dead is None else replace(self, on_dead=on_dead)

    def stamped(self, layers: Layers, name: str, queue: str) -> Options:
        """These options with the `meta` that the hooks before a send make of theirs; raises what those raise."""
        meta: dict[str, object] = {} if self.meta is None else msgspec.json.decode(self.meta)
        meta = layers.sending(name, queue, meta)
        return replace(self, meta=_meta(meta)) if meta else self

    def timed(self, when: When) -> Options:
        """These options for another time."""
        return replace(self, when=when)

    def members(self) -> dict[str, object]:
        """What of it travels in the envelope (protocol §13), but for `expires_ms`, which counts from the sending."""
        out: dict[str, object] = {}
        if self.max_attempts is not None:
            out["max_attempts"] = self.max_attempts
        if self.timeout_ms is not None:
            out["timeout_ms"] = self.timeout_ms
        if self.result_ttl_ms is not None:
            out["result_ttl_ms"] = self.result_ttl_ms
        if self.meta is not None:
            out["meta"] = self.meta
        if self.dedup is not None and self.dedup.replace:
            # It may become the payload of a job that was sent for another time, and keeps that.
            out["at_ms"] = False
        elif self.when.at_ms is not None:
            out["at_ms"] = self.when.at_ms
        elif self.when.delay_ms is not None:
            out["delay_ms"] = self.when.delay_ms
        if self.on_dead is not None:
            out["on_dead"] = self.on_dead
        return out

    def expires_at_ms(self) -> int:
        """The instant after which a job that is sent now is not to start, Unix ms by this host's clock."""
        return min(self.when.expected_ms() + (self.expires_ms or MAX_MS), MAX_MS)

    @property
    def is_bulk(self) -> bool:
        """Whether the plain verb says it all, so that many go in one call."""
        return self is PLAIN or (self.lane is None and self.dedup is None and self.when == When())

    def admit(self, queue: str, job_id: str, payload: bytes) -> Call[Admission] | Call[Admitted]:
        """The call that admits the job: the plain verb where that says it all."""
        when = self.when
        if self.lane is None and self.dedup is None:
            if when.at_ms is not None:
                return jobs.enqueue_at(queue, job_id, payload, at_ms=when.at_ms)
            if when.delay_ms is not None:
                return jobs.enqueue_in(queue, job_id, payload, delay_ms=when.delay_ms)
            return jobs.enqueue(queue, job_id, payload)
        return admit(
            queue,
            job_id,
            payload,
            at_ms=when.at_ms,
            delay_ms=when.delay_ms,
            group=None if self.lane is None else _group(self.lane),
            lane_text=self.lane or "",
            dedup=None if self.dedup is None else self.dedup.verb(),
        )


_group: Final = lru_cache(maxsize=4_096)(lane_id)

PLAIN: Final = Options()
"""No option at all."""


def _dedup(value: str | Dedup) -> Dedup:
    if isinstance(value, Dedup):
        return value
    if isinstance(value, str):
        return Dedup(value)
    raise InvalidInputError(f"dedup must be a key or a Dedup, not {type(value).__name__}: {value!r}")


def _meta(value: Mapping[str, object]) -> msgspec.Raw:
    """Encoded here and now: what the caller changes afterwards is not sent."""
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"meta must be a mapping, not {type(value).__name__}: {value!r}")
    plain = dict(value)
    if why := altered(plain):
        raise InvalidInputError(f"meta cannot be serialised: {why}")
    try:
        return msgspec.Raw(encode_value(plain))
    except Exception as error:
        raise InvalidInputError(f"meta cannot be serialised: {reason(error)}") from error
