"""`import echomq` is a face: it defines nothing, costs next to nothing, and has what it says it has."""

from __future__ import annotations

import subprocess
import sys

import pytest

import echomq
import echomq.errors
import echomq.protocol.errors

HEAVY = ("asyncio", "hiredis", "msgspec", "rich", "ssl", "typer", "uvloop")


@pytest.mark.parametrize("name", echomq.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(echomq, name) is not None
    assert name in dir(echomq)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        echomq.nothing  # noqa: B018


def test_every_error_of_the_family_is_in_errors() -> None:
    family = {name for name in echomq.protocol.errors.__all__ if name.endswith("Error")}
    assert family <= set(echomq.errors.__all__)
    for name in echomq.errors.__all__:
        kind = getattr(echomq.errors, name)
        assert issubclass(kind, echomq.EchoMQError | RuntimeWarning)


def test_importing_it_loads_nothing_heavy() -> None:
    code = f"import sys, echomq; print([name for name in {HEAVY!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
