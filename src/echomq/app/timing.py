"""When a recurrence runs and what it does about what it missed: the words of `every(...)` and `cron(...)`, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict, cast

from echomq.app.flag import flag
from echomq.app.text import check_words
from echomq.app.times import Span, first_ms, instant_ms, period_ms
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import MAX_MS, integer
from echomq.protocol.recurring import MAX_CATCH_UP, Definition


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What becomes of slots that passed while no worker was there: `CatchUp.all(10)`, or the words `skip` and `one`."""

    policy: Literal["skip", "one", "all"]
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise InvalidInputError(_not_a_policy(self.policy))
        if (self.policy == "all") != (self.limit is not None):
            raise InvalidInputError("catch_up 'all' takes a limit, as in CatchUp.all(10); 'skip' and 'one' take none")
        if self.limit is not None:
            integer("the limit of catch_up", self.limit, least=1, most=MAX_CATCH_UP)

    @staticmethod
    def all(limit: int) -> CatchUp:
        """An occurrence for each missed slot, the newest `limit` (at most 1,000), oldest first."""
        return CatchUp("all", limit)


CatchUpWord: TypeAlias = Literal["skip", "one"] | tuple[Literal["all"], int] | CatchUp
_POLICIES: Final = ("skip", "one", "all")
_OVERLAPS: Final = ("allow", "skip")


class TimingWords(TypedDict, total=False):
    """What `every` and `cron` take both; None says nothing."""

    jitter: float | timedelta | None
    """In seconds, or a timedelta: each occurrence is put off by up to that, the same for a name and a slot everywhere.
    No longer than the period."""
    catch_up: CatchUpWord | None
    """What becomes of slots that passed while no worker was there: one occurrence for them all, the default; none
    (`skip`); or each its own, the newest so many (`CatchUp.all(10)`)."""
    overlap: Literal["allow", "skip"] | None
    """`skip`: no occurrence while the last one is pending, scheduled, active or held; `allow` is the default."""
    start: datetime | None
    """An aware datetime: no slot lies before it. A grid without an anchor goes through it."""
    end: datetime | None
    """An aware datetime: no slot lies after it."""
    max_runs: int | None
    """After so many occurrences it is over."""
    paused: bool | None
    """Whether it is registered paused; unless given it stays as it is, and a new one is not."""


class EveryWords(Span, TimingWords, total=False):
    """What `every` takes: a period in keywords that add up, and the options of its slots."""

    anchor: datetime | None
    """An aware datetime that is a slot: slot n is anchor + n x period, for every whole n."""
    first_in: timedelta | None
    """How long after its registration the first slot is, on the server's clock. By default at once, or where its
    period has changed a new period after the last slot."""


class CronWords(TimingWords, total=False):
    """What `cron` takes beside its line."""

    tz: str | None
    """The IANA name of the zone whose wall clock counts, such as `Europe/Berlin`; UTC unless given."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The words of `every` or `cron`, checked: a definition without a template, and what is said at a registration."""

    definition: Definition
    first_in_ms: int | None = None
    paused: bool | None = None

    @property
    def base_ms(self) -> int | None:
        """An instant that is a slot, when one was named."""
        definition = self.definition
        if definition.every_ms is None:
            return None
        return definition.anchor_ms if definition.anchor_ms is not None else definition.start_ms

    def of(self, template: bytes, **more: Any) -> Definition:
        """The whole definition of a recurrence."""
        return replace(self.definition, template=template, **more)


_SPAN: Final = tuple(Span.__annotations__)
_FOR_EVERY: Final = (*_SPAN, "anchor", "first_in")
_FOR_CRON: Final = ("tz",)
_FOR_BOTH: Final = tuple(TimingWords.__annotations__)
_ELSEWHERE: Final = {
    "tz": "a period is as long in every zone; for times on a wall clock use cron('0 9 * * *', tz=...)",
    "anchor": "its line says when; anchor is for every(...)",
    "first_in": "its line says when; first_in is for every(...), and start=... gives a cron line its first instant",
}


def every_timing(period: timedelta | None, words: EveryWords) -> Timing:
    """The timing of `every(...)`; `InvalidInputError` names what is wrong with it."""
    _known("every", words, _FOR_EVERY + _FOR_BOTH)
    spans = cast("Span", {word: value for word, value in words.items() if word in _SPAN})
    every_ms = period_ms("every", period, spans)
    anchor, first_in, start = words.get("anchor"), words.get("first_in"), words.get("start")
    if first_in is not None and (anchor is not None or start is not None):
        raise InvalidInputError(
            f"every(...) takes first_in, from its registration on, or {'anchor' if anchor else 'start'}, an instant, "
            "but not both"
        )
    definition = Definition(b"", every_ms=every_ms)
    if anchor is not None:
        anchor_ms = _instant("anchor", anchor)
        definition = replace(definition, anchor_ms=anchor_ms if anchor_ms >= 0 else anchor_ms % every_ms)
    return _timing(definition, words, first_in_ms=None if first_in is None else first_ms("first_in", first_in))


def cron_timing(line: str, words: CronWords) -> Timing:
    """The timing of `cron(...)`; `InvalidInputError` names what is wrong with it."""
    # Imported when used: a program that only sends has no calendar.
    from echomq.runtime.calendar import new_line, zone

    _known("cron", words, _FOR_CRON + _FOR_BOTH)
    tz = words.get("tz")
    if tz is not None:
        zone(tz)
    return _timing(Definition(b"", line=new_line(line), tz=tz or "UTC"), words)


def _timing(definition: Definition, words: TimingWords, *, first_in_ms: int | None = None) -> Timing:
    start, end, most = words.get("start"), words.get("end"), words.get("max_runs")
    catch_up = _catch_up(words.get("catch_up"))
    overlap = words.get("overlap")
    if overlap is not None and overlap not in _OVERLAPS:
        raise InvalidInputError(f"overlap must be 'allow' or 'skip', not {overlap!r:.80}")
    if overlap == "skip" and (catch_up.limit or 0) > 1:
        raise InvalidInputError(
            f"catch_up=all({catch_up.limit}) admits several occurrences at once, and overlap='skip' forbids that: "
            "catch up with 'one', or allow overlap"
        )
    paused = words.get("paused")
    if paused is not None:
        flag("paused", paused)
    definition = replace(
        definition,
        start_ms=None if start is None else instant_ms("start", start),
        end_ms=None if end is None else instant_ms("end", end),
        catch_up=catch_up.policy,
        catch_up_limit=catch_up.limit,
        overlap=overlap or "allow",
        max_runs=None if most is None else integer("max_runs", most, least=1),
    )
    jitter = words.get("jitter")
    if jitter is not None:
        definition = replace(definition, jitter_ms=_jitter_ms(definition, jitter))
    if definition.end_ms is not None:
        _check_span(definition, start, end)
    return Timing(definition, first_in_ms, paused)


def _known(what: str, words: Mapping[str, object], takes: tuple[str, ...]) -> None:
    for word, why in _ELSEWHERE.items():
        if word in words and word not in takes:
            raise InvalidInputError(f"{what}(...) takes no {word}: {why}")
    check_words(what, words, takes)


def _instant(what: str, when: datetime) -> int:
    """As `instant_ms`, but an anchor may lie before 1970."""
    at_ms = instant_ms(what, when)
    if at_ms:
        return at_ms
    return -((datetime.fromtimestamp(0, when.tzinfo) - when) // timedelta(milliseconds=1))


def _catch_up(word: CatchUpWord | None) -> CatchUp:
    if word is None:
        return CatchUp("one")
    if isinstance(word, CatchUp):
        return word
    if isinstance(word, tuple) and len(word) == 2:
        return CatchUp(*word)
    if word == "skip" or word == "one":
        return CatchUp(word)
    raise InvalidInputError(_not_a_policy(word))


def _not_a_policy(word: object) -> str:
    return f"catch_up must be 'skip', 'one' or CatchUp.all(limit), as in CatchUp.all(10), not {word!r:.80}"


def _jitter_ms(definition: Definition, jitter: float | timedelta) -> int:
    if isinstance(jitter, bool) or not isinstance(jitter, (int, float, timedelta)):
        raise InvalidInputError(f"jitter must be seconds or a timedelta, not {type(jitter).__name__}: {jitter!r:.80}")
    try:
        span = jitter if isinstance(jitter, timedelta) else timedelta(seconds=jitter)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"jitter must be a span of time in seconds, not {jitter!r}") from None
    jitter_ms = first_ms("jitter", span)
    if jitter_ms:
        from echomq.runtime.timetable import timetable

        period = timetable("", definition, 0).slots.shortest_ms()
        if jitter_ms > period > 0:
            raise InvalidInputError(
                f"jitter of {jitter_ms / 1_000:g} s is longer than the shortest period of its slots, "
                f"{period / 1_000:g} s: that is the most it can be"
            )
    return jitter_ms


def _check_span(definition: Definition, start: datetime | None, end: datetime | None) -> None:
    from echomq.runtime.timetable import timetable

    if start is not None and end is not None and start > end:
        raise InvalidInputError(f"start {start.isoformat()} lies after end {end.isoformat()}: exchange them")
    if definition.start_ms is None or (definition.every_ms is not None and definition.anchor_ms is None):
        return
    table = timetable("", replace(definition, end_ms=None), 0)
    following = table.following(definition.start_ms - 1)
    if following is None or following > (definition.end_ms or MAX_MS):
        from echomq.runtime.calendar import instant

        when = "never" if following is None else instant(following).isoformat()
        raise InvalidInputError(f"no slot lies from start to end: the first one after start is {when}")
