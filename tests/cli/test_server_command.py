"""`echomq server`: the embedded server in the foreground, until a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from echomq import EchoMQ
from support.embedded import folder
from support.program import SOURCE, cli


def test_it_serves_until_it_is_told_to_stop() -> None:
    with folder() as home:
        server = subprocess.Popen(
            [sys.executable, "-m", "echomq.cli", "server", "--home", str(home)],
            env=os.environ | {"PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if "ready" in line or "connect to" in line:
                    break
            with EchoMQ(home=home) as mq:
                mq.job(name="work")(lambda: None).enqueue()
            server.send_signal(signal.SIGTERM)
            rest = server.stdout.read()
            assert server.wait(40) == 0
            assert "stopped" in rest
        finally:
            server.kill()
            server.wait()
            server.stdout.close()


def test_a_folder_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cli("server", "--home", str(tmp_path / "file" / "home"))
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("echomq: ")
    assert done.returncode == 1
