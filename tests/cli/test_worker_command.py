"""`echomq worker`: what is written wrongly is one clear sentence with the nearest valid thing, and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import echomq
from echomq import EchoMQ
from echomq.cli.numbers import size as parse_size
from echomq.cli.program import COMMANDS, build
from echomq.cli.worker import _queues
from echomq.identity.minter import mint
from echomq.protocol import jobs
from support.program import cli
from support.servers import Server

TASKS = """
import sys
from echomq import EchoMQ

mq = EchoMQ("{url}", default_queue="{queue}")
spare = EchoMQ("{url}")
number = 5

class shop:
    mq = mq

@mq.job(name="greet")
def greet(name):
    print(f"Hello, {{name}}!", flush=True)

@mq.job(name="other", queue="{queue}-images")
def other(): ...
"""


def click_command(app: typer.Typer) -> Any:
    """The program's group, which has its commands by name."""
    return typer.main.get_command(app)


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return cli(*words, folder=tmp_path, **{"ECHOMQ_HOME": str(tmp_path / "home")} | env)

    return run


@pytest.fixture
def tasks(tmp_path: Path, server: Server, queue: str) -> Path:
    file = tmp_path / "tasks.py"
    file.write_text(TASKS.format(url=server.url, queue=queue))
    return file


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that it says."""
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("echomq: ")
    return line.removeprefix("echomq: ")


@pytest.mark.parametrize("target", ["taks:mq", "tasks:mp", "tasks:spare", "broken:mq"])
def test_a_wrong_target_is_one_sentence_and_exit_code_2(run: Run, tasks: Path, target: str) -> None:
    (tasks.parent / "broken.py").write_text("1 / 0")
    done = run("worker", target)
    assert sentence(done)
    assert done.returncode == 2


def test_an_unknown_queue_is_told_with_the_nearest(run: Run, tasks: Path, queue: str) -> None:
    done = run("worker", "tasks:mq", "--queue", queue, "--queue", f"{queue}-image")
    assert sentence(done).startswith(f"no job is in queue '{queue}-image'; there are jobs in '{queue}-images'")
    assert done.returncode == 2


def test_a_server_that_cannot_be_reached_is_exit_code_1(run: Run, tasks: Path) -> None:
    done = run("worker", "tasks:mq", "--url", "valkey://localhost:1")
    assert sentence(done).startswith("cannot connect to localhost:1")
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://x"], "'http://x' is not a server's URL"),
        (["--grace", "1e300"], "--grace is 1e+300"),
        (["--queue", "mail=much"], "--queue 'mail=much': 'much' is no weight; a whole number, from 1, is one"),
        (["-q", "mail=2", "-q", "mail=3"], "--queue 'mail=3': 'mail' is named twice; name it once"),
        (["-q", "mail", "-q", "mail"], "--queue 'mail': 'mail' is named twice; name it once"),
        (["--strict"], "--strict serves queues in the order in which they are named: give --queue NAME for each"),
        (
            ["--strict", "--queue", "mail=3"],
            "--strict goes by the order of the queues, not by weights: write --queue mail,",
        ),
        (["--burst", "--reload"], "--burst ends when nothing is left and --reload never ends: leave one of them out"),
    ],
)
def test_a_wrong_option_is_told(run: Run, tasks: Path, words: list[str], said: str) -> None:
    done = run("worker", "tasks:mq", *words)
    assert said in sentence(done)
    assert done.returncode == 2
    told = run("worker", "tasks:mq", *words, "--log-format", "json")
    assert said in json.loads(told.stderr)["message"], "a machine is told so, too"
    assert told.returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ["wroker"],
        ["worker"],
        ["worker", "tasks:mq", "--nothing"],
        ["worker", "tasks:mq", "--log-level", "loud"],
    ],
)
def test_a_wrong_usage_is_exit_code_2(run: Run, words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert sentence(done)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["worker", "tasks:mq", "--concurrency", "0"], "'0'; a whole number, from 1 to 100000, is allowed"),
        (["worker", "tasks:mq", "-c", "200000"], "'200000'; a whole number, from 1 to 100000, is allowed"),
        (["worker", "tasks:mq", "-c", "many"], "'many'; a whole number, from 1 to 100000, is allowed"),
        (["worker", "tasks:mq", "--grace", "-1"], "'-1'; a number of seconds, 0 or more, is allowed"),
        (["worker", "tasks:mq", "--grace", "nan"], "'nan'; a number of seconds, 0 or more, is allowed"),
        (["worker", "tasks:mq", "--grace", "soon"], "'soon'; a number of seconds, 0 or more, is allowed"),
        (["worker", "tasks:mq", "-p", "0"], "'0'; a whole number, from 1 to 1000, is allowed"),
        (["worker", "tasks:mq", "--pool", "0"], "'0'; a whole number, from 1 to 100000, is allowed"),
        (["worker", "tasks:mq", "--max-jobs", "0"], "'0'; a whole number, 1 or more, is allowed"),
        (["worker", "tasks:mq", "--max-rss", "much"], "'much'; a number of bytes, with K, M or G if so wanted"),
        (["worker", "tasks:mq", "--max-rss", "0"], "'0'; a number of bytes, with K, M or G if so wanted"),
        (["jobs", "mail", "--limit", "0"], "'0'; a whole number, 1 or more, is allowed"),
    ],
)
def test_a_wrong_number_is_named_with_what_is_allowed(run: Run, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("word", "size"),
    [("5", 5), ("1k", 1_024), ("512M", 512 << 20), ("1.5G", 3 << 29), ("2GiB", 2 << 30), ("10MB", 10 << 20)],
)
def test_an_amount_of_memory_may_have_a_unit(word: str, size: int) -> None:
    assert parse_size(word) == size


def test_a_weight_stands_behind_the_last_equals_sign() -> None:
    assert _queues(["mail=3", "a=b=2", "slow"]) == {"mail": 3, "a=b": 2, "slow": 1}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_command_is_enough_to_find_it(name: str) -> None:
    assert name in list(click_command(build(name)).commands)


def test_every_command_is_listed() -> None:
    assert list(click_command(build()).commands) == list(COMMANDS)


def test_a_command_loads_no_other(run: Run) -> None:
    code = "import sys; from echomq.cli.program import build; build('worker'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("echomq.cli.")}
    assert loaded == {f"echomq.cli.{name}" for name in ("program", "worker", "logs", "numbers", "wires")}


def test_a_burst_runs_what_is_there_and_ends(run: Run, tasks: Path, server: Server, queue: str) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:

        @mq.job(name="greet")
        def greet(name: str) -> None: ...

        first, second = greet.enqueue("a"), greet.enqueue("b")
        greet.after(hours=1).enqueue("c")
    done = run("worker", "tasks:mq", "--burst", "--concurrency", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["Hello, a!", "Hello, b!"]
    for job in (first, second):
        assert f"INFO echomq.worker.jobs: {job.id} greet attempt 1 done, " in done.stderr
    assert "2 jobs were run" in done.stderr


def test_a_burst_counts_what_it_ran_and_says_until_when_the_others_are_kept(
    run: Run, tasks: Path, server: Server, queue: str
) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:
        mq.job(name="greet")(lambda name: None).enqueue("a")
        unknown = [mq.job(name=name)(lambda: None).enqueue() for name in ("gret", "grete")]
        mq.run(jobs.enqueue(queue, mint(), b"no envelope"))
    done = run("worker", "tasks:mq", "--burst")
    assert done.returncode == 0, done.stderr
    assert "1 job was run, 3 were put off or buried as they are" in done.stderr
    for job in unknown:
        (line,) = (line for line in done.stderr.splitlines() if job.id in line)
        assert line.endswith("; again in 1000 ms, and buried in 300 s unless a worker has run it by then")


def test_an_amount_of_memory_that_no_worker_can_begin_with_is_refused(run: Run, tasks: Path) -> None:
    done = run("worker", "tasks:mq", "--max-rss", "5")
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if "max_rss is 5 bytes" in line)
    assert "before its first job: allow more" in line


def test_quiet_is_quiet(run: Run, tasks: Path) -> None:
    done = run("worker", "tasks:mq", "--burst", "--log-level", "error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("words", [["-h"], ["--help"], []])
def test_help_shows_the_commands(run: Run, words: list[str]) -> None:
    done = run(*words)
    text = done.stdout + done.stderr
    assert all(command in text for command in ("worker", "server", "demo"))


def test_help_of_a_command_has_examples(run: Run) -> None:
    done = run("worker", "--help")
    assert done.returncode == 0
    assert "echomq worker tasks:mq --burst" in " ".join(done.stdout.split())
    assert "Jobs that run at once, over all queues" in " ".join(done.stdout.split())


def test_the_version_is_told(run: Run) -> None:
    assert run("--version").stdout == f"echomq {echomq.__version__}\n"
