"""A decorated function is the function it was, under a stable name; what cannot be a job says why."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import types
from functools import wraps
from pathlib import Path

import pytest

from echomq import EchoMQ, Fixed, InvalidInputError
from echomq.app.errors import JobDefinitionError
from echomq.app.naming import job_name, script_module
from echomq.errors import QueueNameError


@pytest.fixture
def mq() -> EchoMQ:
    return EchoMQ("valkey://localhost:1")


def test_it_stays_callable_and_looks_like_itself(mq: EchoMQ) -> None:
    @mq.job
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @mq.job(queue="sums")
    async def aadd(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert asyncio.run(aadd(1, b=5)) == 6
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert list(inspect.signature(add).parameters) == ["a", "b"]
    assert (add.queue, aadd.queue, mq.queues) == ("default", "sums", ("default", "sums"))
    assert mq.jobs == {add.name: add, aadd.name: aadd}


def test_its_name_is_its_module_and_path(mq: EchoMQ) -> None:
    def plain() -> None: ...

    assert mq.job(plain).name.endswith("test_job.test_its_name_is_its_module_and_path.<locals>.plain")
    assert mq.job(name="mail.send")(lambda: None).name == "mail.send"


def test_a_decorated_function_keeps_its_signature(mq: EchoMQ) -> None:
    def logged(function):
        @wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @mq.job
    @logged
    def add(a: int) -> int:
        return a

    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        add.enqueue()


@pytest.mark.parametrize(
    ("path", "argv", "cwd", "name"),
    [
        ("pkg/tasks.py", ["pkg/tasks.py"], ".", "pkg.tasks.work"),
        ("pkg/tasks.py", ["tasks.py"], "pkg", "tasks.work"),
        ("pkg/tasks.py", ["-m", "pkg.tasks"], ".", "pkg.tasks.work"),
        ("my-scripts/tasks.py", ["my-scripts/tasks.py"], ".", "tasks.work"),
        ("src/pkg/tasks.py", ["src/pkg/tasks.py"], ".", "pkg.tasks.work"),
    ],
    ids=["below the current folder", "in it", "as a module", "not importable", "on the path"],
)
def test_a_script_names_its_jobs_as_a_worker_would_import_them(tmp_path: Path, path, argv, cwd, name) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(
        "from echomq import EchoMQ\nmq = EchoMQ('valkey://localhost:1')\n"
        "@mq.job\ndef work(): ...\nif __name__ == '__main__': print(work.name)\n"
    )
    root = str(Path(inspect.getfile(EchoMQ)).parents[2])
    env = {"PYTHONPATH": f"{root}:{tmp_path / 'src'}", "PATH": ""}
    out = subprocess.run(
        [sys.executable, *argv], cwd=tmp_path / cwd, env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == name


def test_a_program_without_a_file_is_main() -> None:
    main = types.ModuleType("__main__")
    assert script_module(main) is None
    assert script_module(None) is None
    work = types.FunctionType((lambda: None).__code__, {"__name__": "nowhere"}, "work")
    assert job_name(work).startswith("nowhere.")


class Thing:
    def method(self) -> None: ...


async def agenerator():
    yield 1


def generator():
    yield 1


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (Thing, "is a class"),
        (Thing.method, "looks like a method"),
        (agenerator, "is a generator"),
        (generator, "is a generator"),
        (5, "is not a function"),
        ("send", "is not a function"),
        (lambda: None, "no name of its own"),
    ],
)
def test_what_cannot_be_a_job_is_refused(mq: EchoMQ, function, why) -> None:
    with pytest.raises(JobDefinitionError, match=why):
        mq.job(function)
    assert not mq.jobs


def test_a_job_is_decorated_once(mq: EchoMQ) -> None:
    @mq.job
    def work() -> None: ...

    with pytest.raises(JobDefinitionError, match="is a job already"):
        mq.job(work)


def test_two_functions_do_not_share_a_name(mq: EchoMQ) -> None:
    @mq.job(name="work")
    def one() -> None: ...

    with pytest.raises(JobDefinitionError, match=r"two jobs are named 'work', .*one \(.*:\d+\) and .*two \(.*:\d+\)"):

        @mq.job(name="work")
        def two() -> None: ...

    assert mq.jobs["work"] is one


def test_a_function_that_is_made_anew_is_another_one(mq: EchoMQ) -> None:
    def make(number: int):
        @mq.job
        def work() -> int:
            return number

        return work

    make(1)
    with pytest.raises(JobDefinitionError, match="two jobs are named"):
        make(2)


def test_a_cell_that_is_run_again_replaces_its_jobs(mq: EchoMQ) -> None:
    scope = {"mq": mq, "__name__": "__main__"}
    for number in (1, 2):
        exec(compile(f"@mq.job(name='work')\ndef work(): return {number}", f"<cell {number}>", "exec"), scope)
    assert mq.jobs["work"]() == 2


def test_a_module_that_is_imported_again_replaces_its_jobs(mq: EchoMQ) -> None:
    def work() -> None: ...

    first, second = mq.job(work), mq.job(work)
    assert mq.jobs == {first.name: second}


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"queue": "a b"}, QueueNameError, "'a b'"),
        ({"queue": "{q}"}, QueueNameError, "braces"),
        ({"queue": ""}, QueueNameError, "empty"),
        ({"queue": 5}, QueueNameError, "must be str"),
        ({"name": ""}, InvalidInputError, "name of a job"),
        ({"name": "a\nb"}, InvalidInputError, "name of a job"),
        ({"name": 5}, InvalidInputError, "name of a job"),
        ({"max_attempts": 0}, InvalidInputError, "max_attempts must be from 1"),
        ({"max_attempts": True}, InvalidInputError, "max_attempts must be an integer"),
        ({"max_attempts": 1.5}, InvalidInputError, "max_attempts must be an integer"),
        ({"backoff": 1_000}, InvalidInputError, "not a backoff: 1000"),
        ({"backoff": None}, InvalidInputError, "not a backoff"),
    ],
)
def test_an_option_that_is_wrong_is_refused_with_its_value(mq: EchoMQ, options, error, why) -> None:
    with pytest.raises(error, match=why):
        mq.job(**options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "http://localhost"}, "is not a server's URL"),
        ({"url": "valkey://localhost", "home": "x"}, "not both"),
        ({"url": "valkey://localhost", "durable": True}, "not both"),
        ({"default_queue": "a b"}, "queue name"),
        ({"max_payload": 0}, "max_payload"),
        ({"max_payload": 2**40}, "max_payload"),
    ],
)
def test_an_app_that_is_set_up_wrongly_is_refused_where_it_is_written(options, why) -> None:
    with pytest.raises(InvalidInputError, match=why):
        EchoMQ(**options)


def test_the_environment_names_the_server_where_the_code_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMQ_URL", "valkey://somewhere:7000")
    assert "somewhere:7000" in repr(EchoMQ())
    assert "elsewhere:6379" in repr(EchoMQ("valkey://elsewhere"))
    assert "embedded server in /tmp/x" in repr(EchoMQ(home="/tmp/x"))
    monkeypatch.delenv("ECHOMQ_URL")
    assert "embedded server" in repr(EchoMQ())


def test_a_backoff_is_a_value_or_a_function(mq: EchoMQ) -> None:
    assert mq.job(name="a", backoff=Fixed(5))(lambda: None).defaults.backoff == Fixed(5)
    assert mq.job(name="b", backoff=lambda n: n)(lambda: None).defaults.max_attempts == 3
