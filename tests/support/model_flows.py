"""The model's flows (protocol §8): completion and death told to parents, here at once, elsewhere by the outbox."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from echomq.protocol.jobs import Finished
from echomq.protocol.replies import Completion
from support.model import Model, Row
from support.model_lanes import LaneModel


@dataclass
class Books:
    """What a parent knows of its children; they outlive its row when it is finished."""

    left: int
    processed: dict[str, bytes] = field(default_factory=dict)
    failed: dict[str, bytes] = field(default_factory=dict)
    unsuccessful: dict[str, bytes] = field(default_factory=dict)

    def counted(self, child: str) -> bool:
        """Whether the count was lowered for this child."""
        return child in self.processed or child in self.unsuccessful


@dataclass(frozen=True)
class Placed:
    """A node of a flow as one queue is told of it."""

    id: str
    payload: bytes
    parent: str
    policy: str
    parent_queue: str
    children: int


@dataclass
class FlowModel(LaneModel):
    """A queue with flows, kept results and deduplication keys."""

    books: dict[str, Books] = field(default_factory=dict)
    outbox: list[bytes] = field(default_factory=list)
    results: dict[str, bytes] = field(default_factory=dict)
    claims: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Deduplication key to the job behind it, and whether a window ends it."""

    def known(self, job_id: str) -> bool:
        """Whether an admission of this id is a duplicate."""
        return job_id in self.rows or job_id in self.results

    # -- the end of a job ---------------------------------------------------------------------------------------

    def free_key(self, job_id: str) -> None:
        """The deduplication key of a job is free, when it still names it."""
        key = self.rows[job_id].dedup
        if key is not None and self.claims.get(key, ("", False))[0] == job_id:
            del self.claims[key]

    def bury_row(self, job_id: str, reason: bytes) -> None:
        """Into the morgue, without a word to the parent."""
        Model.bury(self, job_id, reason)
        self.free_key(job_id)

    def bury(self, job_id: str, reason: bytes) -> None:
        """Into the morgue; its parent is told."""
        self.bury_row(job_id, reason)
        self.signal_death(job_id, reason)

    def forget(self, job_id: str, reason: bytes) -> None:
        """Deleted, which is a death to its parent; it is out of its place."""
        self.signal_death(job_id, reason)
        self.free_key(job_id)
        del self.rows[job_id]
        self.books.pop(job_id, None)

    def retire(self, jobs: Sequence[Finished]) -> list[Completion | str]:
        """Completes jobs in one step; the parents are told when all are gone."""
        answers: list[Completion | str] = []
        signals: list[tuple[str, str, str | None, bytes]] = []
        for job in jobs:
            row = self.rows.get(job.id)
            if row is None:
                answers.append(Completion.GONE)
                continue
            if refused := self.refusal("complete", job.id, int(job.token), ("active", "pending")):
                answers.append(refused)
                continue
            answers.append(Completion.SIGNALLED if row.parent_queue else Completion.RETIRED)
            result = job.result if isinstance(job.result, bytes) else job.result.encode()
            if row.parent:
                signals.append((job.id, row.parent, row.parent_queue, result))
            self.leave(job.id)
            self.free_key(job.id)
            del self.rows[job.id]
            self.completed += 1
            if job.result_ttl_ms:
                self.results[job.id] = result
        for signal in signals:
            self.signal_done(*signal)
        return answers

    def complete(self, job: Finished) -> Completion | str:
        answer = self.retire([job])[0]
        return Completion.RETIRED if answer is Completion.SIGNALLED else answer

    def complete_many(self, jobs: Sequence[Finished]) -> tuple[Completion | str, ...]:
        return tuple(self.retire(jobs))

    # -- signals ------------------------------------------------------------------------------------------------

    def parent_of(self, job_id: str) -> Books | None:
        """The books of a parent that is there."""
        return self.books.get(job_id) if job_id in self.rows else None

    def count_down(self, parent: str) -> None:
        books = self.books[parent]
        if books.left == 0:
            return
        books.left -= 1
        if books.left == 0 and self.rows[parent].state == "awaiting_children":
            self.rows[parent].state = "pending"
            with self.moving():
                self.pending.add(parent)

    def child_done(self, parent: str, child: str, result: bytes) -> None:
        """A child counts once; one that had failed its parent and now succeeds counts now."""
        books = self.parent_of(parent)
        if books is None or books.counted(child):
            return
        books.failed.pop(child, None)
        books.processed[child] = result
        self.count_down(parent)

    def child_dead(self, parent: str, child: str, policy: str, reason: bytes) -> bool:
        """Whether the parent died of it."""
        books = self.parent_of(parent)
        if books is None or books.counted(child):
            return False
        if policy == "id":
            if child not in books.failed:
                books.unsuccessful[child] = reason
                self.count_down(parent)
            return False
        if self.rows[parent].state != "awaiting_children":
            books.failed.setdefault(child, reason)
            return False
        books.failed[child] = reason
        self.bury_row(parent, b"child %b failed: %b" % (child.encode(), reason))
        return True

    def signal_done(self, child: str, parent: str, queue: str | None, result: bytes) -> None:
        if queue:
            self.outbox.append(b"\0".join((queue.encode(), parent.encode(), child.encode(), result)))
        else:
            self.child_done(parent, child, result)

    def signal_death(self, job_id: str, reason: bytes) -> bytes | None:
        """Up through every level that dies of it; gives what it has put into the outbox."""
        row = self.rows[job_id]
        if row.parent is None:
            return None
        policy = row.parent_policy or "fp"
        if row.parent_queue:
            self.outbox.append(self.death_entry(job_id, reason))
            return self.outbox[-1]
        if self.child_dead(row.parent, job_id, policy, reason):
            return self.signal_death(row.parent, self.rows[row.parent].last_error or b"")
        return None

    def death_entry(self, job_id: str, reason: bytes) -> bytes:
        """What the death of a child of a parent in another queue leaves in the outbox."""
        row = self.rows[job_id]
        words = ("", "fail", row.parent_queue or "", row.parent or "", job_id, row.parent_policy or "fp")
        return b"\0".join((*(word.encode() for word in words), reason))

    def doubts(self, entry: bytes) -> str | None:
        """The child whose death the entry says, when its parent is held and has one on record."""
        if not entry.startswith(b"\0fail\0"):
            return None
        parent, child, policy = (word.decode() for word in entry.split(b"\0", 6)[3:6])
        row, books = self.rows.get(parent), self.books.get(parent)
        if policy == "id" or row is None or books is None or row.state != "awaiting_children":
            return None
        return child if child in books.failed and not books.counted(child) else None

    def withdraw(self, entry: bytes, child: str) -> bool:
        """Whether a doubted death is of an earlier life."""
        row = self.rows.get(child)
        if row is not None and row.state != "dead":
            self.settle_entry(entry)
            return True
        return entry not in self.outbox

    def deliver(self, entry: bytes) -> bytes | None:
        """A signal from elsewhere; gives the one that it has brought about for the next queue."""
        if entry.startswith(b"\0fail\0"):
            _, _, _, parent, child, policy, text = entry.split(b"\0", 6)
            if self.child_dead(parent.decode(), child.decode(), policy.decode(), text):
                return self.signal_death(parent.decode(), self.rows[parent.decode()].last_error or b"")
        else:
            _, parent, child, text = entry.split(b"\0", 3)
            self.child_done(parent.decode(), child.decode(), text)
        return None

    def settle_entry(self, entry: bytes) -> int:
        if entry not in self.outbox:
            return 0
        self.outbox.remove(entry)
        return 1

    # -- adding -------------------------------------------------------------------------------------------------

    def there(self, job_id: str) -> bool:
        """Whether a node is left alone: it lives, has a kept result, or was a parent that is finished."""
        return self.known(job_id) or job_id in self.books

    def stranger(self, job_id: str, parent: str, parent_queue: str, children: int) -> str:
        """Why the row under a node's id is not that node's, or nothing."""
        row = self.rows.get(job_id)
        if row is None:
            return ""
        if parent and not self.child_of(job_id, parent, parent_queue):
            return "not of this flow"
        if not children:
            return ""
        books = self.books.get(job_id)
        if books is None:
            return "not a parent"
        total = books.left + len(books.processed) + len(books.unsuccessful)
        return "" if total == children else "has other children"

    def child_of(self, job_id: str, parent: str, parent_queue: str) -> bool:
        """Whether a job's row names this parent."""
        row = self.rows[job_id]
        return (row.parent, row.parent_queue or "") == (parent, parent_queue)

    def flow_add(self, nodes: Sequence[Placed]) -> list[int] | str:
        """The answers, or the refusal, which comes before the first change."""
        held: set[str] = set()
        plan: list[str] = []
        for node in nodes:
            here = bool(node.parent) and not node.parent_queue
            if here and node.parent not in held and self.needless(node.parent, node.id):
                plan.append("left")
            elif self.there(node.id):
                if why := self.stranger(node.id, node.parent, node.parent_queue, node.children):
                    return f"EMQSTATE flow add {node.id} {why}"
                plan.append("there")
            else:
                plan.append("new")
                if node.children:
                    held.add(node.id)
        fresh = Counter(node.parent for node, what in zip(nodes, plan, strict=True) if what == "new")
        for node, what in zip(nodes, plan, strict=True):
            if what == "there" and node.children and fresh[node.id] == node.children:
                return f"EMQSTATE flow add {node.id} has other children"
        for node, what in zip(nodes, plan, strict=True):
            if what == "new":
                self.plant(node)
            elif what == "there" and node.parent:
                self.count_at_once(node)
        return [int(what == "new") for what in plan]

    def plant(self, node: Placed) -> None:
        """A node that is new: held, or claimable."""
        row = self.rows[node.id] = Row(node.payload, parent=node.parent or None)
        row.parent_policy = node.policy or None
        row.parent_queue = node.parent_queue or None
        if node.children:
            row.state = "awaiting_children"
            self.books[node.id] = Books(node.children)
        else:
            self.to_place(node.id)

    def count_at_once(self, node: Placed) -> None:
        """The end that a child had before its parent was held."""
        row = self.rows.get(node.id)
        if row is None:
            self.signal_done(node.id, node.parent, node.parent_queue or None, self.results.get(node.id, b""))
        elif row.state == "dead":
            self.signal_death(node.id, row.last_error or b"")

    def needless(self, parent: str, child: str) -> bool:
        """Whether a parent in this queue needs the child no more."""
        return parent not in self.rows or self.recorded(parent, [child])[0] == 1

    def recorded(self, parent: str, children: Sequence[str]) -> tuple[int, ...]:
        """Of each child: 1 it needs no adding, 0 its parent waits for it, 2 there is and was no such parent."""
        books = self.books.get(parent, Books(0))
        gone = None if parent in self.rows else 1 if self.there(parent) else 2
        return tuple(
            1 if books.counted(child) or child in books.failed else 0 if gone is None else gone for child in children
        )

    def strangers(self, nodes: Sequence[tuple[str, str, str, int]]) -> tuple[str, ...]:
        """Of each node: why its row is not its own, or nothing."""
        return tuple(self.stranger(*node) for node in nodes)

    def flow_there(self, children: Sequence[tuple[str, str, str]]) -> tuple[bool, ...]:
        """Of children of parents elsewhere: which live as theirs, or have a signal on its way."""
        out: list[bool] = []
        for child, parent, queue in children:
            head = b"\0".join((queue.encode(), parent.encode(), child.encode(), b""))
            signals = any(entry.removeprefix(b"\0fail\0").startswith(head) for entry in self.outbox)
            lives = child in self.rows and self.rows[child].state != "dead" and self.child_of(child, parent, queue)
            out.append(lives or signals)
        return tuple(out)
