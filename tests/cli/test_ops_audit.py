"""`echomq audit`: a sound queue, a breach of it, and the books of the lanes set right."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import lanes

ACME = lanes.lane_id("acme")


def test_a_sound_queue_has_no_breach(ops: Any, shop: Any) -> None:
    shop.dead()
    shop.hold()
    shop.put()
    shop.lane("acme")
    shop.later()
    said = ops("audit", shop.queue)
    assert (said.code, said.out) == (0, f"queue {shop.queue}: no breach\n")
    assert ops("audit", shop.queue, "--json").json == {"queue": shop.queue, "breaches": []}


def test_books_that_do_not_add_up_are_told_and_mended(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    shop.raw.execute("HSET", shop.keys.gactive, ACME, 5)
    shop.raw.execute("DEL", shop.keys.ring)
    said = ops("audit", shop.queue)
    assert said.code == 1
    assert f"{shop.queue}: gactive of {ACME}" in said.out
    assert said.lines[-1].startswith(f"queue {shop.queue}: 2 breaches")
    said = ops("audit", shop.queue, "--mend")
    assert said.code == 0
    assert said.lines[-1] == f"queue {shop.queue}: 2 breaches, 0 left after mending"
    assert shop.raw.execute("LRANGE", shop.keys.ring, 0, -1) == [ACME.encode()]
    assert shop.raw.execute("EXISTS", shop.keys.gactive) == 0
    assert ops("audit", shop.queue).code == 0


@pytest.mark.strays("a job in two places")
def test_what_cannot_be_mended_is_left_and_told(ops: Any, shop: Any) -> None:
    job_id = shop.put()
    shop.raw.execute("ZADD", shop.keys.dead, 0, job_id)
    said = ops("audit", shop.queue, "--mend", "--json")
    assert said.code == 1
    assert job_id in {breach["subject"] for breach in said.json["breaches"]}
    assert said.json["left"] == said.json["breaches"]
