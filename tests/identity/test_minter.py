"""Minted ids rise strictly, whatever the clock, the threads and the node do."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity import IdError, Minter, Snowflake, base62, mint, parse, unix_ms
from echomq.identity.minter import minter as default
from echomq.identity.snowflake import EPOCH_MS, MAX_UNIX_MS, unpack

NOW_MS = 1_750_000_000_000


def parts(text: str) -> Snowflake:
    return unpack(parse(text).snowflake)


def rising(ids: list[str]) -> bool:
    return all(a.encode() < b.encode() for a, b in itertools.pairwise(ids))


def test_an_id_says_when_and_where_it_was_minted() -> None:
    minter = Minter(node=77, clock_ms=lambda: NOW_MS)
    assert parts(minter.mint()) == Snowflake(NOW_MS, 77, 0)
    assert parts(minter.mint("USR")) == Snowflake(NOW_MS, 77, 1)
    assert minter.mint("USR")[:3] == "USR"


def test_the_default_minter_follows_the_wall_clock() -> None:
    before = time.time_ns() // 1_000_000
    text = mint()
    assert text.startswith("JOB")
    assert parts(text).node == default.node
    assert before <= unix_ms(text) <= time.time_ns() // 1_000_000 + 1


def test_ids_rise_over_many_milliseconds() -> None:
    assert rising([mint() for _ in range(50_000)])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("clock"), st.integers(-5_000, 5_000)),
            st.tuples(st.just("mint"), st.integers(1, 3)),
            st.tuples(st.just("many"), st.integers(0, 9_000)),
            st.tuples(st.just("node"), st.integers(0, 1023)),
        ),
        max_size=30,
    )
)
def test_ids_rise_whatever_happens_in_between(steps: list[tuple[str, int]]) -> None:
    now_ms = NOW_MS
    minter = Minter(node=512, clock_ms=lambda: now_ms)
    ids = [minter.mint()]
    for step, value in steps:
        if step == "clock":
            now_ms += value
        elif step == "node":
            minter.node = value
        elif step == "mint":
            ids += [minter.mint() for _ in range(value)]
        else:
            ids += minter.mint_many(value)
        assert parts(ids[-1]).unix_ms <= NOW_MS + 5_000 * 30 + len(ids)
    ids.append(minter.mint())
    assert rising(ids)
    assert parts(ids[-1]).node == minter.node


def test_beyond_4096_in_a_millisecond_it_borrows_from_the_next() -> None:
    minter = Minter(node=1, clock_ms=lambda: NOW_MS)
    minted = [parts(minter.mint()) for _ in range(2 * 4096 + 1)]
    assert minted == [Snowflake(NOW_MS + k // 4096, 1, k % 4096) for k in range(2 * 4096 + 1)]


def test_many_at_once_are_what_one_after_another_would_be() -> None:
    at_once = Minter(node=1000, clock_ms=lambda: NOW_MS)
    in_turn = Minter(node=1000, clock_ms=lambda: NOW_MS)
    assert at_once.mint_many(5) + at_once.mint_many(9_000) == [in_turn.mint() for _ in range(9_005)]
    assert at_once.mint_many(0) == []
    assert at_once.mint() == in_turn.mint()


def test_mixing_both_ways_does_not_run_ahead_of_the_clock() -> None:
    minter = Minter(node=3, clock_ms=lambda: NOW_MS)
    ids: list[str] = []
    for _ in range(100):
        ids += [minter.mint(), *minter.mint_many(3)]
    assert rising(ids)
    assert unix_ms(ids[-1]) == NOW_MS


def test_a_clock_that_steps_back_is_waited_for() -> None:
    now_ms = NOW_MS
    minter = Minter(node=1, clock_ms=lambda: now_ms)
    first = minter.mint()
    now_ms = NOW_MS - 3_600_000
    second = minter.mint()
    assert first < second
    assert unix_ms(second) == NOW_MS
    now_ms = NOW_MS + 1
    assert parts(minter.mint()) == Snowflake(NOW_MS + 1, 1, 0)


def test_a_clock_before_the_epoch_still_gives_rising_ids() -> None:
    minter = Minter(node=1, clock_ms=lambda: 0)
    ids = [minter.mint() for _ in range(5)]
    assert rising(ids)
    assert unix_ms(ids[0]) == EPOCH_MS


def test_the_last_millisecond_is_the_end() -> None:
    minter = Minter(node=1023, clock_ms=lambda: MAX_UNIX_MS)
    assert len(minter.mint_many(4096)) == 4096
    with pytest.raises(IdError, match="2093"):
        minter.mint()
    with pytest.raises(IdError, match="2093"):
        minter.mint_many(1)


def test_a_lower_node_injected_in_between_keeps_the_order() -> None:
    minter = Minter(node=900, clock_ms=lambda: NOW_MS)
    before = minter.mint()
    minter.node = 3
    after = minter.mint()
    assert before < after
    assert parts(after).node == minter.node == 3


def test_a_random_node_is_in_range() -> None:
    assert all(0 <= Minter().node <= 1023 for _ in range(100))


@pytest.mark.parametrize("node", [-1, 1024, True, 1.5, "1"])
def test_a_bad_node_is_refused(node: int) -> None:
    with pytest.raises(IdError, match="node"):
        Minter(node=node)
    minter = Minter(node=9)
    with pytest.raises(IdError, match="node"):
        minter.node = node
    assert minter.node == 9


@pytest.mark.parametrize("n", [-1, True, 1.5, "1"])
def test_a_bad_count_is_refused(n: int) -> None:
    with pytest.raises(IdError, match="cannot mint"):
        Minter().mint_many(n)


@pytest.mark.parametrize("namespace", ["", "job", "JOBS", "J B"])
def test_a_bad_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(IdError, match="three letters"):
        mint(namespace)
    with pytest.raises(IdError, match="three letters"):
        default.mint_many(1, namespace)


def test_threads_share_one_rising_sequence() -> None:
    minter = Minter(node=1)
    batches: list[list[str]] = []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        ids: list[str] = []
        for k in range(3_000):
            ids.append(minter.mint())
            if k % 100 == 0:
                ids += minter.mint_many(7)
        batches.append(ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(batches) == 4
    assert all(rising(ids) for ids in batches)
    everything = [i for ids in batches for i in ids]
    assert len(set(everything)) == len(everything) == 4 * (3_000 + 30 * 7)


def test_what_one_thread_minted_is_below_what_another_mints_later() -> None:
    minter = Minter(node=1)
    last = minter.mint()
    for _ in range(50):
        got: list[str] = []
        thread = threading.Thread(target=lambda out=got: out.append(minter.mint()))
        thread.start()
        thread.join()
        assert last < got[0]
        last = minter.mint()
        assert got[0] < last


def test_a_signal_handler_may_mint_in_the_middle_of_a_mint() -> None:
    minter = Minter(node=1)
    from_handler: list[str] = []

    inside: list[int] = []

    def handler(number: int, frame: object) -> None:
        if inside:
            return  # it would note its ids before the one that it interrupts has noted older ones
        inside.append(number)
        from_handler.append(minter.mint())
        from_handler.extend(minter.mint_many(3))
        inside.clear()

    stop = threading.Event()

    def pester() -> None:
        while not stop.is_set():
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=pester)
    thread.start()
    try:
        ids: list[str] = []
        while len(from_handler) < 400:
            ids += [minter.mint() for _ in range(10)]
            ids += minter.mint_many(10)
    finally:
        stop.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert rising(ids)
    assert rising(from_handler)
    assert len({*ids, *from_handler}) == len(ids) + len(from_handler)


def test_a_mint_in_the_middle_of_beginning_a_run_does_not_turn_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    minter = Minter(node=1, clock_ms=lambda: NOW_MS)
    ids: list[str] = []
    encode = base62.encode

    def interrupted(number: int) -> str:
        monkeypatch.setattr(base62, "encode", encode)
        ids.append(minter.mint())
        return encode(number)

    monkeypatch.setattr(base62, "encode", interrupted)
    outer = minter.mint()
    ids += [minter.mint() for _ in range(5_000)]
    assert rising(ids)
    assert outer not in ids
