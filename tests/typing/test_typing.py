"""Both type checkers understand the app's surface: they accept what is right and reject each line marked wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

pytestmark = pytest.mark.deadline(300)


def run(*command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def mypy(file: Path) -> dict[int, str]:
    pytest.importorskip("mypy", reason="mypy comes with the dev group, not with the test group")
    out = run("mypy", "--strict", "--no-error-summary", "--hide-error-context", "--no-pretty", str(file))
    found = re.findall(rf"{re.escape(file.name)}:(\d+): error: (.*)", out)
    return {int(line): text for line, text in found}


def basedpyright(file: Path) -> dict[int, str]:
    pytest.importorskip("basedpyright", reason="basedpyright comes with the dev group, not with the test group")
    report = json.loads(run("basedpyright", "--pythonpath", sys.executable, "--outputjson", str(file)))
    assert report["summary"]["filesAnalyzed"] == 1, report
    return {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }


@pytest.mark.parametrize("check", [mypy, basedpyright])
@pytest.mark.parametrize("file", sorted(HERE.glob("right*.py")), ids=lambda file: file.stem)
def test_right_uses_pass(check, file: Path) -> None:
    assert check(file) == {}


@pytest.mark.parametrize("check", [mypy, basedpyright])
@pytest.mark.parametrize("file", sorted(HERE.glob("wrong*.py")), ids=lambda file: file.stem)
def test_every_wrong_use_is_rejected(check, file: Path) -> None:
    wrong = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")}
    found = check(file)
    assert {number: text for number, text in found.items() if number not in wrong} == {}
    assert wrong - found.keys() == set()
