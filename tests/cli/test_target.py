"""`MODULE:OBJECT`: the app that it names, or one sentence with the nearest that exists."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from echomq import EchoMQ, InvalidInputError, Worker
from echomq.app.target import load

TASKS = """
from echomq import EchoMQ

mq = EchoMQ("valkey://localhost:1")
spare = EchoMQ("valkey://localhost:1")
number = 5

class shop:
    mq = mq

@mq.job(name="greet")
def greet(name): ...
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with `tasks.py` and `pkg/tasks.py`, forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.mark.parametrize("target", ["tasks:mq", "pkg.tasks:mq", "tasks:shop.mq"])
def test_the_app_is_found_from_the_current_folder(here: Path, target: str) -> None:
    assert isinstance(load(target), EchoMQ)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("taks:mq", r"no module named 'taks' in {here}; nearest: 'tasks'"),
        ("pkg.taks:mq", r"no module named 'pkg.taks' in {here}; nearest: 'pkg.tasks'"),
        ("pgk.tasks:mq", r"no module named 'pgk' in {here}; nearest: 'pkg'"),
        ("tasks:mp", "module 'tasks' has no 'mp'; write tasks:mq"),
        ("tasks:shop.mp", "module 'tasks' has no 'shop.mp'; write tasks:mq or tasks:spare"),
        ("tasks:number", "tasks:number is not an EchoMQ but of type int; write tasks:mq or tasks:spare"),
        ("tasks:greet", "tasks:greet is not an EchoMQ but of type PlainJob; write tasks:mq or tasks:spare"),
        ("tasks", "'tasks' names no object of its module; write tasks:mq or tasks:spare"),
        ("tasks:", "'tasks:' is not MODULE:OBJECT, as in tasks:mq"),
        (":mq", "':mq' is not MODULE:OBJECT, as in tasks:mq"),
        ("", "'' is not MODULE:OBJECT, as in tasks:mq"),
        ("tasks.py:mq", "'tasks.py' is a file; write its module, as in tasks:mq"),
        ("./pkg/tasks.py", "'./pkg/tasks.py' is a file; write its module, as in pkg.tasks:mq"),
        ("json:dumps", "json:dumps is not an EchoMQ but of type function; no EchoMQ is defined in 'json'"),
        ("tasks:spare", "this EchoMQ has no jobs yet"),
    ],
)
def test_a_wrong_target_is_told_with_the_nearest_right_one(here: Path, target: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Worker(load(target))
    assert str(caught.value).startswith(said.format(here=here))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_like_it", "module 'broken' cannot be imported: ModuleNotFoundError: No module named"),
        ("1 / 0", "module 'broken' cannot be imported: ZeroDivisionError: division by zero"),
        ("def (", "module 'broken' cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "module 'broken' cannot be imported: it exits with 3"),
        ("import echomq; echomq.EchoMQ().job(timeout=5)", "module 'broken' cannot be imported: InvalidInputError"),
        ("import echomq; echomq.EchoMQ().job(que='a')", "module 'broken' cannot be imported: TypeError"),
    ],
)
def test_a_module_that_fails_says_what_and_where(here: Path, text: str, said: str) -> None:
    (here / "broken.py").write_text(f"\n{text}\n")
    with pytest.raises(InvalidInputError) as caught:
        load("broken:mq")
    assert str(caught.value).startswith(said)
    if "SyntaxError" not in said:
        assert f"{here}/broken.py, line 2" in str(caught.value)
