"""Keys and slots (protocol §2): every name spelt as other clients spell it, all of a queue's keys on one slot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol.errors import QueueNameError
from echomq.protocol.keys import keys
from echomq.protocol.slots import slot_of

QUEUES = st.text(min_size=1, max_size=20).filter(
    lambda q: q.isprintable() and not any(c in "{}" or c.isspace() for c in q)
)


def test_every_key_is_spelt_as_the_protocol_spells_it() -> None:
    k = keys("mail")
    assert k.base == "emq:{mail}:"
    spelt = {
        k.job("JOB0NgWEfAEJfs"): "job:JOB0NgWEfAEJfs",
        k.pending: "pending",
        k.active: "active",
        k.schedule: "schedule",
        k.dead: "dead",
        k.lane("LAN00000000001"): "g:LAN00000000001:pending",
        k.ring: "ring",
        k.paused: "paused",
        k.glimit: "glimit",
        k.gactive: "gactive",
        k.gweight: "gweight",
        k.wake: "wake",
        k.meta: "meta",
        k.limiter: "limiter",
        k.metrics_completed: "metrics:completed",
        k.metrics_failed: "metrics:failed",
        k.repeat: "repeat",
        k.repeat_record("a b"): "repeat:a b",
        k.cron: "cron",
        k.outbox: "flow:outbox",
        k.rejected: "flow:rejected",
        k.events: "events",
        k.lanes: "lanes",
        k.workers: "workers",
    }
    assert all(key == "emq:{mail}:" + name for key, name in spelt.items())


def test_the_keys_of_a_name_are_made_once() -> None:
    assert keys("mail") is keys("mail")


@given(QUEUES)
def test_all_keys_of_a_queue_share_the_slot_of_its_name(queue: str) -> None:
    k = keys(queue)
    slots = {
        slot_of(key) for key in (k.job("JOB0NgWEfAEJfs"), k.pending, k.lane("LAN00000000001"), k.repeat_record("}"))
    }
    assert slots == {slot_of(queue)}


# From the cluster specification and its reference implementation.
@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 12739),
        ("foo", 12182),
        ("{user1000}.following", 3443),
        ("{user1000}.followers", 3443),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
        ("", 0),
    ],
)
def test_slots_are_the_servers(key: str, slot: int) -> None:
    assert slot_of(key) == slot


@given(st.sampled_from(" \t\n\r\0{}\x0b\x0c\x1f\x7f\u00a0\u2028\u3000"), st.text(max_size=3), st.text(max_size=3))
def test_a_name_with_a_character_that_is_not_allowed_is_refused(char: str, before: str, after: str) -> None:
    with pytest.raises(QueueNameError):
        keys(before + char + after)
