"""The example of tests, as it is: its own tests pass, and fail where the app is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import echomq

EXAMPLE = Path(__file__).parents[2] / "examples" / "testing"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    source = str(Path(echomq.__file__).parents[1])
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "pytest",
            "-p",
            "echomq.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "test_tasks.py",
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_its_tests_pass() -> None:
    done = run(EXAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_and_fail_where_the_app_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "testing"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    tasks = folder / "tasks.py"
    tasks.write_text(tasks.read_text().replace("timedelta(days=7)", "timedelta(days=8)"))
    done = run(folder)
    assert "1 failed, 4 passed" in done.stdout, done.stdout
