"""EchoMQ for Python: jobs that run on time, on Valkey or Redis.

The public face: it defines nothing, and imports each name when it is first used. All errors are in
`echomq.errors`; the verbs are in `echomq.jobs`, `echomq.lanes`, `echomq.flows`, `echomq.repeat`, `echomq.cron`,
`echomq.admission`, `echomq.admin`, `echomq.metrics`, `echomq.workers` and `echomq.audit`.
"""

from typing import TYPE_CHECKING

from echomq.identity.version import __version__ as __version__

__all__ = [
    "Bound",
    "Cancel",
    "Cancellation",
    "Cancelled",
    "CatchUp",
    "Child",
    "Codec",
    "Cron",
    "Dedup",
    "Depends",
    "Discard",
    "EchoMQ",
    "EchoMQError",
    "Every",
    "Exponential",
    "Failure",
    "Fixed",
    "Flow",
    "FlowJobs",
    "Group",
    "InvalidInputError",
    "Jitter",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobFailed",
    "Lane",
    "Middleware",
    "Registered",
    "Registration",
    "Retry",
    "Schedule",
    "ScheduleInfo",
    "Sending",
    "Snooze",
    "State",
    "Success",
    "Supervisor",
    "Worker",
    "aconnect",
    "admin",
    "admission",
    "audit",
    "chain",
    "chord",
    "connect",
    "cron",
    "current_job",
    "errors",
    "events",
    "flow",
    "flows",
    "group",
    "jobs",
    "lanes",
    "may_fail",
    "metrics",
    "mint",
    "previous",
    "repeat",
    "results",
    "telemetry",
    "testing",
    "workers",
]

if TYPE_CHECKING:
    from echomq import (
        admin,
        admission,
        audit,
        cron,
        errors,
        events,
        flows,
        jobs,
        lanes,
        metrics,
        repeat,
        telemetry,
        testing,
        workers,
    )
    from echomq.app.bound import Bound
    from echomq.app.codec import Codec
    from echomq.app.context import JobContext, current_job
    from echomq.app.control import Cancel, Cancelled, Discard, Retry, Snooze
    from echomq.app.declared import Cron, Every
    from echomq.app.depends import Depends
    from echomq.app.echomq import EchoMQ
    from echomq.app.failures import JobCancelled, JobFailed
    from echomq.app.flow import Flow, Group, chain, chord, flow, group, may_fail
    from echomq.app.flow_jobs import FlowJobs
    from echomq.app.follow import Failure, Success
    from echomq.app.handles import Job
    from echomq.app.holes import Child, previous, results
    from echomq.app.lanes import Lane
    from echomq.app.middleware import Middleware, Sending
    from echomq.app.options import Dedup
    from echomq.app.registering import Registered
    from echomq.app.schedule import Schedule, ScheduleInfo
    from echomq.app.supervise import Supervisor
    from echomq.app.timing import CatchUp
    from echomq.app.worker import Worker
    from echomq.identity.errors import EchoMQError, InvalidInputError
    from echomq.identity.minter import mint
    from echomq.protocol.admin import Cancellation
    from echomq.protocol.backoff import Exponential, Fixed, Jitter
    from echomq.protocol.repeat import Registration
    from echomq.protocol.replies import State
    from echomq.wire import aconnect, connect
else:
    _HOMES = {
        "Bound": "echomq.app.bound",
        "Cancel": "echomq.app.control",
        "Cancellation": "echomq.protocol.admin",
        "Cancelled": "echomq.app.control",
        "CatchUp": "echomq.app.timing",
        "Child": "echomq.app.holes",
        "Codec": "echomq.app.codec",
        "Cron": "echomq.app.declared",
        "Dedup": "echomq.app.options",
        "Depends": "echomq.app.depends",
        "Discard": "echomq.app.control",
        "EchoMQ": "echomq.app.echomq",
        "EchoMQError": "echomq.identity.errors",
        "Every": "echomq.app.declared",
        "Exponential": "echomq.protocol.backoff",
        "Failure": "echomq.app.follow",
        "Fixed": "echomq.protocol.backoff",
        "Flow": "echomq.app.flow",
        "FlowJobs": "echomq.app.flow_jobs",
        "Group": "echomq.app.flow",
        "InvalidInputError": "echomq.identity.errors",
        "Jitter": "echomq.protocol.backoff",
        "Job": "echomq.app.handles",
        "JobCancelled": "echomq.app.failures",
        "JobContext": "echomq.app.context",
        "JobFailed": "echomq.app.failures",
        "Lane": "echomq.app.lanes",
        "Middleware": "echomq.app.middleware",
        "Registered": "echomq.app.registering",
        "Registration": "echomq.protocol.repeat",
        "Retry": "echomq.app.control",
        "Schedule": "echomq.app.schedule",
        "ScheduleInfo": "echomq.app.schedule",
        "Sending": "echomq.app.middleware",
        "Snooze": "echomq.app.control",
        "State": "echomq.protocol.replies",
        "Success": "echomq.app.follow",
        "Supervisor": "echomq.app.supervise",
        "Worker": "echomq.app.worker",
        "aconnect": "echomq.wire",
        "chain": "echomq.app.flow",
        "chord": "echomq.app.flow",
        "connect": "echomq.wire",
        "current_job": "echomq.app.context",
        "flow": "echomq.app.flow",
        "group": "echomq.app.flow",
        "may_fail": "echomq.app.flow",
        "mint": "echomq.identity.minter",
        "previous": "echomq.app.holes",
        "results": "echomq.app.holes",
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
