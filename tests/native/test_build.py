"""The module is built with the package: what a wheel holds with a compiler and without one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from echomq.wire import module

ROOT = Path(__file__).parent.parent.parent
MODULE = "echomq/wire/native/echomq.so"
HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))

needs_a_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler on this machine")


def build(target: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {k: v for k, v in os.environ.items() if k not in {"ECHOMQ_BUILD_NATIVE", "CC", "CFLAGS", "LDFLAGS"}}
    return subprocess.run(
        (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)),
        cwd=ROOT,
        env=settings | {"TMPDIR": str(folder)} | environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def packed(folder: Path) -> tuple[str, bool]:
    """The wheel's tag, and whether it holds the module; nothing else is left in the folder."""
    (wheel,) = folder.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = [line for line in archive.read(about).decode().splitlines() if line.startswith("Tag: ")]
        assert tags == [f"Tag: {'-'.join(wheel.stem.split('-')[-3:])}"]
        return tags[0].removeprefix("Tag: "), MODULE in archive.namelist()


@needs_a_compiler
@pytest.mark.parametrize("setting", ["", "1"])
def test_a_wheel_holds_the_module_and_is_for_this_platform_and_any_python(setting: str, tmp_path: Path) -> None:
    done = build("wheel", tmp_path, ECHOMQ_BUILD_NATIVE=setting)
    assert done.returncode == 0, done.stderr
    tag, holds = packed(tmp_path)
    assert holds
    assert tag.startswith("py3-none-")
    assert tag != "py3-none-any"


def test_a_module_that_is_not_wanted_is_not_built(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, ECHOMQ_BUILD_NATIVE="0")
    assert done.returncode == 0, done.stderr
    assert packed(tmp_path) == ("py3-none-any", False)
    assert "native module" not in done.stderr


def test_without_a_compiler_there_is_a_warning_and_a_wheel_of_python_alone(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, CC="no-such-compiler --fast")
    assert done.returncode == 0, done.stderr
    assert packed(tmp_path) == ("py3-none-any", False)
    assert "no C compiler: no-such-compiler is not on PATH" in done.stderr
    assert "wire 4" in done.stderr


def editable(root: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What the build hook does for an editable install of a tree in which lies a module of another day."""
    shutil.copy(ROOT / "hatch_build.py", root)
    shutil.copytree(ROOT / "native", root / "native")
    output = root / "src" / MODULE
    output.parent.mkdir(parents=True)
    output.write_text("stale")
    hook = "NativeModule('.', {}, None, None, '', 'wheel').initialize('editable', {'force_include': {}})"
    words = (sys.executable, "-c", f"from hatch_build import NativeModule; {hook}")
    settings = {k: v for k, v in os.environ.items() if k not in {"ECHOMQ_BUILD_NATIVE", "CC", "CFLAGS", "LDFLAGS"}}
    done = subprocess.run(
        words, cwd=root, env=settings | environment, capture_output=True, text=True, timeout=50, check=False
    )
    return done, output


@needs_a_compiler
def test_an_editable_install_compiles_into_the_tree(tmp_path: Path) -> None:
    done, output = editable(tmp_path)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() != b"stale"


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"ECHOMQ_BUILD_NATIVE": "0"}, 0, ""),
        ({"CC": "no-such-compiler"}, 0, "this wheel holds none"),
        ({"CC": "no-such-compiler", "ECHOMQ_BUILD_NATIVE": "1"}, 1, "no-such-compiler is not on PATH"),
        ({"CC": "cc 'half a quote"}, 0, "CC=cc 'half a quote: No closing quotation"),
    ],
    ids=["unwanted", "no compiler", "needed", "no words"],
)
def test_an_editable_install_without_a_module_leaves_none(
    tmp_path: Path, settings: dict[str, str], code: int, said: str
) -> None:
    done, output = editable(tmp_path, **settings)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not output.exists()


@needs_a_compiler
def test_cc_is_read_as_a_shell_does_whoever_reads_it(tmp_path: Path) -> None:
    compiler = tmp_path / "my 'own' tools" / "cc"
    compiler.parent.mkdir()
    compiler.symlink_to(next(filter(None, map(shutil.which, ("cc", "gcc", "clang")))))
    named = shlex.join((str(compiler), "-DA=two words"))
    packages = tmp_path / "packages"
    packages.mkdir()
    done = build("wheel", packages, CC=named, ECHOMQ_BUILD_NATIVE="1")
    assert done.returncode == 0, done.stderr
    assert packed(packages)[1]
    output = tmp_path / "by hand" / "echomq.so"
    words = ("sh", str(ROOT / "native/build"), str(output))
    subprocess.run(words, env=os.environ | {"CC": named}, check=True, timeout=50)
    assert output.exists()


@needs_a_compiler
def test_a_compiler_that_fails_is_like_none_and_its_words_are_shown(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, CFLAGS="--no-such-flag")
    assert done.returncode == 0, done.stderr
    assert packed(tmp_path) == ("py3-none-any", False)
    assert "--no-such-flag" in done.stderr


def test_where_the_module_must_be_built_its_absence_is_an_error(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, CC="no-such-compiler", ECHOMQ_BUILD_NATIVE="1")
    assert done.returncode != 0
    assert "native module: no C compiler: no-such-compiler is not on PATH" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_another_setting_is_refused(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, ECHOMQ_BUILD_NATIVE="yes")
    assert done.returncode != 0
    assert "ECHOMQ_BUILD_NATIVE=yes: 1 (must be built), 0 (is not built) or nothing is allowed" in done.stderr


def test_the_source_archive_holds_what_the_module_is_made_of_and_no_module(tmp_path: Path) -> None:
    done = build("sdist", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as source:
        names = {name.split("/", 1)[-1] for name in source.getnames()}
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "native").iterdir() if path.is_file()}
    assert ours | {"hatch_build.py"} <= names
    assert not [name for name in names if name.endswith(".so")]


def test_the_path_is_absolute_and_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "echomq.so"
    file.touch()
    monkeypatch.setattr(module, "_FILE", file)
    assert module.module_path() == module.find_module() == file


def test_a_package_without_the_module_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_FILE", tmp_path / "echomq.so")
    assert module.find_module() is None
    with pytest.raises(module.ModuleMissingError, match=r"echomq\.so is not there.*C compiler.*wire 4"):
        module.module_path()


@needs_a_compiler
def test_the_c_is_clean_for_every_compiler_here_and_for_the_analyser() -> None:
    done = subprocess.run(("sh", "native/check"), cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
