"""A keyword of the wrong type is refused where it is written, in one sentence that names it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from echomq import Cron, EchoMQ, Every, InvalidInputError, Middleware, Supervisor, Worker

URL = "redis://localhost:1"
UNTYPED: Any = object()
"""Stands for callers that no type checker has looked at."""


def app() -> EchoMQ:
    mq = EchoMQ(URL)

    @mq.job
    def nothing() -> None: ...

    return mq


app_with: Any = partial(EchoMQ, URL)
embedded: Any = EchoMQ
supervisor: Any = Supervisor
every: Any = partial(Every, hours=1)
cron: Any = partial(Cron, "* * * * *")


def worker(**words: Any) -> Worker:
    return Worker(app(), **words)


def under_test(**words: Any) -> object:
    return app().testing(**words)


def eager(**words: Any) -> object:
    return app().eager(**words)


def drain(**words: Any) -> object:
    with app().testing() as trial:
        return trial.mq.drain_blocking(**words)


def asserting(**words: Any) -> object:
    with app().testing() as trial:
        return trial.mq.assert_enqueued("nothing", **words)


@pytest.mark.parametrize("wrong", [5, "no", None, [], UNTYPED])
@pytest.mark.parametrize(
    ("made", "word"),
    [
        (app_with, "events"),
        (embedded, "durable"),
        *[(worker, word) for word in ("burst", "events", "log_payloads", "prune_schedules")],
        (partial(supervisor, "tasks:mq"), "reload"),
        (under_test, "eager"),
        (eager, "raise_errors"),
    ],
)
def test_a_word_that_is_on_or_off_takes_true_or_false_and_nothing_that_counts_as_one(
    made: Callable[..., object], word: str, wrong: object
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{word} must be True or False, not "):
        made(**{word: wrong})


@pytest.mark.parametrize("word", ["retries", "schedules", "raise_errors"])
def test_a_drain_is_told_yes_or_no(word: str) -> None:
    with pytest.raises(InvalidInputError, match=f"^{word} must be True or False, not 5$"):
        drain(**{word: 5})


@pytest.mark.parametrize(
    ("made", "words", "said"),
    [
        (app_with, {"middleware": 5}, r"^middleware must be a list of middleware, as in \[Audit\(\)\], not 5$"),
        (app_with, {"middleware": Middleware()}, r"^middleware must be a list of middleware"),
        (app_with, {"middleware": "audit"}, r"^middleware must be a list of middleware"),
        (app_with, {"fence": None}, r"^fence must be str, not NoneType"),
        (embedded, {"home": 5}, r"^home must be the path of a folder, as text or a Path, not 5$"),
        (embedded, {"home": b"x"}, r"^home must be the path of a folder"),
        (worker, {"queues": 5}, r"^queues must be a list of names, or weights by name, not 5$"),
        (worker, {"address": "tasks:mq"}, r"^address must be an Address, as in Address\('tasks:mq'\)"),
        (partial(supervisor, "tasks:mq"), {"grace": 5}, r"^grace must be a timedelta, not int: 5$"),
        (every, {"args": "all"}, r"^args of a schedule must be a list of arguments, as in args=\[5\], not 'all'$"),
        (every, {"args": 5}, r"^args of a schedule must be a list"),
        (cron, {"args": None}, r"^args of a schedule must be a list"),
        (every, {"kwargs": 5}, r"^kwargs of a schedule must be a mapping of names to arguments, not 5$"),
        (cron, {"kwargs": {5: "to"}}, r"^kwargs of a schedule must be a mapping of names"),
        (asserting, {"lane": 5}, r"^lane must be str, not int: 5$"),
    ],
)
def test_a_word_of_the_wrong_type_is_named_with_what_it_takes(
    made: Callable[..., object], words: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        made(**words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [5, None, "", b"nightly", UNTYPED])
def test_a_schedule_is_asked_for_by_text(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^the name of a recurrence must be text, at least one character"):
        app().schedule(wrong)


@pytest.mark.parametrize("wrong", [5, None, URL, UNTYPED])
def test_a_worker_takes_an_app(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^a worker takes the EchoMQ whose jobs it runs, not "):
        Worker(wrong)


@pytest.mark.parametrize("wrong", [5, None, b"tasks:mq", UNTYPED])
def test_a_supervisor_takes_an_app_or_where_it_is(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"^a supervisor takes an EchoMQ, MODULE:OBJECT as text, or an Address"):
        Supervisor(wrong)


def test_a_word_that_a_supervisor_does_not_know_is_refused_before_a_process_is_started() -> None:
    with pytest.raises(TypeError, match=r"^Supervisor\(\) got an .* argument 'proceses'; did you mean processes\?"):
        supervisor("tasks:mq", proceses=2)


def test_a_class_in_the_list_of_middleware_is_an_instance_of_it_as_with_the_decorator() -> None:
    class Counting(Middleware):
        def before(self, job: object) -> None: ...

    listed, decorated = EchoMQ(URL, middleware=[Counting]), EchoMQ(URL)
    decorated.middleware(Counting)
    for mq in (listed, decorated):
        (layer,) = mq.layers.around
        assert inspect.ismethod(layer.before)
