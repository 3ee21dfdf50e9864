"""README and docs keep their word: every program in them runs as it stands, and what they name exists."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import echomq
from echomq import errors, jobs
from support.embedded import IDLE, folder

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS]

ECHOMQ = [sys.executable, "-m", "echomq.cli"]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELL_LINE = re.compile(r"^    ((?:make|pip|echomq|python) .+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
SPOKEN = re.compile(r"`([^`\n]+)`")


def programs(page: Path) -> list[str]:
    return PYTHON_BLOCK.findall(page.read_text(encoding="utf-8"))


def shell_lines(page: Path) -> list[str]:
    text = PYTHON_BLOCK.sub("", page.read_text(encoding="utf-8"))
    return SHELL_LINE.findall(text) + [each for each in SPOKEN.findall(text) if re.match(r"(make|echomq) \w", each)]


FIRST = programs(README)[0]
LATER = [
    pytest.param(program, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, program in enumerate(programs(page))
    if program != FIRST
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with README's first program in it, and an embedded server of its own."""
    with folder("h") as home:
        monkeypatch.setenv("ECHOMQ_HOME", str(home))
        monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)
        monkeypatch.delenv("ECHOMQ_URL", raising=False)
        (tmp_path / "tasks.py").write_text(FIRST, encoding="utf-8")
        yield tmp_path


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done


def test_the_first_program_runs_as_pasted_and_so_does_its_worker(here: Path) -> None:
    assert "echomq worker tasks:mq --burst" in README.read_text(encoding="utf-8")
    said = run(sys.executable, "tasks.py", cwd=here).stdout
    assert re.fullmatch(r"JOB[0-9A-Za-z]{11} waits for a worker\n", said)
    said = run(*ECHOMQ, "worker", "tasks:mq", "--burst", cwd=here).stdout
    assert "to ada@example.org: It works" in said


@pytest.mark.parametrize("program", LATER)
def test_every_other_program_runs_as_pasted(program: str, here: Path) -> None:
    (here / "pasted.py").write_text(program, encoding="utf-8")
    done = run(sys.executable, "pasted.py", cwd=here)
    assert done.stderr == ""


def test_a_handler_that_bears_a_second_run_bears_it() -> None:
    import sqlite3
    from contextlib import closing

    (program,) = programs(ROOT / "docs" / "guarantees.md")
    names: dict[str, object] = {}
    exec(program, names)
    credit = names["credit"]
    assert callable(credit)
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript("CREATE TABLE credited (order_id TEXT UNIQUE); CREATE TABLE account (id TEXT, cents INT)")
        db.execute("INSERT INTO account VALUES ('ada', 0)")
        for _ in range(2):
            credit(db, "order 7", "ada", 250)
        assert db.execute("SELECT cents FROM account").fetchone() == (250,)


@cache
def help_of(command: str) -> str:
    return run(*ECHOMQ, command, "--help", cwd=ROOT).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_that_is_named_exists(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    known |= {f"{setting}=" for setting in re.findall(r"^(\w+) \?=", makefile, re.MULTILINE)}
    for line in shell_lines(page):
        program, *words = line.split()
        if program == "make":
            assert {re.sub(r"=.*", "=", word) for word in words} <= known, line
        elif program == "echomq":
            helped = help_of(words[0])
            for option in (word for word in words[1:] if word.startswith("--")):
                assert option in helped, line


def test_every_option_of_the_worker_is_explained() -> None:
    options = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", help_of("worker"))) - {"--help"}
    assert "--log-payloads" in options
    rows = re.findall(r"^\| (`--.*?) \|", (ROOT / "docs" / "worker.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert options - set(re.findall(r"--[a-z-]+", " ".join(rows))) == set()


def test_no_program_puts_a_payload_of_its_own_into_a_queue_that_an_app_serves() -> None:
    every = [program for page in PAGES for program in programs(page)]
    served = {queue for program in every for queue in re.findall(r"@mq\.job\(.*queue=\"(\w+)\"", program)}
    raw = {name for each in every for name in re.findall(r"(?:(?:jobs|lanes)\.enqueue\w*|Node)\(\"(\w+)\"", each)}
    assert "mail" in served
    assert "raw" in raw
    assert served & raw == set()


def test_readme_begins_with_what_it_is_and_two_commands() -> None:
    assert shell_lines(README)[:2] == ["make demo", "make test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_linked_from_readme() -> None:
    linked = set(LINK.findall(README.read_text(encoding="utf-8")))
    assert {f"docs/{page.name}" for page in DOCS} <= linked


def test_every_error_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"`(\w+(?:Error|Warning)|Job(?:Failed|Cancelled))`", text))
    known = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert known - explained == set()
    assert explained - known - {"TimeoutError", "TypeError", "ValueError"} == set()


def test_every_verb_on_jobs_is_explained() -> None:
    text = (ROOT / "docs" / "verbs.md").read_text(encoding="utf-8")
    verbs = {name for name in jobs.__all__ if inspect.isfunction(getattr(jobs, name))}
    assert {verb for verb in verbs if not re.search(rf"`{verb}\(", text)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_variable_that_is_named_is_read_by_the_code(page: Path) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for name in set(re.findall(r"\bECHOMQ_\w+", page.read_text(encoding="utf-8"))):
        assert f'"{name}"' in code, f"{page.name}: {name}"


def test_the_public_face_is_what_the_docs_import() -> None:
    for page in PAGES:
        for program in programs(page):
            for names in re.findall(r"^from echomq import (.+)$", program, re.MULTILINE):
                assert {name.strip() for name in names.split(",")} <= set(echomq.__all__), page.name
