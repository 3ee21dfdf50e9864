"""The differential test of the native module, as long as you like.

    python -m support.differential [SEQUENCES] [--server valkey|valkey81|redis] [--seed N]

Hypothesis drives random sequences of calls, hostile ones among them, on both wires of one server whose clock is set
(support/twins.py), and shrinks the first that is not the same on both. It prints how many were run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from support.grammar import HOUR, THEMES, Speaker
from support.servers import Kind
from support.twins import Step, Tick, Twins

_TICKS = (1, 1, 5, 1_000, HOUR, HOUR, 26 * HOUR, -1, -HOUR)


def step(number: int, theme: str, hostile: bool) -> Step | None:
    """One call, or a tick of the clock; of the lowest numbers nothing, to which a step that does not matter shrinks."""
    if number < 2**16:
        return None
    choose = Random(number).choice
    return Tick(choose(_TICKS)) if choose(range(12)) == 0 else Speaker(choose, hostile=hostile, theme=theme).say()


def steps(theme: str, hostile: bool) -> st.SearchStrategy[Step | None]:
    """A number a step: to draw each of its words would take Hypothesis longer than all the rest. It draws bytes evenly,
    and of integers mostly low ones."""
    return st.binary(min_size=3, max_size=3).map(lambda drawn: step(int.from_bytes(drawn, "big"), theme, hostile))


sequences = st.sampled_from([(theme, hostile) for hostile in (False, True, True) for theme in THEMES]).flatmap(
    lambda kind: st.lists(steps(*kind), min_size=20, max_size=80)
)
"""Long ones: what is worth comparing comes of several calls."""


def hold(twins: Twins, count: int, *, number: int | None = None, told: Callable[[int], None] | None = None) -> int:
    """Plays so many sequences; gives how many there were when none of them differs."""
    played = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(sequences)
    def play(sequence: list[Step | None]) -> None:
        nonlocal played
        twins.play([step for step in sequence if step])
        played += 1
        if told:
            told(played)

    (seed(number)(play) if number is not None else play)()
    return played


def main() -> None:
    parser = argparse.ArgumentParser(prog="support.differential", description=__doc__)
    parser.add_argument("sequences", nargs="?", type=int, default=10_000)
    parser.add_argument("--server", type=Kind, default=Kind.VALKEY)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--module", type=Path)
    chosen = parser.parse_args()
    began = time.monotonic()

    def told(played: int) -> None:
        if played % 1_000 == 0:
            print(f"{played:,} sequences, {twins.steps:,} calls, {time.monotonic() - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory() as folder, Twins(chosen.server, Path(folder), chosen.module or True) as twins:
        played = hold(twins, chosen.sequences, number=chosen.seed, told=told)
    print(
        f"{played:,} sequences on {chosen.server} without a difference: {twins.steps:,} calls, of which "
        f"{twins.refused:,} were refused and {twins.left:,} left to the script, in {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
