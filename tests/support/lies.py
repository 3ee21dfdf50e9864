"""What a server may be told, or may hold, that is not as the protocol has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from echomq.protocol.call import Arg
from echomq.protocol.keys import Keys

BAD_NUMBERS: tuple[Arg, ...] = (
    *("", " 5", "5 ", "+5", "-5", "-0", "05", "00", "1e3", "0x10", "5.0", "5\0", "\0", "five", "inf", "nan", "-1"),
    *(2**53 - 1, 2**53, 2**63 - 1, 2**63, 2**64 + 5, "9" * 16, "9" * 17, "9" * 400, "0", "1", "2\n", b"\xd9\xa5"),
)
BAD_TEXTS: tuple[Arg, ...] = (
    *(
        "",
        "\0",
        "in",
        "at",
        "IN",
        "at ",
        "in\0",
        "i",
        "2",
        "1",
        "-1",
        "true",
        "%s%n",
        "\r\n$5\r\n",
        "x" * 300,
        b"\xff\xfe",
    ),
    *(b"p" * 3_000, "EMQSTATE x not native"),
)
BAD_IDS: tuple[str, ...] = (
    *("", "J", "JO", "JOB", "job0NgWEfAEJf0", "USR0NgWEfAEJf0", "LAN00000000001", "\0JOB", "JOB\0", "JOB0NgW\0EfAEJf"),
    *(
        "JOB1",
        "JOB" + "x" * 300,
        "JOBAzL8n0Y58m7",
        "JOBAzL8n0Y58m8",
        "JOBzzzzzzzzzzz",
        "JOB0NgWEfAEJf!",
        "JOB}:0000000",
    ),
    *("JOBéé00000000000", "JOB0NgWEfAEJf0:logs", "JOB0NgWEfAEJf0:result", "JOB 0000000000", "JOB00000000000"),
)


def bad_keys(keys: Keys) -> tuple[str, ...]:
    """Keys for a call: of another queue, of none, of the wrong place."""
    return (
        *("", "emq:q:schedule", "emq:{}:schedule", "emq:{q", "emq:{q}", "emq:{q}x:a", "EMQ:{q}:a", "emq:{", "emq:{}"),
        *("emq:{elsewhere}:schedule", "emq:{q}:", "emq:{a}b}:pending", "emq:{\0}:pending", "emq:{a{b}:x", "x"),
        *(keys.base + name for name in ("pending", "schedule", "active", "dead", "meta", "wake", "job:", "")),
        "emq:{" + "q" * 300 + "}:pending",
    )


# Names under a base that a twin reads or writes.
_PLACES = (
    "pending",
    "active",
    "schedule",
    "dead",
    "ring",
    "wake",
    "meta",
    "paused",
    "glimit",
    "gactive",
    "metrics:completed",
)
_MORE = ("repeat", "cron", "turn", "limiter", "flow:outbox", "gweight", "metrics:failed", "lanes")
_SUBKEYS = ("", "", ":result", ":logs", ":lock", ":dependencies", ":processed")
# SET takes any key; the others make a key of their type where there is none.
_WRONG = (*(("SET", "x"), ("SET", "5")) * 3, ("RPUSH", "x"), ("HSET", "f", "x"), ("SADD", "x"), ("ZADD", "3", "m"))
_FIELDS = (
    "attempts",
    "state",
    "payload",
    "group",
    "parent",
    "parent_queue",
    "parent_policy",
    "dedup",
    "cancel",
    "lock",
)
_COUNTS = ("failures", "stalled", "max", "concurrency", "period_ms", "paused", "foreign")
_VALUES: tuple[Arg, ...] = (
    *(
        "",
        "0",
        "1",
        "2",
        " 2 ",
        "0x2",
        "1e1",
        "-1",
        "inf",
        "-inf",
        "nan",
        "1.5",
        "01",
        "x",
        "2\0",
        str(2**53 - 1),
        str(2**53),
    ),
    *(
        "9" * 40,
        "LAN00000000001",
        "JOB0NgWEfAEJf1",
        "pending",
        "active",
        b"\xff",
        "x" * 2_000,
        "lane of text",
        "q",
        "k",
        "fp",
    ),
)
_SCORES = (
    "0",
    "1",
    "-1",
    "1.5",
    "-inf",
    "inf",
    str(2**53 - 1),
    str(2**53),
    "1e300",
    "1800000000000",
    "1800003600000",
    "-0.5",
)

Choose = Callable[[Sequence[Any]], Any]


def _wrong_type(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    verb, *rest = choose(_WRONG)
    name = choose((*(_PLACES[:3] * 5), *_PLACES, *_MORE)) if choose((True, True, False)) else _of_row(choose, ids)
    return [verb, keys.base + name, *rest]


def _of_row(choose: Choose, ids: Sequence[str]) -> str:
    return f"job:{choose(ids)}{choose(_SUBKEYS)}"


def _ghost(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    """A member without a row, or of two places, or with a score of its own."""
    member = choose(BAD_IDS) if choose((True, False, False)) else choose(ids)
    place = choose((*(_PLACES[:3] * 2), "dead", "repeat", "cron", "g:LAN00000000001:pending"))
    return ["ZADD", keys.base + place, choose(_SCORES), member]


def _field(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["HSET", f"{keys.base}job:{choose(ids)}", choose(_FIELDS + _COUNTS[:2]), choose(_VALUES)]


def _no_field(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["HDEL", f"{keys.base}job:{choose(ids)}", choose(_FIELDS)]


def _setting(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    name = choose(("meta", "meta", "glimit", "gactive", "gweight", "metrics:completed"))
    field = choose(("count", "LAN00000000001", *_COUNTS))
    return ["HSET", keys.base + name, field, choose(_VALUES)]


def _lost(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    name = choose((*_PLACES, *_PLACES, *_MORE)) if choose((True, False)) else _of_row(choose, ids)
    return ["DEL", keys.base + name]


def _tokens(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["LPUSH", keys.base + "wake", *("1" for _ in range(choose((1, 30, 62, 63, 64, 70))))]


def _result(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["SET", f"{keys.base}job:{choose(ids)}:result", "r", "PX", choose((1, 3_600_000))]


def _on_ring(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["RPUSH", keys.base + "ring", choose(("LAN00000000001", "USR0KHTOWnGLuC", "no lane", ""))]


def _expiring(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    name = choose(_PLACES) if choose((True, False)) else _of_row(choose, ids)
    return ["PEXPIRE", keys.base + name, choose((1, 3_600_000))]


def _limiter(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    return ["SET", keys.base + choose(("limiter", "turn", "de:k")), choose(_VALUES)]


def _half_a_flow(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    """An original's flow, half there."""
    return ["SET", f"{keys.base}job:{choose(ids)}:dependencies", choose(("0", "1", "2", "x"))]


def _full(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Arg]:
    """A server whose memory is full, or is not any more."""
    return ["CONFIG", "SET", "maxmemory", choose((0, 0, 1))]


_STATES = (
    *(
        _wrong_type,
        _wrong_type,
        _ghost,
        _ghost,
        _ghost,
        _field,
        _field,
        _field,
        _no_field,
        _setting,
        _setting,
        _lost,
        _lost,
        _tokens,
    ),
    *(_result, _on_ring, _expiring, _limiter, _half_a_flow, _full),
)


def bad_state(keys: Keys, choose: Choose, ids: Sequence[str]) -> list[Any]:
    """A plain command that writes, or takes away, what no verb would."""
    return choose(_STATES)(keys, choose, ids)
