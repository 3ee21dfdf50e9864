"""Each refusal of a server says what to do about it (protocol §11)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin, jobs, workers
from echomq.protocol.errors import LockedError, RateError, StateError, from_reply
from echomq.wire import connect

LUA = Path(jobs.__file__).parent / "lua"
REFUSALS = {
    text
    for file in LUA.rglob("*.lua")
    for text in re.findall(r"'(EMQ[A-Z]+ [^'\n]+?)'", file.read_text())
    if not text.endswith(" ")
}


@pytest.mark.parametrize("text", sorted(REFUSALS))
def test_no_refusal_is_without_advice(text: str) -> None:
    said = str(from_reply(text, verb="verb", subject="mail"))
    assert said.startswith(f"verb mail: {text}; ")


def test_the_refusals_are_found() -> None:
    assert {"EMQSTATE not paused", "EMQLOCK job is locked", "EMQSTALE job gone"} <= REFUSALS


def test_a_queue_that_lives_is_named_with_what_to_do(server: Any, queue: str) -> None:
    with connect(server.url) as conn:
        job_id = mint()
        conn.run(jobs.enqueue(queue, job_id, b"{}"))
        with pytest.raises(StateError, match=f"; queue '{queue}' is not paused: pause it, then try again$"):
            conn.run(admin.obliterate(queue))
        with pytest.raises(StateError, match="; it is not in the morgue: only a dead job can be given another life"):
            conn.run(admin.reprocess_job(queue, job_id))
        conn.run(admin.set_ceiling(queue, 1))
        assert conn.run(jobs.claim(queue)) is not None
        with pytest.raises(RateError, match=f"; queue '{queue}' has as many jobs in hand as its ceiling allows: "):
            conn.run(admin.gate(queue))
        conn.run(admin.pause_queue(queue))
        with pytest.raises(
            StateError, match=f"; queue '{queue}' has jobs in hand: wait until they have ended, or force"
        ):
            conn.run(admin.obliterate(queue))


def test_a_job_in_hand_is_told_with_what_to_do(server: Any, queue: str) -> None:
    with connect(server.url) as conn:
        conn.run(jobs.enqueue(queue, mint(), b"{}"))
        job = conn.run(jobs.claim(queue))
        assert job is not None
        conn.run(workers.keep(queue, [(job.id, job.token)]))
        with pytest.raises(LockedError, match="; a worker has it in hand: cancel it, or wait until it has ended"):
            conn.run(admin.remove_job(queue, job.id))


@pytest.mark.parametrize("text", ["LOADING x", "BUSY x", "MASTERDOWN x", "CLUSTERDOWN x", "TRYAGAIN x"])
def test_what_a_server_refuses_for_now_passes(text: str) -> None:
    assert from_reply(text, verb="verb").passes


@pytest.mark.parametrize(
    "text", ["MOVED 1 a:2", "ASK 1 a:2", "BUSYGROUP x", "NOPERM x", "WRONGTYPE x", *sorted(REFUSALS)]
)
def test_what_the_same_server_would_refuse_again_does_not_pass(text: str) -> None:
    assert not from_reply(text, verb="verb").passes
