"""Runs scenarios one after another, each on its own queue, and says how each ended."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum

from echomq.conformance import soundness
from echomq.conformance.bench import Bench
from echomq.conformance.desk import Desk
from echomq.conformance.scenario import BreachError, LackError, Scenario
from echomq.protocol.errors import EchoMQError, WireError


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

    Raises the `WireError` of a scenario after which the server does not answer any more.
    """
    try:
        for each in scenarios:
            yield _one(bench, each)
    finally:
        if bench.alive():
            bench.delete(bench.scan("emq:{" + bench.prefix))


def _one(bench: Bench, scenario: Scenario) -> Result:
    desk = Desk(bench, f"{bench.prefix}-{scenario.name}")
    status, seen = Status.OK, ""
    began = time.perf_counter()
    try:
        scenario.act(desk)
        if not scenario.strays:
            found = [breach for each in desk.desks() for breach in soundness.breaches(each)]
            if found:
                raise BreachError("afterwards " + "; ".join(found[:3]))
    except BreachError as breach:
        status, seen = Status.FAIL, str(breach)
    except LackError as lack:
        status, seen = Status.SKIP, str(lack)
    except WireError as error:
        if not bench.alive():
            raise
        status, seen = Status.FAIL, f"{type(error).__name__}: {error}"
    except EchoMQError as error:
        status, seen = Status.FAIL, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  (a server that breaks the contract may make anything of a reply)
        status, seen = Status.FAIL, f"the reply cannot be read: {type(error).__name__}: {error}"
    finally:
        if bench.alive():
            desk.clear()
    return Result(scenario.name, scenario.contract, status, " ".join(seen.split()), time.perf_counter() - began)
