"""A program that has waited for a result ends without a word, on the embedded server, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import echomq

PROGRAM = """
import sys
from datetime import timedelta
from echomq import EchoMQ
from echomq.errors import EchoMQError

mq = EchoMQ(home=sys.argv[1])

@mq.job
def late() -> int:
    return 1

try:
    late.enqueue().get(timedelta(milliseconds=1))
except EchoMQError as error:
    print(type(error).__name__)
"""


@pytest.mark.deadline(60)
def test_a_program_that_has_blocked_on_a_result_ends_silently(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ResultTimeoutError\n", "")
