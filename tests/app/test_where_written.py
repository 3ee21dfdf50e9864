"""What no worker could serve is refused where the job is written, as soon as every name in its annotations is known."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import datetime
from types import ModuleType
from typing import Any
from uuid import UUID

import msgspec
import pytest

from echomq import Cron, Depends, EchoMQ, Every
from echomq.app.declared import sync
from echomq.errors import JobDefinitionError, SerializationError
from support.servers import Server

NOWHERE = "valkey://localhost:1"


@dataclass
class Page:
    number: int


@dataclass
class Sheet:
    number: int


class Box(msgspec.Struct):
    inside: Sheet


class Crate(msgspec.Struct):
    inside: Page


class Model:
    """As much of a model of pydantic's as tells it from other classes."""

    def model_dump_json(self) -> str:
        return "{}"

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        return cls()


def taking(annotation: Any) -> Any:
    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": annotation}
    return take


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (datetime | str, r"the members of datetime.datetime \| str are all text there, .*: write one of them, or give"),
        (list[UUID | str], r"the members of uuid.UUID \| str are all text there"),
        (list[int] | set[int], r"list\[int\] \| set\[int\] are all lists there"),
        (dict[str, int] | Page, r"are all objects there, and nothing tells which was sent: write one of them"),
        (Page | Sheet, r"Page \| .*Sheet are all objects there, .* class Page\(msgspec.Struct, tag=True\)"),
        (Box | Crate, r"Box \| .*Crate are all objects there, .*tag=True"),
        (Model | int, "a class that msgspec does not know, which goes with nothing but None: write one of them"),
    ],
)
def test_a_union_that_json_cannot_tell_apart_is_refused_at_the_decorator(annotation: Any, says: str) -> None:
    mq = EchoMQ(NOWHERE)
    with pytest.raises(JobDefinitionError, match=f"^argument 'value' of job 'take' has an annotation .*: .*{says}"):
        mq.job(name="take")(taking(annotation))
    assert not mq.jobs


@pytest.mark.parametrize(
    "schedule", [Every(minutes=1, args=("a",)), [Cron("@daily", kwargs={"x": None}), Every(hours=1, name="e")]]
)
def test_an_argument_of_a_schedule_that_does_not_fit_is_refused_at_the_decorator(schedule: Any) -> None:
    mq = EchoMQ(NOWHERE)
    with pytest.raises(JobDefinitionError, match=r"job 'f' cannot run by schedule=.*: argument 'x' .* Expected `int`"):

        @mq.job(name="f", schedule=schedule)
        def f(x: int = 1) -> None: ...

    assert not mq.jobs

    @mq.job(name="f", schedule=Every(minutes=1, args=(5,)))
    def g(x: int, seen: Any = Depends(dict)) -> None: ...


def test_a_name_that_is_defined_later_is_waited_for(
    server: Server, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forward reference is read when it is first used: by a send, a worker's start, or a registration."""
    module = ModuleType("later")
    monkeypatch.setitem(sys.modules, "later", module)
    code = module.__dict__
    code["msgspec"] = msgspec
    source = """
from __future__ import annotations
def f(x: Later) -> None: ...
class Wrapped(msgspec.Struct):
    inside: Later
def g(x: Wrapped) -> None: ...
"""
    exec(compile(source, "later.py", "exec", dont_inherit=True), code)
    with EchoMQ(server.url, default_queue=queue) as mq:
        f = mq.job(name="f", schedule=Every(hours=1, args=("a",)))(code["f"])
        g = mq.job(name="g")(code["g"])
        for job in (f, g):
            with pytest.raises(JobDefinitionError, match="cannot be resolved: name 'Later' is not defined"):
                job.enqueue(1)
        code["Later"] = int
        f.enqueue(1)
        g.enqueue(code["Wrapped"](1))
        with pytest.raises(SerializationError, match="argument 'x' of job 'f' does not fit"):
            mq.run(sync(mq, mq.queues))


def test_a_hundred_jobs_are_written_in_less_than_a_millisecond_each() -> None:
    source = "\n".join(
        f"@mq.job(name='job{n}')\ndef job{n}(to: str, at: datetime, page: Page, tags: list[int] | None = None): ..."
        for n in range(100)
    )
    code = compile(source, "hundred.py", "exec")
    best = min(_written(code) for _ in range(5))
    assert best < 0.1


def _written(code: Any) -> float:
    began = time.process_time()
    exec(code, {"mq": EchoMQ(NOWHERE), "datetime": datetime, "Page": Page})
    return time.process_time() - began
