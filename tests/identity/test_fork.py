"""A fork never repeats its parent's ids and never waits for a lock that died with a thread.

Each case runs in a fresh interpreter, so that pytest's own process is not forked.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")

PRELUDE = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tried here
from echomq.identity.minter import Minter, minter, mint

def in_child(work):
    # The texts that `work` gives in a forked child, or the end of this program when it hangs.
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as out:
            out.write("\\n".join(work()))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as source:
        texts = source.read().split()
    assert os.waitpid(pid, 0)[1] == 0
    return texts

def rising(ids):
    return all(a < b for a, b in zip(ids, ids[1:]))
"""


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ok\n"


def test_child_and_parent_mint_disjoint_rising_ids() -> None:
    run("""
frozen = Minter(node=5, clock_ms=lambda: 1_750_000_000_000)
before = frozen.mint_many(10)
children = [in_child(lambda: [frozen.mint() for _ in range(5_000)]) for _ in range(3)]
after = [frozen.mint() for _ in range(5_000)]
assert frozen.node == 5
for ids in children:
    assert len(ids) == 5_000 and rising(before + ids)
    assert not set(ids) & set(before + after)
assert rising(before + after)
print("ok")
""")


def test_a_child_takes_another_node_also_when_the_node_was_injected() -> None:
    run("""
minter.node = 700
(node,) = in_child(lambda: [str(minter.node)])
assert node != "700", node
assert minter.node == 700
print("ok")
""")


def test_a_grandchild_takes_another_node_still() -> None:
    run("""
def child():
    mine = minter.mint_many(2_000)
    return mine + in_child(lambda: minter.mint_many(2_000))
both = in_child(child)
assert len(set(both)) == 4_000
assert not set(both) & set(minter.mint_many(10_000))
print("ok")
""")


def test_forking_while_another_thread_mints_neither_hangs_nor_repeats() -> None:
    run("""
stop = threading.Event()
minted = []
def work():
    while not stop.is_set():
        minted.append(mint())
        minted.extend(minter.mint_many(50))
thread = threading.Thread(target=work)
thread.start()
from_children = []
for _ in range(40):
    ids = in_child(lambda: [mint() for _ in range(20)] + minter.mint_many(20))
    assert len(ids) == 40 and rising(ids)
    from_children += ids
stop.set()
thread.join()
assert not set(from_children) & set(minted)
print("ok")
""")


def test_forking_while_a_thread_holds_the_lock_does_not_hang() -> None:
    run("""
held, release = threading.Event(), threading.Event()
def slow_clock():
    if threading.current_thread() is not threading.main_thread():
        held.set()
        release.wait()
    return 1_750_000_000_000
slow = Minter(node=1, clock_ms=slow_clock)
thread = threading.Thread(target=slow.mint)
thread.start()
held.wait()
assert len(in_child(lambda: [slow.mint() for _ in range(3)])) == 3
release.set()
thread.join()
print("ok")
""")
