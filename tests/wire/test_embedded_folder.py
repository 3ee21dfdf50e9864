"""Where the embedded server's folder is, and the one error for each folder that cannot serve."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import folder as folder_module
from echomq.wire.embedded.folder import SOCKET_LIMIT, find_home, locate, open_folder
from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import IDLE, call, is_gone
from support.servers import wait_until


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ECHOMQ_HOME", raising=False)
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)
    deep = tmp_path / "project" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    return tmp_path / "project"


@pytest.fixture
def other_user() -> Iterator[None]:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user for a moment")
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_without_anything_it_is_here() -> None:
    assert find_home() == Path.cwd() / ".echomq"


def test_a_project_root_above_decides(project: Path) -> None:
    (project / "pyproject.toml").touch()
    assert find_home() == project / ".echomq"


def test_the_nearest_of_folder_and_project_root_decides(project: Path) -> None:
    (project / "pyproject.toml").touch()
    (project / "a" / ".echomq").mkdir()
    assert find_home() == project / "a" / ".echomq"
    (project / "a" / "b" / "pyproject.toml").touch()
    assert find_home() == project / "a" / "b" / ".echomq"


def test_a_file_of_that_name_above_is_passed_over(project: Path) -> None:
    (project / "a" / ".echomq").touch()
    (project / ".echomq").mkdir()
    assert find_home() == project / ".echomq"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_above_is_passed_over(project: Path) -> None:
    (project / ".echomq").mkdir()
    os.chown(project / ".echomq", 65534, 65534)
    assert find_home() == Path.cwd() / ".echomq"


def test_the_variable_comes_before_the_search_and_a_name_before_the_variable(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".echomq").mkdir()
    monkeypatch.setenv("ECHOMQ_HOME", "elsewhere")
    assert find_home() == Path.cwd() / "elsewhere"
    assert find_home("named") == Path.cwd() / "named"
    monkeypatch.setenv("ECHOMQ_HOME", "")
    assert find_home() == project / ".echomq"


def test_a_home_directory_may_be_written_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_home("~/q") == tmp_path / "q"


def test_a_user_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMQ_HOME", "~nosuch/x")
    with pytest.raises(EmbeddedServerError, match=r"the folder is ~nosuch/x, and ~nosuch has no home directory here"):
        find_home()


def test_links_that_lead_in_a_circle_are_named(project: Path) -> None:
    (project / "round").symlink_to(project / "again")
    (project / "again").symlink_to(project / "round")
    with pytest.raises(EmbeddedServerError, match=r"cannot use the folder .*round"):
        EmbeddedSource(project / "round").prepare()


def test_a_folder_that_is_no_text_is_refused() -> None:
    wrong: Any = b"home"
    with pytest.raises(EmbeddedServerError, match="text or a Path, not bytes"):
        find_home(wrong)


def test_a_working_directory_that_is_gone_is_named(project: Path) -> None:
    here = Path.cwd()
    here.rmdir()
    with pytest.raises(EmbeddedServerError, match="working directory is gone"):
        find_home()
    os.chdir(project)


def test_a_nul_in_the_name_is_refused() -> None:
    with pytest.raises(EmbeddedServerError, match="NUL"):
        find_home("a\0b")


def test_a_new_folder_is_private_and_hidden_from_git() -> None:
    home = find_home()
    opened = open_folder(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(opened.data.stat().st_mode) == 0o700
    assert (home / ".gitignore").read_text() == "*\n"


def test_our_own_folder_is_made_private_again() -> None:
    find_home().mkdir()
    find_home().chmod(0o775)
    open_folder(find_home())
    assert stat.S_IMODE(find_home().stat().st_mode) == 0o700


def test_another_folder_keeps_its_mode_and_is_refused_when_others_may_write(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    open_folder(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    shared.chmod(0o777)
    with pytest.raises(EmbeddedServerError, match=r"others may write .*mode 777.*chmod go-w"):
        open_folder(shared)


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", tmp_path / "file" / "below"):
        source = EmbeddedSource(home)
        with pytest.raises(EmbeddedServerError, match=r"/file.*a file stands where a folder is needed.*ECHOMQ_HOME"):
            source.prepare()
        source.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "theirs"
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(EmbeddedServerError, match=r"belongs to user 65534, and this process is user 0"):
        EmbeddedSource(home).prepare()


@pytest.mark.usefixtures("other_user")
def test_a_folder_that_may_not_be_made_is_named() -> None:
    with pytest.raises(EmbeddedServerError, match=r"Permission denied.*this user may write.*ECHOMQ_HOME"):
        open_folder(Path("/usr/share/echomq-test"))


def test_a_folder_with_too_long_a_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 60) / ("ü" * 60)
    one, other = EmbeddedSource(home), EmbeddedSource(home)
    target = one.prepare()
    try:
        assert target.path is not None
        assert len(os.fsencode(target.path)) <= SOCKET_LIMIT
        assert not target.path.startswith(str(home))
        assert stat.S_IMODE(Path(target.path).parent.stat().st_mode) == 0o700
        assert other.prepare() == target
        assert call(home, "CONFIG", "GET", "dir")[1].decode() == str(home / "data")
    finally:
        one.release()
        other.release()
    wait_until(lambda: is_gone(home), what="the server's end")


def test_the_longest_path_that_fits_is_used_as_it_is(tmp_path: Path) -> None:
    room = SOCKET_LIMIT - len(os.fsencode(tmp_path / "server.sock")) - 1
    fits, over = tmp_path / ("x" * room), tmp_path / ("x" * (room + 1))
    assert locate(fits).socket == str(fits / "server.sock")
    assert locate(over).socket.startswith("/tmp/echomq-")
    source = EmbeddedSource(fits)
    source.prepare()
    source.release()
    wait_until(lambda: is_gone(fits), what="the server's end")


@pytest.mark.parametrize("trap", ["link", "open", "file"])
def test_a_socket_directory_that_is_not_ours_alone_is_refused(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "SHORT_ROOT", str(tmp_path))
    place = tmp_path / f"echomq-{os.geteuid()}"
    if trap == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "target")
    elif trap == "open":
        place.mkdir()
        place.chmod(0o755)
    else:
        place.touch()
    with pytest.raises(EmbeddedServerError, match=r"too long for a socket.*not a directory of this user's alone"):
        open_folder(tmp_path / ("d" * 120))


def test_a_socket_directory_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "SHORT_ROOT", str(tmp_path / "missing"))
    with pytest.raises(EmbeddedServerError, match=r"too long for a socket.*cannot be made.*shorter path"):
        open_folder(tmp_path / ("d" * 120))
