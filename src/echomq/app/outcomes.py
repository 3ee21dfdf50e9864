"""Outcomes in plain words, for the line between a worker and its cells."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from echomq.runtime.outcome import Bury, Done, Lapsed, Later, Outcome, Released, Retry

_KINDS: Final[dict[str, Any]] = {each.__name__: each for each in (Done, Retry, Later, Bury, Released, Lapsed)}


def said(outcome: Outcome) -> tuple[str, dict[str, object]]:
    """An outcome in words."""
    name = type(outcome).__name__
    return name, {each.name: getattr(outcome, each.name) for each in fields(_KINDS[name])}


def heard(name: str, members: dict[str, Any]) -> Outcome:
    """The outcome that such words say."""
    outcome: Outcome = _KINDS[name](**members)
    return outcome
