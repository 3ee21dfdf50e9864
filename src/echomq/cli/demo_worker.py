"""The demo's worker: a process of its own, which does not outlive the demo.

It runs until its standard input ends. That is also how it learns that the demo was killed, and then it is this process
that takes the queues off the server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from echomq.app.worker import Worker

__all__ = ["WorkerProcess", "main"]

CONCURRENCY: Final = 16
STOP_S: Final = 10.0
LOG: Final = "worker.log"
RECORDS: Final = "records"


class WorkerProcess:
    """Starts the worker at `with`, and ends it after."""

    def __init__(self, queue: str, home: Path, scratch: Path) -> None:
        self._log = scratch / LOG
        # -P: the working directory, which may hold a json.py of somebody's, stays off the path.
        self._words = [sys.executable, "-P", "-m", __name__, queue, str(home), str(scratch), str(os.getpid())]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is the demo's, which then ends this
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def ended(self) -> str | None:
        """None while it runs; else how it ended, and the last that it said."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return None
        said = self._log.read_text(errors="replace").strip().splitlines()
        how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        return f"{how}; {said[-1]}" if said else how


def main(queue: str, home: str, scratch: str, demo_pid: str) -> None:
    """Serve the demo's queues until standard input ends."""
    from echomq.app.process import new_runner
    from echomq.app.worker import Worker
    from echomq.cli.demo_cleanup import remove_queues
    from echomq.cli.demo_jobs import demo_jobs

    mq = demo_jobs(queue, Path(home), Path(scratch) / RECORDS).mq
    worker = Worker(mq, concurrency=CONCURRENCY)
    threading.Thread(target=_stop_at_end, args=(worker,), name="demo watch", daemon=True).start()
    try:
        with new_runner() as runner:
            runner.run(worker.serve())  # not its own `run`, which may end the process before the queues are removed
    finally:
        if os.getppid() != int(demo_pid):
            remove_queues(mq)
            shutil.rmtree(scratch, ignore_errors=True)
        mq.close()


def _stop_at_end(worker: Worker) -> None:
    while os.read(0, 512):
        pass
    while not worker.stop_soon():
        time.sleep(0.01)  # it does not serve yet


if __name__ == "__main__":
    main(*sys.argv[1:])
