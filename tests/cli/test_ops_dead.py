"""`echomq dead`: the morgue listed, and emptied in bulk by name, error and age, never beyond what was confirmed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin

HOUR_MS = 3_600_000


def ids(document: Any) -> list[str]:
    return [job["id"] for job in document["jobs"]]


@pytest.fixture
def morgue(shop: Any) -> dict[str, str]:
    """Four dead jobs; the first two died long ago."""
    made = {
        "old send": shop.dead("send", "TimeoutError: slow"),
        "old other": shop.dead("other", "ValueError: no"),
        "send": shop.dead("send", "ValueError: no"),
        "late": shop.dead("send", "TimeoutError: slow\nagain"),
    }
    for name in ("old send", "old other"):
        shop.raw.execute("HSET", shop.keys.job(made[name]), "died_ms", shop.raw.now_ms() - 3 * HOUR_MS)
    return made


def test_the_dead_are_listed_with_how_they_died(ops: Any, shop: Any, morgue: dict[str, str]) -> None:
    told = ops("dead", shop.queue, "--json").json
    assert ids(told) == list(morgue.values())
    assert told["total"] == 4
    assert told["jobs"][0]["last_error"] == "TimeoutError: slow"
    assert told["jobs"][0]["died_ms"] < told["now_ms"] - 2 * HOUR_MS
    said = ops("dead", shop.queue, "--limit", "1")
    assert len(said.lines) == 3
    assert said.lines[-1] == f"1 listed, of 4 dead jobs in queue {shop.queue}; 1 looked at"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--name", "send"), ["old send", "send", "late"]),
        (("--error", "Timeout"), ["old send", "late"]),
        (("--error", "again"), ["late"]),
        (("--older-than", "2h"), ["old send", "old other"]),
        (("--older-than", "4h"), []),
        (("--name", "send", "--error", "slow", "--older-than", "2h"), ["old send"]),
        (("--limit", "2", "--name", "send"), ["old send", "send"]),
        (("--name", "nobody"), []),
    ],
)
def test_filters_mean_the_same_for_the_list_and_for_the_actions(
    words: tuple[str, ...], expected: list[str], ops: Any, shop: Any, morgue: dict[str, str]
) -> None:
    meant = [morgue[name] for name in expected]
    assert ids(ops("dead", shop.queue, "--json", *words).json) == meant
    told = ops("dead", shop.queue, "--purge", "--yes", "--json", *words).json
    assert (told["outcome"], told["matched"], told["jobs"]) == ("purged", len(meant), len(meant))
    assert shop.members(shop.keys.dead) == [job_id for job_id in morgue.values() if job_id not in meant]
    for job_id in meant:
        assert shop.row(job_id) == {}


def test_the_dead_get_another_life_after_a_yes(ops: Any, shop: Any, morgue: dict[str, str]) -> None:
    said = ops("dead", shop.queue, "--retry", "--name", "send", answer="\n")
    assert said.code == 1
    assert f"Give another life to 3 dead jobs of queue {shop.queue} named 'send'?" in said.err
    assert shop.raw.execute("ZCARD", shop.keys.pending) == 0
    said = ops("dead", shop.queue, "--retry", "--name", "send", answer="yes\n")
    assert said.out == f"3 dead jobs of queue {shop.queue} named 'send' given another life\n"
    assert shop.members(shop.keys.pending) == [morgue["old send"], morgue["send"], morgue["late"]]
    assert shop.members(shop.keys.dead) == [morgue["old other"]]


@pytest.mark.parametrize("action", ["--retry", "--purge"])
def test_a_job_that_lives_again_while_the_question_stands_is_left_alone(
    action: str, ops: Callable[..., Any], shop: Any, morgue: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(io.StringIO):
        def readline(self, size: int = -1, /) -> str:
            shop.run(admin.reprocess_job(shop.queue, morgue["send"]))
            return "y\n"

    monkeypatch.setattr(io, "StringIO", Slow)
    said = ops("dead", shop.queue, action)
    assert said.code == 0, said.err
    assert isinstance(sys.stdin, Slow)
    assert "3 dead jobs" in said.out
    assert said.out.endswith("; 1 no longer dead\n")
    assert shop.row(morgue["send"])["state"] == "pending"
    assert shop.raw.execute("ZCARD", shop.keys.dead) == 0


def test_more_than_a_page_is_purged(ops: Any, shop: Any) -> None:
    shop.dead()
    # As another client's morgue: 1,200 rows at once.
    for job_id in [mint() for _ in range(1_200)]:
        shop.raw.send(
            "HSET", shop.keys.job(job_id), "state", "dead", "attempts", "1", "payload", "x", "last_error", "e"
        )
        shop.raw.receive()
        shop.raw.execute("ZADD", shop.keys.dead, 0, job_id)
    assert ops("dead", shop.queue, "--json").json["total"] == 1_201
    assert ops("dead", shop.queue, "--purge", "--yes", "--limit", "700", "--json").json["jobs"] == 700
    assert ops("dead", shop.queue, "--purge", "--yes", "--older-than", "0ms", "--json").json["jobs"] == 501
    assert shop.raw.execute("EXISTS", shop.keys.dead) == 0


def test_an_empty_morgue_is_no_question(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("dead", shop.queue, "--purge")
    assert (said.code, said.err) == (0, "")
    assert ops("dead", shop.queue).lines == [f"0 listed, of 0 dead jobs in queue {shop.queue}; 0 looked at"]


@pytest.mark.parametrize("span", ["2", "two hours", "-1h", "1y", "", "99999999999999w"])
def test_a_span_that_cannot_be_read_is_one_sentence(span: str, ops: Any, shop: Any, morgue: dict[str, str]) -> None:
    said = ops("dead", shop.queue, "--purge", "--yes", "--older-than", span)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert shop.members(shop.keys.dead) == list(morgue.values())


def test_retry_and_purge_cannot_be_combined(ops: Any, shop: Any, morgue: dict[str, str]) -> None:
    assert ops("dead", shop.queue, "--retry", "--purge", "--yes").code == 2
    assert len(shop.members(shop.keys.dead)) == 4
