"""What `echomq worker` logs: a line a job, as text or as JSON, with what happened and without what is secret."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import echomq
from echomq import EchoMQ
from echomq.cli.logs import Format, JsonFormatter, Level, TextFormatter, configure, without_secrets
from support.program import cli
from support.servers import Server, free_port

SECRET = "s3kr3t-value"

TASKS = f"""
import logging
from echomq import EchoMQ, Snooze

mq = EchoMQ("{{url}}", default_queue="{{queue}}")

@mq.job(name="good")
def good(secret): ...

@mq.job(name="bad", max_attempts=1)
async def bad(secret):
    raise ValueError("at valkey://me:{SECRET}@host:1/0")

@mq.job(name="later")
def later(secret):
    logging.getLogger("shop").warning("seen %s", "here", extra={{{{"order": 7}}}})
    raise Snooze(hours=1)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, server: Server, queue: str) -> Run:
    """Sends one job of each kind, then runs `echomq worker tasks:mq --burst` with the words given."""
    (tmp_path / "tasks.py").write_text(TASKS.format(url=server.url, queue=queue))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        with EchoMQ(server.url, default_queue=queue) as mq:
            for name in ("good", "bad", "later"):
                mq.job(name=name)(lambda secret: None).enqueue(SECRET)
        return cli("worker", "tasks:mq", "--burst", *words, folder=tmp_path)

    return run


def of_jobs(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The lines about jobs, by the name of the job."""
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return {line["job_name"]: line for line in lines if line["logger"] == "echomq.worker.jobs"}


def test_json_is_an_object_a_line_with_the_facts_of_a_job(run: Run, queue: str) -> None:
    done = run("--log-format", "json")
    assert done.returncode == 0
    lines = of_jobs(done)
    good, bad, later = (lines[name] for name in ("good", "bad", "later"))
    assert (good["level"], good["outcome"], good["queue"], good["attempt"]) == ("info", "done", queue, 1)
    assert good["job_id"].startswith("JOB")
    for span, kind in (("duration_ms", float), ("lateness_ms", int)):
        assert type(good[span]) is kind
        assert 0 <= good[span] < 60_000
    assert good["time"].endswith("Z")
    assert (bad["level"], bad["outcome"], bad["error"]) == ("error", "dead", "ValueError: at valkey://***@host:1/0")
    assert "in bad" in bad["traceback"]
    assert (later["level"], later["outcome"], later["retry_in_ms"]) == ("info", "snoozed", 3_600_000)
    assert SECRET not in done.stderr


def test_json_is_for_the_lines_of_the_app_too(run: Run) -> None:
    lines = [json.loads(line) for line in run("--log-format", "json").stderr.splitlines()]
    (shop,) = [line for line in lines if line["logger"] == "shop"]
    assert (shop["message"], shop["order"], shop["level"]) == ("seen here", 7, "warning")


def test_text_is_a_line_a_job_and_the_traceback_of_a_failure(run: Run) -> None:
    done = run()
    lines = done.stderr.splitlines()
    (good,) = [line for line in lines if " good " in line]
    assert "INFO echomq.worker.jobs: JOB" in good
    assert " good attempt 1 done, " in good
    assert good.endswith(" ms late")
    bad = next(number for number, line in enumerate(lines) if " bad attempt 1 dead, " in line)
    assert lines[bad].endswith(": ValueError: at valkey://***@host:1/0")
    assert lines[bad + 1].startswith('  File "')
    assert SECRET not in done.stderr


@pytest.mark.parametrize("words", [("--log-format", "json"), ()])
def test_arguments_are_logged_when_asked_for(run: Run, words: tuple[str, ...]) -> None:
    done = run("--log-payloads", *words)
    assert done.stderr.count(SECRET) >= 3
    if words:
        assert json.loads(of_jobs(done)["good"]["arguments"]) == {"args": [SECRET], "kwargs": {}}


def test_a_level_above_leaves_lines_out(run: Run) -> None:
    done = run("--log-level", "error", "--log-format", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["job_name"] for line in lines if "job_name" in line} == {"bad"}


@pytest.mark.parametrize("where", ["url", "option", "variable"])
def test_no_password_is_shown_when_there_is_no_connection(tmp_path: Path, where: str) -> None:
    url = f"valkey://me:{SECRET}@127.0.0.1:{free_port()}/0"
    code = f"from echomq import EchoMQ\nmq = EchoMQ({url if where == 'url' else ''!r})\n@mq.job\ndef work(): ...\n"
    (tmp_path / "tasks.py").write_text(code.replace("EchoMQ('')", "EchoMQ()"))
    option = ("--url", url) if where == "option" else ()
    variable = {"ECHOMQ_URL": url} if where == "variable" else {}
    done = cli("worker", "tasks:mq", "--log-level", "debug", *option, folder=tmp_path, **variable)
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_no_password_is_shown_when_the_server_refuses_it(start_server, tmp_path: Path) -> None:
    server = start_server()
    with server.client() as client:
        client.execute("CONFIG", "SET", "requirepass", "another")
    try:
        url = f"unix://:{SECRET}@{server.url.removeprefix('unix://')}" if server.url.startswith("unix") else server.url
        with pytest.raises(echomq.EchoMQError) as caught:
            EchoMQ(url.replace("valkey://", f"valkey://:{SECRET}@")).connection()
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in f"{error!s}{error!r}{getattr(error, '__notes__', '')}"
            error = error.__cause__ or error.__context__
    finally:
        with server.client() as client:
            client.execute("AUTH", "another")
            client.execute("CONFIG", "SET", "requirepass", "")


# The formatters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no url", "no url"),
        ("redis://:pw@host", "redis://***@host"),
        ("a valkeys://u:p@ss@h:1/0?db=1 b", "a valkeys://***@h:1/0?db=1 b"),
        ("https://host/path?mail=a:b@c", "https://host/path?mail=a:b@c"),
        ("redis://user@host", "redis://user@host"),
        ('{"url":"redis://host:1","to":"a@b"}', '{"url":"redis://host:1","to":"a@b"}'),
    ],
)
def test_credentials_of_a_url_are_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def record(**extra: Any) -> logging.LogRecord:
    return logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, "said %s", ("it",), None, extra=extra)


@pytest.mark.parametrize("odd", [object(), float("nan"), "\udcff", {1: {2, 3}}, b"\xff", 10**400])
def test_a_record_of_anything_is_one_line_of_json(odd: object) -> None:
    line = JsonFormatter().format(record(odd=odd))
    assert "\n" not in line
    facts = json.loads(line)
    # Whatever the one holds, the others stay as they are.
    assert (facts["message"], facts["level"]) == ("said it", "info")


class Mute:
    """An object whose text nobody gets."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(("text", "args"), [("%d of redis://me:pw@h", ("x",)), ("%s %s", ("x",)), ("%s", (Mute(),))])
@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_a_record_that_cannot_be_put_together_is_a_line_nevertheless(
    formatter: logging.Formatter, text: str, args: tuple[object, ...]
) -> None:
    made = logging.getLogger("x").makeRecord("x", logging.INFO, "f", 1, text, args, None, extra={"odd": Mute()})
    line = formatter.format(made)
    assert "do not fit" in line
    assert "\n" not in line
    assert "pw" not in line


TROUBLE = """
import gc, threading, warnings
from echomq import EchoMQ

mq = EchoMQ("{url}", default_queue="{queue}")

@mq.job
def nothing(): ...

class Left:
    def __del__(self):
        raise ValueError("left behind")

@mq.on_startup
def trouble():
    warnings.warn("old ways")
    thread = threading.Thread(target=lambda: 1 / 0, name="lone")
    thread.start()
    thread.join()
    Left()
    gc.collect()
    raise {end}
"""


@pytest.mark.parametrize("end", ["SystemExit('no settings')", "ValueError('no settings')"])
def test_what_python_writes_itself_and_how_a_worker_fails_are_json_too(
    tmp_path: Path, server: Server, queue: str, end: str
) -> None:
    (tmp_path / "tasks.py").write_text(TROUBLE.format(url=server.url, queue=queue, end=end))
    done = cli("worker", "tasks:mq", "--burst", "--log-format", "json", folder=tmp_path)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    said = " ".join(line["message"] + line.get("traceback", "") for line in lines)
    assert done.returncode == 1
    assert all(word in said for word in ("old ways", "ZeroDivisionError", "left behind", "no settings"))
    assert lines[-1]["level"] == "critical"
    assert "trouble raised" in lines[-1]["message"]


@pytest.mark.parametrize("form", ["text", "json", None])
def test_no_password_is_in_what_python_writes_itself(
    tmp_path: Path, server: Server, queue: str, form: str | None
) -> None:
    url = f"valkey://me:{SECRET}@host:1"
    code = TROUBLE.replace("old ways", f"old ways: {url}").replace("left behind", f"left behind: {url}")
    code = code.replace("lambda: 1 / 0", f"lambda: int('{url}')")
    (tmp_path / "tasks.py").write_text(code.format(url=server.url, queue=queue, end="SystemExit('no settings')"))
    done = cli("worker", "tasks:mq", "--burst", *(() if form is None else ("--log-format", form)), folder=tmp_path)
    said = done.stdout + done.stderr
    assert said.count("valkey://***@host:1") >= 3
    assert all(word in said for word in ("old ways", "invalid literal", "left behind"))
    assert SECRET not in said


def test_what_is_written_wrongly_is_said_in_json_too(tmp_path: Path) -> None:
    done = cli("worker", "nowhere:mq", "--log-format", "json", folder=tmp_path)
    assert done.returncode == 2
    assert "nowhere" in json.loads(done.stderr)["message"]


def test_an_exception_is_a_field() -> None:
    try:
        raise KeyError("redis://u:p@h")
    except KeyError:
        made = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    found = json.loads(JsonFormatter().format(made))
    assert found["traceback"].endswith("KeyError: 'redis://***@h'")
    assert "Traceback" in TextFormatter().format(made)


@pytest.fixture
def untouched() -> Iterator[logging.Logger]:
    """The root logger, and as it was afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("echomq")
    handlers, level, own = list(root.handlers), root.level, ours.level
    ours.setLevel(logging.NOTSET)
    hooks = threading.excepthook, sys.unraisablehook
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(own)
        threading.excepthook, sys.unraisablehook = hooks
        logging.captureWarnings(False)


def test_a_program_keeps_its_logging_unless_a_format_is_asked_for(untouched: logging.Logger) -> None:
    own = logging.StreamHandler()
    untouched.handlers[:] = [own]  # pytest's own go away for this test
    configure(None)
    assert untouched.handlers == [own]
    assert logging.getLogger("echomq").level == logging.NOTSET
    configure(Level.WARNING)
    assert untouched.handlers == [own]
    assert logging.getLogger("echomq").level == logging.WARNING
    configure(None, Format.JSON)
    (handler,) = untouched.handlers
    assert isinstance(handler.formatter, JsonFormatter)
    assert logging.getLogger("echomq").level == logging.INFO
