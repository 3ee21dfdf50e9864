"""Ids, nodes and the fence (protocol §1, §11)."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.identity import base62, branded
from echomq.identity.minter import Minter, minter
from echomq.identity.snowflake import EPOCH_MS, unpack
from echomq.protocol import admission, flows, jobs, lanes
from echomq.protocol.errors import FenceError, IdError
from echomq.protocol.keys import NODE_PREFIX, VERSION

_FOREIGN = "echomq:999.0.0"
_REFUSED_IDS = ("JOBzzzzzzzzzzz", "JOB", "job00000000000", "JOB0000000000!", "ORD00000000000", "JOB000000000000", "")


@scenario("fence", "The version is claimed before any work, and a foreign major is refused with both strings.")
def _fence(desk: Desk) -> None:
    ours = desk.bench.fence
    desk.expect(VERSION, desk.raw("GET", VERSION), ours.encode())
    try:
        desk.connector(fence=_FOREIGN)
    except FenceError as error:
        desk.expect("the two versions", (error.ours, error.theirs), (_FOREIGN, ours))
    else:
        raise BreachError(f"a client of {_FOREIGN} was let in beside {ours}")
    desk.expect(f"{VERSION} afterwards", desk.raw("GET", VERSION), ours.encode())


@scenario("identity_vectors", "Base62 and branded ids are those of the contract, and 2^63 or more is refused.")
def _vectors(desk: Desk) -> None:
    texts = {n: base62.encode(n) for n in (0, 61, 62, 2**63 - 1)}
    wanted = {0: "00000000000", 61: "0000000000z", 62: "00000000010", 2**63 - 1: "AzL8n0Y58m7"}
    desk.expect("base62", texts, wanted)
    desk.expect("the USR id", branded.encode("USR", 274557032793636864), "USR0KHTOWnGLuC")
    parsed = branded.parse("USR0NgWEfAEJfs")
    desk.expect("the parsed id", (parsed.namespace, parsed.snowflake), ("USR", 320636799581945856))
    for text in ("USRzzzzzzzzzzz", "USRAzL8n0Y58m8", "US00000000000", "usr00000000000"):
        try:
            branded.parse(text)
        except IdError:
            continue
        raise BreachError(f"{text} was taken for an id")


@scenario("mint_order", "Ids rise strictly: over threads, beyond 4,096 a millisecond, and when the clock steps back.")
def _mint_order(desk: Desk) -> None:
    clock = [EPOCH_MS + 10]
    still = Minter(node=3, clock_ms=lambda: clock[0])
    ids = still.mint_many(5_000)
    clock[0] -= 5
    ids += [still.mint() for _ in range(10)]
    desk.expect("the ids in byte order", sorted(set(ids)) == ids, True)
    shared = Minter()
    made: list[list[str]] = []
    threads = [Thread(target=lambda: made.append([shared.mint() for _ in range(500)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.expect("each thread's ids rise", all(part == sorted(part) for part in made), True)
    desk.expect("distinct ids", len({each for part in made for each in part}), 2_000)


@scenario("node_random", "Without a server a minter's node is random, and its ids carry it.")
def _node_random(desk: Desk) -> None:
    minters = [Minter() for _ in range(100)]
    nodes = [unpack(branded.parse(each.mint()).snowflake).node for each in minters]
    desk.expect("the nodes in minted ids", nodes, [each.node for each in minters])
    desk.between("different nodes of 100 minters", len(set(nodes)), 50, 100)


@scenario("node_lease", "A connector leases a node from the server and injects it into the minter.")
def _node_lease(desk: Desk) -> None:
    connector = desk.connector(lease_node=True)
    key = f"{NODE_PREFIX}{minter.node}"
    desk.between("the lease's PTTL", desk.raw("PTTL", key), 1, 600_000)
    minted = unpack(branded.parse(connector.mint()).snowflake)
    desk.expect("the node in a minted id", minted.node, minter.node)


@scenario("kind", "An id outside the JOB namespace is refused on the host, and by the server before any write.")
def _kind(desk: Desk) -> None:
    for wrong in _REFUSED_IDS:
        try:
            jobs.enqueue(desk.queue, wrong, b"p")
        except IdError:
            continue
        raise BreachError(f"{wrong!r} was taken for a job id")
    job_id, order = desk.mint(), "ORD0KHTOWnGLuC"
    group = desk.lane("kind")
    calls = [
        jobs.enqueue(desk.queue, job_id, b"p"),
        jobs.enqueue_many(desk.queue, [(job_id, b"p")]),
        jobs.enqueue_in(desk.queue, job_id, b"p", delay_ms=5),
        lanes.enqueue(desk.queue, job_id, b"p", group),
        admission.admit(desk.queue, job_id, b"p", dedup=admission.Dedup("kind")),
        next(flows.add(flows.Node(desk.queue, job_id, b"p", (flows.Node(desk.queue, desk.mint(), b"c"),)))),
    ]
    desk.key("de:kind")
    desk.row_key(order)
    for call in calls:
        args = tuple(order if arg == job_id else arg for arg in call.args)
        names = tuple(key.replace(job_id, order) for key in call.keys)
        desk.refused(replace(call, keys=names, args=args), "EMQKIND job id must be JOB-namespaced")
