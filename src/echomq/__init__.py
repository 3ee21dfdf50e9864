"""EchoMQ for Python: jobs that run on time, on Valkey or Redis.

The public face: it defines nothing, and imports each name when it is first used. All errors are in
`echomq.errors`; the verbs are in `echomq.jobs`, `echomq.repeat` and `echomq.metrics`.
"""

from typing import TYPE_CHECKING

from echomq.identity.version import __version__ as __version__

__all__ = [
    "EchoMQ",
    "EchoMQError",
    "Exponential",
    "Fixed",
    "InvalidInputError",
    "Jitter",
    "Job",
    "Snooze",
    "Worker",
    "aconnect",
    "connect",
    "errors",
    "jobs",
    "metrics",
    "mint",
    "repeat",
]

if TYPE_CHECKING:
    from echomq import errors, jobs, metrics, repeat
    from echomq.app.control import Snooze
    from echomq.app.echomq import EchoMQ
    from echomq.app.handles import Job
    from echomq.app.worker import Worker
    from echomq.identity.errors import EchoMQError, InvalidInputError
    from echomq.identity.minter import mint
    from echomq.protocol.backoff import Exponential, Fixed, Jitter
    from echomq.wire import aconnect, connect
else:
    _HOMES = {
        "EchoMQ": "echomq.app.echomq",
        "EchoMQError": "echomq.identity.errors",
        "Exponential": "echomq.protocol.backoff",
        "Fixed": "echomq.protocol.backoff",
        "InvalidInputError": "echomq.identity.errors",
        "Jitter": "echomq.protocol.backoff",
        "Job": "echomq.app.handles",
        "Snooze": "echomq.app.control",
        "Worker": "echomq.app.worker",
        "aconnect": "echomq.wire",
        "connect": "echomq.wire",
        "mint": "echomq.identity.minter",
    }

    def __getattr__(name):
        from importlib import import_module

        if home := _HOMES.get(name):
            value = getattr(import_module(home), name)
        elif name in __all__:
            value = import_module(f"echomq.{name}")
        else:
            raise AttributeError(f"module 'echomq' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
