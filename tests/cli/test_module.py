"""`echomq module path`, for a person and for `--loadmodule "$(echomq module path)"`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from echomq.cli import program
from echomq.wire import module


def echomq(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["echomq", *words])
    with pytest.raises(SystemExit) as ended:
        program.run()
    return int(ended.value.code or 0)


def test_it_prints_one_absolute_path_of_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert echomq(monkeypatch, "module", "path") == 0
    said = capsys.readouterr()
    assert said.err == ""
    path = Path(said.out.removesuffix("\n"))
    assert path.is_absolute()
    assert path.is_file()


def test_without_a_built_module_it_is_one_sentence_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_FILE", tmp_path / "echomq.so")
    assert echomq(monkeypatch, "module", "path") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("echomq: native module: ")
    assert said.err.count("\n") == 1
    assert "wire 4" in said.err


def test_its_help_says_how_a_server_is_given_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert echomq(monkeypatch, "module", "path", "--help") == 0
    assert '--loadmodule "$(echomq module path)"' in capsys.readouterr().out
