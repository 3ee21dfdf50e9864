"""How a plan is run: its calls one after another, each sent what the one before it answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from types import coroutine
from typing import Any, TypeVar

from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import EchoMQError, InvalidInputError

T = TypeVar("T")


async def drive(plan: Plan[T], submit: Callable[[Call[Any]], Awaitable[Any]]) -> T:
    """What `plan` returns when `submit` runs its calls; an `EchoMQError` of a call is raised inside the plan.

    `InvalidInputError` for what is no plan: it is where everything ends up that a connector was told to run.
    """
    if not isinstance(plan, Generator):
        raise no_call(plan)
    try:
        call = next(plan)
        while True:
            try:
                value = await submit(call)
            except EchoMQError as error:
                call = plan.throw(error)
            else:
                call = plan.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        plan.close()


def drive_blocking(plan: Plan[T], run: Callable[[Call[Any]], Any]) -> T:
    """The same where `run` gives the answer itself: the coroutine never has anything to wait for."""

    async def submit(call: Call[Any]) -> Any:
        return run(call)

    try:
        drive(plan, submit).send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a plan waited, though every answer was there")


def mapped(plan: Plan[T], change: Callable[[Call[Any]], Call[Any]]) -> Plan[T]:
    """The same plan, each of its calls as `change` gives it."""

    @coroutine
    def submit(call: Call[Any]) -> Generator[Call[Any], Any, Any]:
        return (yield change(call))

    return (yield from drive(plan, submit).__await__())


def no_call(value: object) -> InvalidInputError:
    """Why something cannot be sent that is no `Call`."""
    if isinstance(value, Generator):
        return InvalidInputError(
            "a plan, such as lanes.drain(...) gives, is several calls: give it to run alone, or to yield from in a plan"
        )
    return InvalidInputError(f"run takes a call such as jobs.claim('mail'), not {type(value).__name__}: {value!r:.200}")


def check_calls(calls: object) -> None:
    """`InvalidInputError` for what `run_many` cannot take one by one."""
    if isinstance(calls, (str, bytes)) or not isinstance(calls, Iterable):
        raise InvalidInputError(
            f"run_many takes a list of calls such as [jobs.claim('mail')], not {type(calls).__name__}: {calls!r:.200}"
        )
