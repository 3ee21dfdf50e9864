"""Runs scenarios one after another, each on its own queue, and says how each ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum

from echomq.conformance import soundness, trial
from echomq.conformance.bench import Bench
from echomq.conformance.desk import Desk
from echomq.conformance.rights import is_denied, lacking
from echomq.conformance.scenario import BreachError, LackError, Scenario
from echomq.conformance.span import SCENARIO_S
from echomq.protocol.errors import EchoMQError, ServerError, WireError


class Status(Enum):
    """How a scenario ended."""

    OK = "ok"
    FAIL = "FAIL"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Result:
    """One scenario's end: `seen` is what was seen instead of the contract, or the reason to skip it."""

    name: str
    contract: str
    status: Status
    seen: str
    seconds: float


def run(bench: Bench, scenarios: Iterable[Scenario]) -> Generator[Result, None, None]:
    """The results as they come. Whatever happens, the keys of this run are taken away in the end.

    A scenario that takes longer than `SCENARIO_S` is a failure, and so is one whose keys cannot be taken away; for
    those of the whole run there is then a last result, `cleaning`. Raises what `trial.check` raises before the first
    scenario, and the `WireError` of a scenario after which the server does not answer any more.
    """
    began, failed = time.perf_counter(), ""
    try:
        trial.check(Desk(bench, f"{bench.prefix}-trial"))
        for each in scenarios:
            yield _one(bench, each)
            began = time.perf_counter()
    finally:
        failed = _cleaned(bench, lambda: bench.delete(bench.scan("emq:{" + bench.prefix)))
    if failed:
        contract = "A run takes away every key that it wrote."
        yield Result("cleaning", contract, Status.FAIL, failed, time.perf_counter() - began)


def _cleaned(bench: Bench, clean: Callable[[], None]) -> str:
    """Why the keys could not be taken away; nothing when they were, or when the server does not answer any more."""
    if not bench.alive():
        return ""
    try:
        clean()
    except EchoMQError as error:
        return f"its keys could not be taken away: {error}"
    return ""


def _one(bench: Bench, scenario: Scenario) -> Result:
    desk = Desk(bench, f"{bench.prefix}-{scenario.name}")
    status, seen = Status.OK, ""
    began = time.perf_counter()

    def act() -> None:
        scenario.act(desk)
        if not scenario.strays:
            found = [breach for each in desk.desks() for breach in soundness.breaches(each)]
            if found:
                raise BreachError("afterwards " + "; ".join(found[:3]))

    try:
        bench.time(SCENARIO_S, act)
    except BreachError as breach:
        status, seen = Status.FAIL, str(breach)
    except LackError as lack:
        status, seen = Status.SKIP, str(lack)
    except WireError as error:
        if not bench.alive():
            raise
        status, seen = Status.FAIL, f"{type(error).__name__}: {error}"
    except EchoMQError as error:
        denied = isinstance(error, ServerError) and is_denied(error)
        status = Status.SKIP if denied else Status.FAIL
        seen = lacking(error) if isinstance(error, ServerError) and denied else f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  (a server that breaks the contract may make anything of a reply)
        status, seen = Status.FAIL, f"the reply cannot be read: {type(error).__name__}: {error}"
    finally:
        left = _cleaned(bench, desk.clear)
    if left:
        status, seen = Status.FAIL, "; ".join(filter(None, (seen, left)))
    return Result(scenario.name, scenario.contract, status, " ".join(seen.split()), time.perf_counter() - began)
