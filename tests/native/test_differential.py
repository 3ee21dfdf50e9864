"""Commands and scripts do the same: random sequences of calls on both, every reply, key and message compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from echomq.protocol import jobs
from echomq.protocol.scripts import Script
from support.differential import hold
from support.grammar import IDS, NOW
from support.servers import Kind
from support.twins import DifferenceError, Tick, Twins

SEQUENCES = 60
"""A server; `make differential` runs 10,000."""


class Crooked(Script):
    """A twin of EMQ.ENQUEUE that does something else."""

    def __init__(self, source: str) -> None:
        super().__init__("enqueue")
        self.source = source


@pytest.fixture
def twins(kind: Kind, tmp_path: Path) -> Iterator[Twins]:
    with Twins(kind, tmp_path) as running:
        yield running


@pytest.mark.chaos
@pytest.mark.deadline(180)
def test_random_sequences_are_the_same_on_both_wires(twins: Twins) -> None:
    assert hold(twins, SEQUENCES, number=1) == SEQUENCES
    assert twins.steps > 20 * SEQUENCES
    assert twins.refused > SEQUENCES
    assert twins.left > 0


def test_the_clock_is_the_tests_and_a_difference_is_seen(twins: Twins) -> None:
    later = jobs.enqueue_in("q", IDS[0], b"p", delay_ms=500)
    twins.play([later])
    with twins.primary.client() as client:
        assert client.now_ms() == NOW
        assert client.execute("ZSCORE", "emq:{q}:schedule", IDS[0]) == b"%d" % (NOW + 500)
        twins.play([later, jobs.promote("q"), Tick(500)])
        assert client.execute("ZCARD", "emq:{q}:pending") == 0
        twins.play([later, Tick(500), jobs.promote("q")])
        assert client.execute("ZCARD", "emq:{q}:pending") == 1
        call = jobs.enqueue("q", IDS[0], b"p")
        for source, seen in (
            ("return 0", r"step 0, .*EMQ\.ENQUEUE.*: the command answers 1, the script 0"),
            ("return 1", r"step 0, .*: the command leaves, the script leaves: b'emq:{q}:job:JOB"),
        ):
            crooked = Crooked(source)
            client.execute("SCRIPT", "LOAD", crooked.source)
            with pytest.raises(DifferenceError, match=seen):
                twins.play([replace(call, script=crooked)])
