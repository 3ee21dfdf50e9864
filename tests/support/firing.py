"""A process that pumps one queue's recurrences and works off what they admit, as plainly as can be.

    python firing.py SOCKET QUEUE [freeze]

Prints a line for every fire, `verdict score next`, and one for every completion, `done id`. With `freeze` it stops
itself (SIGSTOP) between reading a due recurrence and firing it, once, and says so first. It ends when its standard
input is closed.
"""

from __future__ import annotations

import os
import select
import signal
import sys

from echomq.identity.minter import Minter
from echomq.protocol import jobs, repeat
from support.raw import RawClient
from support.runner import Runner


def say(*words: object) -> None:
    """A whole line at once, so that a kill cannot cut it."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(socket_path: str, queue: str, freeze: bool) -> None:
    """Pump and work until nobody listens any more."""
    runner, minter = Runner(RawClient(socket_path)), Minter()
    say("ready")
    while not select.select([0], [], [], 0.005)[0]:
        for due in runner.run(repeat.due(queue, now_ms=runner.now_ms())):
            if freeze:
                freeze = False
                say("frozen", due.score)
                os.kill(os.getpid(), signal.SIGSTOP)
            fired = runner.run(repeat.fire(queue, due.name, score=due.score, job_id=minter.mint()))
            say(fired.verdict.value, due.score, fired.next_ms)
        for job in runner.run(jobs.claim_many(queue, 10)).jobs:
            runner.run(jobs.complete(queue, job.id, job.attempts))
            say("done", job.id)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "freeze" in sys.argv[3:])
