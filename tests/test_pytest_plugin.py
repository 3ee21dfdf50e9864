"""The pytest plugin: real runs of pytest, in folders of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import echomq
from support.servers import Server

ROOT = Path(__file__).parents[1]

TASKS = """
from echomq import EchoMQ
mq = EchoMQ("valkey://localhost:1")

@mq.job(queue="mail")
async def send(to: str) -> str:
    return to
"""
"""An app whose own server is not there."""

COROUTINES = """
import asyncio, inspect

def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""


class Project:
    """A folder with an app and tests of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("tasks.py", TASKS)
        self.write("pytest.ini", "[pytest]\npythonpath = .\nechomq_app = tasks:mq\nfilterwarnings = error\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *words: str) -> str:
        """What pytest says."""
        temporary = self.folder / "t"
        temporary.mkdir(exist_ok=True)
        source = str(Path(echomq.__file__).parents[1])
        names = {"PYTHONPATH": source, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "echomq.pytest_plugin", "-p", "no:cacheprovider", *words],
            cwd=self.folder,
            env=os.environ | names | {"TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert [each.name for each in temporary.glob("echomq-*")] == [], "a server was left behind"
        return done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_each_test_has_the_app_on_a_server_with_empty_queues(project: Project) -> None:
    project.write(
        "test_it.py",
        """
import pytest
from echomq.errors import NotTestingError
from tasks import mq, send

@pytest.mark.parametrize("n", range(3))
def test_sends(echomq, echomq_server, n):
    assert echomq is mq and echomq_server.url.startswith("unix://")
    assert mq.enqueued() == []
    assert send.enqueue("ada").queue == "mail"
    mq.assert_enqueued(send, "ada", times=1)

def test_runs(echomq):
    job = send.enqueue("ada")
    assert mq.drain_blocking().completed == 1
    assert job.get() == "ada"

def test_alone():
    with pytest.raises(NotTestingError):
        mq.drain_blocking()
    assert "localhost" in repr(mq)
""",
    )
    assert "5 passed" in project.run()


def test_coroutines_need_no_plugin_of_any_kind(project: Project) -> None:
    project.write("conftest.py", COROUTINES)
    project.write(
        "test_it.py",
        """
import pytest
from tasks import mq, send

@pytest.mark.parametrize("n", range(3))
async def test_sends(echomq, n):
    job = await send.aenqueue("ada")
    await mq.aassert_enqueued(send, "ada", times=1)
    assert (await mq.drain()).completed == 1
    assert await job.result() == "ada"
""",
    )
    said = project.run("-W", "error")
    assert "3 passed" in said
    assert "Warning" not in said


def test_under_anyio_too_with_a_loop_that_outlives_a_test(project: Project) -> None:
    pytest.importorskip("anyio", reason="anyio comes with watchfiles, of the test group")
    project.write(
        "test_it.py",
        """
import pytest
from tasks import mq, send

pytestmark = pytest.mark.anyio

@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="module")
async def one_loop(anyio_backend):
    yield

@pytest.mark.parametrize("n", range(5))
async def test_sends(one_loop, echomq, n):
    job = await send.aenqueue("ada")
    await mq.aassert_enqueued(send, times=1)
    assert (await mq.drain()).completed == 1
    assert await job.result() == "ada"
""",
    )
    assert "5 passed" in project.run("-p", "anyio")


def test_workers_of_xdist_have_a_server_each(project: Project) -> None:
    project.write(
        "test_it.py",
        """
import pathlib, pytest
from tasks import mq, send

@pytest.mark.parametrize("n", range(12))
def test_sends(echomq, echomq_server, n):
    with pathlib.Path("servers").open("a") as file:
        print(echomq_server.url, file=file)
    assert mq.enqueued() == []
    send.enqueue("ada")
    mq.assert_enqueued(send, times=1)
""",
    )
    assert "12 passed" in project.run("-p", "xdist", "-n", "2")
    assert len(set((project.folder / "servers").read_text().split())) == 2


def test_on_a_given_server_each_test_has_queues_of_its_own(project: Project, server: Server) -> None:
    project.write(
        "test_it.py",
        """
from tasks import mq, send

def test_sends(echomq, echomq_server):
    assert send.enqueue("ada").queue != "mail"
    mq.assert_enqueued(send, queue="mail", times=1)

def test_sends_again(echomq):
    assert mq.enqueued() == []
""",
    )
    assert "2 passed" in project.run("--echomq-url", server.url)
    with server.client() as client:
        assert [key for key in client.execute("KEYS", "*") if key.startswith(b"emq:")] == []
    with (project.folder / "pytest.ini").open("a") as file:
        print(f"echomq_url = {server.url}", file=file)
    assert "2 passed" in project.run()


def test_a_fixture_of_ones_own_says_which_app(project: Project) -> None:
    project.write("pytest.ini", "[pytest]\npythonpath = .\n")
    project.write("other.py", TASKS)
    project.write("conftest.py", "import pytest, tasks\n@pytest.fixture\ndef echomq_app():\n    return tasks.mq\n")
    project.write(
        "test_it.py",
        """
import other, pytest, tasks

def test_one(echomq):
    assert echomq is tasks.mq

class TestOther:
    @pytest.fixture
    def echomq_app(self):
        return other.mq

    def test_other(self, echomq_eager):
        assert echomq_eager is other.mq
        assert other.send.enqueue("ada").get() == "ada"
""",
    )
    assert "2 passed" in project.run()


def test_without_an_app_it_says_what_to_write(project: Project) -> None:
    project.write("test_it.py", "def test_one(echomq): pass\n")
    project.write("pytest.ini", "[pytest]\npythonpath = .\n")
    assert "set echomq_app = tasks:mq in pytest's settings" in project.run()
    project.write("pytest.ini", "[pytest]\npythonpath = .\nechomq_app = tasks:mk\n")
    assert "module 'tasks' has no 'mk'; write tasks:mq" in project.run()


def test_a_failing_assertion_shows_the_test_and_the_nearest(project: Project) -> None:
    project.write(
        "test_it.py",
        """
from tasks import mq, send

def test_one(echomq):
    send.enqueue("ada")
    mq.assert_enqueued(send, "eve")
""",
    )
    said = project.run()
    assert "to is 'ada', not 'eve'" in said
    assert "ground.py" not in said, "our own frames are hidden"
    assert "enqueued.py" not in said


def test_a_failing_test_ends_the_server_as_well(project: Project) -> None:
    project.write(
        "test_it.py",
        """
import pytest
from tasks import send

def test_fails(echomq):
    send.enqueue("ada")
    assert False

def test_ends(echomq):
    pytest.exit("enough")
""",
    )
    assert "1 failed" in project.run()  # and `run` looks whether a server is left


def test_it_costs_nothing_to_those_who_do_not_use_it() -> None:
    program = (
        "import sys, json, pytest; before = set(sys.modules); import echomq.pytest_plugin; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert "echomq.app" not in done.stdout
    loads = "import sys, echomq; echomq.EchoMQ; print('pytest' in sys.modules, 'echomq.app.trial' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.split() == ["False", "False"]


def test_the_package_names_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"echomq": "echomq.pytest_plugin"}
