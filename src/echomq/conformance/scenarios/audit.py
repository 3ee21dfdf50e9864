"""The audit (protocol §12.1), and the registry of keys (§2, §12.6)."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.rights import is_denied
from echomq.conformance.scenario import BreachError, LackError, scenario
from echomq.conformance.scenarios.flows import family
from echomq.conformance.scenarios.operator import bury
from echomq.protocol import admin, admission, flows, jobs, lanes, repeat, workers
from echomq.protocol.audit import audit
from echomq.protocol.errors import ServerError
from echomq.protocol.flows import Node

_JOB = "job:JOB[0-9A-Za-z]{11}"
_REGISTRY = re.compile(
    "|".join(
        (
            *(_JOB, _JOB + ":(logs|lock|dependencies|processed|failed|unsuccessful|result)"),
            "g:[A-Z]{3}[0-9A-Za-z]{11}:pending",
            "pending|active|schedule|dead|ring|paused|glimit|gactive|gweight|wake|meta|limiter|lanes|turn",
            "metrics:(completed|failed)(:data)?|de:.+|repeat(:.+)?|cron(:.+)?|flow:(outbox|rejected)|workers(:.+)?",
        )
    )
)


def _busy(desk: Desk) -> None:
    """A queue with something in every place."""
    group = desk.lane("audit")
    bury(desk)
    desk.in_hand()
    desk.in_hand(group=group)
    desk.later()
    family(desk)
    desk.jobs(2)
    desk.jobs(2, group=group)


@scenario("audit_sound", "A queue with work in every place, moved by our verbs alone, has no breach.")
def _audit_sound(desk: Desk) -> None:
    _busy(desk)
    desk.expect("the breaches", desk.run(audit(desk.queue)), ())


@scenario(
    "audit", "The audit names each breach: ghost, stray, two places, wrong state, gactive, ring; it mends the books."
)
def _audit(desk: Desk) -> None:
    _busy(desk)
    ghost, stray = desk.mint_many(2)
    desk.raw("ZADD", desk.keys.dead, 0, ghost)
    desk.raw("HSET", desk.row_key(stray), "state", "pending", "attempts", "0", "payload", "p")
    twice, wrong = desk.members(desk.keys.pending)[:2]
    desk.raw("ZADD", desk.keys.schedule, 2**52, twice)
    desk.raw("HSET", desk.row_key(wrong), "state", "active")
    group, idle = desk.lane("audit"), desk.lane("idle")
    desk.raw("HSET", desk.keys.gactive, group, "7")
    desk.raw("RPUSH", desk.keys.ring, idle)
    desk.raw("LPUSH", desk.keys.wake, *(["1"] * 65))
    before = desk.dump()
    found = desk.run(audit(desk.queue))
    desk.unwritten("an audit that was not asked to mend", before)
    desk.expect("wake is named", any("wake" in breach.what for breach in found), True)
    desk.drop_tokens()
    subjects = {breach.subject for breach in found}
    desk.expect("the jobs named", subjects - {desk.queue}, {ghost, stray, twice, wrong})
    books = [breach.what for breach in found if breach.subject == desk.queue]
    desk.expect(
        "the lanes named", {lane for lane in (group, idle) if any(lane in text for text in books)}, {group, idle}
    )
    desk.run(audit(desk.queue, mend=True))
    left = {breach.subject for breach in desk.run(audit(desk.queue))}
    desk.expect("named after mending the books", left, {ghost, stray, twice, wrong})
    desk.expect("gactive and ring", (desk.hash(desk.keys.gactive), desk.ring()), ({group: b"1"}, [group]))
    desk.raw("ZREM", desk.keys.dead, ghost)
    desk.raw("DEL", desk.row_key(stray))
    desk.raw("ZREM", desk.keys.schedule, twice)
    desk.raw("HSET", desk.row_key(wrong), "state", "pending")
    desk.expect("named in the end", desk.run(audit(desk.queue)), ())


@scenario("audit_held", "The audit names a held parent that waits for more children than there are, in any queue.")
def _audit_held(desk: Desk) -> None:
    other = desk.neighbour()
    (near, far), parent = (desk.mint(), other.mint()), desk.mint()
    children = (Node(desk.queue, near, b"c"), Node(other.queue, far, b"c"))
    desk.run(flows.add(Node(desk.queue, parent, b"p", children)))
    desk.expect("the breaches of a sound flow", desk.run(audit(desk.queue)), ())
    other.claim()
    other.run(jobs.complete(other.queue, far, 1))
    desk.expect("the breaches while a signal is on its way", desk.run(audit(desk.queue)), ())
    other.raw("DEL", other.keys.outbox)
    desk.expect("who waits for a lost one", [breach.subject for breach in desk.run(audit(desk.queue))], [parent])
    desk.run(admin.remove_job(desk.queue, parent))
    desk.expect("the breaches without it", desk.run(audit(desk.queue)), ())


@scenario("registry", "No verb writes a key that the registry does not name, nor any without the queue's hash tag.")
def _registry(desk: Desk) -> None:
    held = desk.in_hand()
    _busy(desk)
    desk.run(workers.keep(desk.queue, [(held.id, held.token)]))
    desk.run(workers.beat(desk.queue, "w", b"{}"))
    desk.run(admin.add_log(desk.queue, held.id, "line"))
    desk.run(admin.update_progress(desk.queue, held.id, "1"))
    desk.run(admin.set_rate(desk.queue, 100, period_ms=FAR_MS))
    desk.run(admin.set_retention(desk.queue, dead_max=100, dead_age_ms=FAR_MS))
    for name in ("de:k", "repeat:tick"):
        desk.key(name)
    desk.run(repeat.register(desk.queue, "tick", every_ms=5, template=b"t", first_run_ms=1_000))
    desk.run(repeat.fire(desk.queue, "tick", score="1000", job_id=desk.mint()))
    text, group = "named", desk.lane("named")
    named = admission.admit(desk.queue, desk.mint(), b"p", group=group, lane_text=text, dedup=admission.Dedup("k"))
    desk.run(named)
    desk.run(lanes.weight(desk.queue, group, 2))
    desk.run(lanes.pause(desk.queue, group))
    desk.run(lanes.limit(desk.queue, group, 2))
    claims = desk.run(jobs.claim_many(desk.queue, 9)).jobs
    desk.run(jobs.complete_many(desk.queue, [(job.id, job.token) for job in claims]))
    desk.run(audit(desk.queue))
    names = [key.removeprefix(desk.keys.base) for key in desk.bench.scan(desk.keys.base)]
    desk.expect("keys beside the registry", [name for name in names if not _REGISTRY.fullmatch(name)], [])
    desk.expect("keys that the desk does not know", set(names) - set(desk.present()), set[str]())


@scenario("own_keys", "A script's first key pins its queue: one that no queue can have is refused, nothing written.")
def _own_keys(desk: Desk) -> None:
    job_id = desk.mint()
    call = jobs.enqueue(desk.queue, job_id, b"p")
    for base in ("emq:", "emq:{}:", f"other:{{{desk.queue}}}:"):
        names = tuple(key.replace(desk.keys.base, base) for key in call.keys)
        before = desk.dump()
        try:
            answer = desk.bench.conn.run(replace(call, keys=names))
        except ServerError as error:
            # A server that refuses such keys to everybody, or to this user, keeps it by itself.
            if not (is_denied(error) or error.reply.startswith("CROSSSLOT")):
                wanted = "ERR EMQ.ENQUEUE first key must begin with emq:{queue}:"
                desk.expect(f"the refusal under {base}", error.reply, wanted)
        else:
            raise BreachError(f"keys under {base}: it answered {answer!r} instead of a refusal")
        desk.unwritten(f"keys under {base}, refused", before)
        with suppress(LackError):  # what this user may not read, it has not written
            desk.expect(f"keys under {base}", [name for name in names if desk.raw("EXISTS", name)], [])
