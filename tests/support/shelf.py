"""What a queue holds beside its rows and places, read with plain commands, and where a model of it differs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from support.invariants import ExecuteAll
from support.model import Span
from support.model_admin import AdminModel

_SUBKEY = re.compile(r"job:(JOB\w{11}):(dependencies|processed|failed|unsuccessful|result|lock)")
_LANE = re.compile(r"g:.+:pending")
_ROW = re.compile(r"job:JOB\w{11}")
# Read elsewhere, or compared by the invariants.
_ELSEWHERE = {"pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "wake", "turn", "repeat"}
_READERS = {
    "dependencies": "GET",
    "result": "GET",
    "lock": "GET",
    "flow:outbox": "LRANGE",
    "flow:rejected": "LRANGE",
    "limiter": "GET",
}
_SLACK_MS = 5


def _elsewhere(name: str) -> bool:
    return (
        name in _ELSEWHERE
        or bool(_LANE.fullmatch(name) or _ROW.fullmatch(name))
        or name.startswith(("metrics:", "repeat:"))
    )


def _hashed(reply: Any) -> dict[str, bytes]:
    return {name.decode(): value for name, value in reply.items()}


def shelf(base: str, keys: Iterable[bytes], execute_all: ExecuteAll) -> dict[str, tuple[Any, int]]:
    """The content and the instant of expiry (-1: none) of every key that the invariants do not read."""
    names = [name for key in keys if not _elsewhere(name := key.decode().removeprefix(base))]
    words: list[tuple[Any, ...]] = []
    for name in names:
        kind = name.rsplit(":", 1)[-1] if name.startswith("job:") else name
        reader = "GET" if name.startswith("de:") else _READERS.get(kind, "HGETALL")
        words += [(reader, base + name, *((0, -1) if reader == "LRANGE" else ())), ("PEXPIRETIME", base + name)]
    replies = execute_all(words)
    return {
        name: (_hashed(value) if isinstance(value, dict) else value, ends)
        for name, value, ends in zip(names, replies[::2], replies[1::2], strict=True)
    }


def expected(model: AdminModel) -> dict[str, Any]:
    """The same keys as the model has them."""
    out: dict[str, Any] = {}
    for job_id, books in model.books.items():
        out[f"job:{job_id}:dependencies"] = b"%d" % books.left
        out[f"job:{job_id}:processed"] = books.processed
        out[f"job:{job_id}:failed"] = books.failed
        out[f"job:{job_id}:unsuccessful"] = books.unsuccessful
    out |= {f"job:{job_id}:result": result for job_id, result in model.results.items()}
    out |= {f"job:{job_id}:lock": b"%d" % model.rows[job_id].attempts for job_id in model.locks}
    out |= {f"de:{key}": job_id.encode() for key, (job_id, _) in model.claims.items()}
    out["gweight"] = {group: b"%d" % weight for group, weight in model.weights.items()}
    out |= {"flow:outbox": model.outbox, "flow:rejected": model.rejected, "meta": model.meta()}
    if model.spent:
        out["limiter"] = b"%d" % model.spent
    return {name: value for name, value in out.items() if value or isinstance(value, bytes)}


def _expires(name: str, model: AdminModel) -> bool | None:
    """Whether a key must have an end; None where it does not matter."""
    if name.startswith("de:"):
        return model.claims[name[3:]][1]
    if match := _SUBKEY.fullmatch(name):
        if match[2] in ("result", "lock"):
            return True
        row = model.rows.get(match[1])
        return True if row is None else False if row.state == "awaiting_children" else None
    return model.window is not None if name == "limiter" else False


def differences(model: AdminModel, found: dict[str, tuple[Any, int]]) -> list[str]:
    """Where the server's keys are not the model's; the end of a rate window is taken from it."""
    ours = expected(model)
    out = [
        f"{name}: the model has {ours.get(name)!r}, the server {found.get(name, (None, 0))[0]!r}"
        for name in sorted(set(ours) | set(found))
        if name not in found or ours.get(name) != found[name][0]
    ]
    if out:
        return out
    for name, (_, ends) in found.items():
        wanted = _expires(name, model)
        if wanted is not None and wanted != (ends > 0):
            out.append(f"{name}: it {'must' if wanted else 'must not'} have an end, it ends at {ends}")
    if model.window is not None and "limiter" in found:
        ends = found["limiter"][1]
        if not model.window.low - _SLACK_MS <= ends <= model.window.high + _SLACK_MS:
            out.append(f"limiter ends at {ends}, not within {model.window}")
        model.window = Span.at(ends)
    return out
