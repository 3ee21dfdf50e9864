"""The module under the address and undefined-behaviour sanitizers, for a few seconds (`make fuzz` takes longer)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FUZZ = ROOT / "native" / "fuzz"
SECONDS = 6

pytestmark = pytest.mark.chaos


def shell(*words: str | Path, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, to be broken."""
    folder = tmp_path_factory.mktemp("fuzz") / "native"
    shutil.copytree(ROOT / "native", folder)
    return folder


@pytest.mark.deadline(120)
def test_nothing_is_reported_in_a_host_of_our_own_nor_in_a_server(native: Path) -> None:
    done = shell("sh", FUZZ / "run", str(SECONDS), ECHOMQ_PYTHON=sys.executable)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("fuzz: no report\n")
    assert "every invariant held" in done.stdout


@pytest.mark.deadline(120)
@pytest.mark.parametrize(
    ("file", "right", "wrong", "report"),
    [
        ("keys.c", "length <= sizeof small ?", "length <= sizeof small + 8 ?", "stack-buffer-overflow"),
        (
            "row.c",
            'RedisModule_Replicate(queue->ctx, "HSET", "sss", row, emq_words.state, state);',
            "",
            "a replica holds",
        ),
    ],
    ids=["a step beyond a buffer", "a write that is not replicated"],
)
def test_a_fault_that_is_planted_is_found(native: Path, file: str, right: str, wrong: str, report: str) -> None:
    source = native / file
    text = source.read_text()
    assert right in text
    folder = native / "built"
    try:
        source.write_text(text.replace(right, wrong))
        built = shell("sh", native / "fuzz" / "build", folder, "host")
        assert built.returncode == 0, built.stdout + built.stderr
        words = (folder / "fuzz", "-max_total_time=20", "-seed=1", native / "fuzz" / "corpus")
        done = shell(*words, cwd=folder, ASAN_OPTIONS="abort_on_error=1:detect_leaks=0")
        assert done.returncode != 0
        assert report in done.stdout + done.stderr
    finally:
        source.write_text(text)
