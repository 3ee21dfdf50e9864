"""From starting Python to the first job done, on an embedded server that has yet to start.

    python bench/coldstart.py [ROUNDS]

Each round is a program in a fresh folder: it enqueues a job and serves it with a worker in burst mode. The clock starts
before the interpreter does; it is read when the handler runs, and when the burst is over, so that the server has
confirmed the job. `import echomq` is timed in interpreters of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SRC = str(Path(__file__).resolve().parent.parent / "src")

PROGRAM = """
import time
from echomq import EchoMQ, Worker

mq = EchoMQ(home="home")


@mq.job
async def first() -> None:
    print(time.monotonic(), flush=True)


if __name__ == "__main__":
    first.enqueue()
    Worker(mq, burst=True).run()
    print(time.monotonic(), flush=True)
"""


def environment() -> dict[str, str]:
    paths = [SRC, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ECHOMQ_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "ECHOMQ_IDLE_SECONDS": "1"}


def cold() -> tuple[float, float]:
    """Seconds until the handler ran, and until the worker's burst was over."""
    with tempfile.TemporaryDirectory(prefix="emqb-", dir="/tmp") as folder:
        (Path(folder) / "first.py").write_text(PROGRAM)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "first.py"], cwd=folder, env=environment(), stdout=subprocess.PIPE, check=True, timeout=60
        )
        ran, over = (float(line) - began for line in done.stdout.split())
        socket, end = Path(folder) / "home" / "server.sock", time.monotonic() + 30
        while socket.exists() and time.monotonic() < end:  # it goes by itself; its folder is removed after it
            time.sleep(0.05)
        return ran, over


def importing() -> float:
    """Milliseconds that `import echomq` takes in a fresh interpreter, by the interpreter's own account."""
    words = [sys.executable, "-X", "importtime", "-c", "import echomq"]
    done = subprocess.run(words, env=environment(), stderr=subprocess.PIPE, check=True, timeout=60)
    rows = (line.rpartition(b"|") for line in done.stderr.splitlines())
    return next(int(rest.split(b"|")[-1]) for rest, _, name in rows if name.strip() == b"echomq") / 1_000


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    load = os.getloadavg()[0]
    starts = [cold() for _ in range(rounds)]
    imports = [importing() for _ in range(rounds)]
    print(f"{rounds} cold starts, load {load:.1f} on {os.cpu_count()} cores; medians")
    for what, unit, values in (
        ("first handler runs after", "s", [ran for ran, _ in starts]),
        ("burst over after", "s", [over for _, over in starts]),
        ("import echomq", "ms", imports),
    ):
        print(f"  {what:26} {statistics.median(values):8.2f} {unit}   ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
