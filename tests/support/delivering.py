"""A process that delivers the outbox of one queue, as plainly as can be, until it is killed or its input is closed.

python delivering.py SOCKET QUEUE
"""

from __future__ import annotations

import os
import select
import sys

from echomq.identity.errors import InvalidInputError
from echomq.protocol import flows
from support.raw import RawClient
from support.runner import Runner


def main(socket_path: str, queue: str) -> None:
    """Read, deliver, settle; what cannot be read is set aside."""
    runner = Runner(RawClient(socket_path))
    os.write(1, b"ready\n")
    os.read(0, 1)
    while not select.select([0], [], [], 0.001)[0]:
        for entry in runner.run(flows.outbox(queue, limit=20)):
            try:
                call = flows.deliver(entry)
            except InvalidInputError:
                runner.run(flows.reject(queue, entry))
            else:
                runner.run(call)
                runner.run(flows.settle(queue, entry))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
