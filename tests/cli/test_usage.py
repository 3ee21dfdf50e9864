"""A command line that is written wrongly: one line that names it with the nearest valid thing, exit code 2."""

from __future__ import annotations

import json
from typing import Any

import pytest

WRONG = [
    (("jobs", "mail", "--limit", "0"), "--limit is '0'; a whole number, 1 or more, is allowed"),
    (("jobs", "mail", "-n", "x"), "--limit is 'x'; a whole number, 1 or more, is allowed"),
    (("stats", "--watch", "nan"), "--watch is 'nan'; a number of seconds, 0.1 or more, is allowed"),
    (("worker", "tasks:mq", "--log-level", "inf"), "--log-level is 'inf'; nearest: 'info'"),
    (("worker", "tasks:mq", "--log-format", "jsn"), "--log-format is 'jsn'; nearest: 'json'"),
    (("worker", "tasks:mq", "--log-format", "it's"), "--log-format is \"it's\"; nearest: 'json', 'text'"),
    (("wroker",), "echomq has no command 'wroker'; nearest: 'worker', 'workers'"),
    (("module", "pth"), "echomq module has no command 'pth'; nearest: 'path'"),
    (("--versio",), "echomq has no option '--versio'; nearest: '--version'"),
    (("jobs", "mail", "--stat", "dead"), "echomq jobs has no option '--stat'; nearest: '--state', '--scan'"),
    (("jobs", "mail", "--x\ny"), "echomq jobs has no option '--x\\ny'; nearest: "),
    (("jobs", "mail", "--limit"), "--limit needs a value, as in --help"),
    (("server", "--durable=3"), "--durable takes no value"),
    (("jobs",), "QUEUE is missing: echomq jobs QUEUE, see echomq jobs --help"),
    (("jobs", "mail", "a", "b"), "'a b' is too much: echomq jobs takes QUEUE, see echomq jobs --help"),
    (("queues", "mail"), "'mail' is too much: echomq queues takes no argument, see echomq queues --help"),
    (("module", "path", "x"), "'x' is too much: echomq module path takes no argument, see echomq module path --help"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_a_wrong_command_line_is_one_line(words: tuple[str, ...], said: str, ops: Any) -> None:
    done = ops(*words)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith(f"echomq: {said}")


@pytest.mark.parametrize("words", [words for words, _ in WRONG if words[0] in ("jobs", "stats", "queues")])
def test_a_machine_is_told_the_same(words: tuple[str, ...], ops: Any) -> None:
    told = ops(words[0], "--json", *words[1:])
    assert told.code == 2
    assert told.err == f"echomq: {json.loads(told.out)['error']}\n"
    assert told.err == ops(*words).err


@pytest.mark.parametrize("words", [(), ("module",)])
def test_nothing_at_all_is_answered_by_the_help(words: tuple[str, ...], ops: Any) -> None:
    done = ops(*words)
    assert (done.code, done.out) == (2, "")
    assert "Examples:" in done.err
