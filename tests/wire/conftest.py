"""What the tests of the embedded server share: a folder of its own, a use of its server, and a short idle time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import IDLE, folder


@pytest.fixture
def short_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)
    monkeypatch.delenv("ECHOMQ_HOME", raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    with folder() as path:
        yield path


@pytest.fixture
def source(home: Path) -> Iterator[EmbeddedSource]:
    used = EmbeddedSource(home)
    yield used
    used.release()
