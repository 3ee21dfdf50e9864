"""What the proofs of the native module say to a server: random calls of every verb, sound ones and hostile ones.

A `Speaker` makes one call after another out of choices that somebody else makes: Hypothesis, which shrinks them, or a
seeded generator, which is fast. Its calls are values and know nothing of a server's state; the ids, tokens and times
are few, so that they meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from echomq.protocol import admin, jobs, lanes, metrics, repeat
from echomq.protocol.admission import Dedup, admit
from echomq.protocol.call import Arg, Call
from echomq.protocol.flows import Node, OnDeath, add
from echomq.protocol.jobs import Finished
from echomq.protocol.keys import Keys, keys
from echomq.protocol.replies import as_int, as_list
from echomq.protocol.scripts import script
from support.lies import BAD_IDS, BAD_NUMBERS, BAD_TEXTS, bad_keys, bad_state

T = TypeVar("T")

NOW = 1_800_000_000_000
"""Where a clock that is set for a proof begins, in Unix ms."""
HOUR = 3_600_000
LAST = 2**53 - 1
GROUPS = ("LAN00000000001", "USR0KHTOWnGLuC")
THEMES = ("hands", "time", "ceilings", "lanes", "flows", "everything")
"""What a speaker may mostly speak of."""
IDS = tuple(f"JOB0NgWEfAEJf{i}" for i in "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
SPANS = (0, 0, 1, 5, HOUR, HOUR, 2 * HOUR)
PAYLOADS = (b"p", b"p", b"", b"\0\xff\r\n", b"7", b"x" * 200)
TOKENS = ("1", "1", "1", "1", "1", "1", "2", "2", "3")
COUNTS = (1, 1, 2, 3, 5, 100, 1000)
DEDUPS = (None, Dedup("k"), Dedup("k", window_ms=HOUR), Dedup("l", replace=True))


class Chooses(Protocol):
    """One of several, by chance or by design."""

    def __call__(self, options: Sequence[T], /) -> T: ...


class Speaker:
    """Makes calls. `hostile` lets it lie: about arguments, about keys, and by writing into the queue what no verb would
    leave there. `ids` are the jobs it speaks of."""

    def __init__(
        self,
        choose: Chooses,
        *,
        hostile: bool,
        ids: Sequence[str] = IDS[:8],
        queue: str = "q",
        theme: str = "everything",
        now_ms: int = NOW,
    ) -> None:
        self._choose = choose
        self._hostile = hostile
        self._ids = ids
        self.queue = queue
        self.keys: Keys = keys(queue)
        self._times = (0, 1, 5, 5, now_ms - 1, now_ms, now_ms + 1, now_ms + HOUR, now_ms + HOUR, LAST)
        twins = [self._schedule, self._reschedule, self._promote, self._delay, self._enqueue, self._claim]
        twins += [self._enqueue_many, self._complete_many]
        hands = [*twins, *(3 * [self._enqueue_many, self._claim, self._claim, self._complete_many]), self._delay]
        served = [self._admit, self._lane, self._lane, self._lane_claim, self._weighted, self._pause, self._limit]
        ended = [self._retry, self._release, self._extend, self._sweep, self._reap, self._complete, self._reprocess]
        ended += [self._remove, self._cancel, self._data, self._progress, self._log]
        gates = [self._ceiling, self._rate, self._hold, self._resume]
        others = [self._repeat, self._fire, self._drain, self._look]
        themes: dict[str, list[Callable[[], Call[Any]]]] = {
            "hands": hands,
            "time": [*twins, *(3 * [self._schedule, self._promote, self._reschedule]), self._delay, self._repeat],
            "ceilings": [
                *hands,
                *hands,
                self._ceiling,
                self._ceiling,
                self._ceiling,
                *served,
                self._resume,
                self._rate,
            ],
            "lanes": [*hands, *hands, *served],
            "flows": [*hands, *hands, *(6 * [self._flow]), *(4 * [self._admit]), *ended],
            "everything": [*(3 * hands), *served, *served, *ended, *gates, *others, self._flow, self._admit],
        }
        self._verbs = themes[theme]
        if hostile:
            self._verbs += (len(self._verbs) // 7 + 1) * [self._state]

    def say(self) -> Call[Any]:
        """One call."""
        call = self._choose(self._verbs)()
        if self._hostile and call.script and call.script.native and self._choose(_MISSHAPES) == "bent":
            return self._bent(call)
        return call

    # -- words ---------------------------------------------------------------------------------------------------------

    def _lies(self) -> bool:
        return self._hostile and self._choose(_LIES)

    def _id(self) -> str:
        return self._choose(BAD_IDS) if self._lies() else self._choose(self._ids)

    def _job(self) -> str:
        """An id that a verb without a twin is called with: the host checks it."""
        return self._choose(self._ids)

    def _payload(self) -> Arg:
        return self._choose(BAD_TEXTS) if self._lies() else self._choose(PAYLOADS)

    def _bytes(self) -> bytes:
        return self._choose(PAYLOADS)

    def _token(self) -> Arg:
        return self._choose(BAD_NUMBERS) if self._lies() else self._choose(TOKENS)

    def _number(self, sound: Sequence[int]) -> Arg:
        return self._choose(BAD_NUMBERS) if self._lies() else self._choose(sound)

    def _due(self) -> tuple[Arg, Arg]:
        mode: Arg = self._choose(("in", "at", "at"))
        value = self._number(SPANS if mode == "in" else self._times)
        if self._lies():
            mode = self._choose(BAD_TEXTS)
        return mode, value

    def _given(self, *sound: str) -> tuple[str, ...]:
        """Keys; a twin goes by its first one's queue and its id, whatever the others are."""
        if not self._lies():
            return sound
        given = list(sound)
        given[self._choose(range(len(given)))] = self._choose(bad_keys(self.keys))
        return tuple(given)

    def _twin(self, name: str, given: tuple[str, ...], *args: Arg) -> Call[Any]:
        return Call(name, given, args, lambda reply: reply, script(name))

    def _bent(self, call: Call[Any]) -> Call[Any]:
        """The call with a word too few or too many, or with its keys counted otherwise."""
        words: list[Arg] = [*call.keys, *call.args]
        count = len(call.keys)
        how = self._choose(("less", "more", "none", "count", "count"))
        if how == "less":
            del words[self._choose(range(len(words)))]
        elif how == "more":
            words.insert(self._choose(range(len(words) + 1)), self._choose(BAD_TEXTS))
        elif how == "none":
            words = words[: self._choose(range(3))]
        else:
            count = self._choose(range(len(words) + 1))
        split = min(count, len(words))
        # A key that is no text comes only of a wrong count, and counts for nothing.
        names = tuple(word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in words[:split])
        return replace(call, keys=names, args=tuple(words[split:]))

    # -- the twins -----------------------------------------------------------------------------------------------------

    def _schedule(self) -> Call[Any]:
        job_id = self._id()
        given = self._given(self.keys.job_prefix + job_id, self.keys.schedule)
        return self._twin("schedule", given, job_id, self._payload(), *self._due())

    def _reschedule(self) -> Call[Any]:
        job_id = self._id()
        given = self._given(self.keys.job_prefix + job_id, self.keys.schedule)
        return self._twin("reschedule", given, job_id, *self._due())

    def _promote(self) -> Call[Any]:
        given = self._given(self.keys.schedule, self.keys.pending)
        return self._twin("promote", given, self.keys.base, self._number(COUNTS))

    def _delay(self) -> Call[Any]:
        job_id = self._id()
        given = self._given(self.keys.job_prefix + job_id, self.keys.active, self.keys.schedule)
        return self._twin("delay", given, job_id, self._token(), *self._due())

    def _enqueue(self) -> Call[Any]:
        job_id = self._id()
        return self._twin(
            "enqueue", self._given(self.keys.job_prefix + job_id, self.keys.pending), job_id, self._payload()
        )

    def _enqueue_many(self) -> Call[Any]:
        pairs: list[Arg] = []
        for _ in range(self._choose((1, 2, 3, 5, 8))):
            pairs += (self._id(), self._payload())
        return self._twin("enqueue_many", self._given(self.keys.pending), *pairs)

    def _claim(self) -> Call[Any]:
        given = self._given(self.keys.pending, self.keys.active)
        return self._twin("claim", given, self._number((1, 5, HOUR, HOUR)), self._number(COUNTS))

    def _complete_many(self) -> Call[Any]:
        words: list[Arg] = []
        for _ in range(self._choose((1, 1, 2, 3, 6))):
            words += (self._id(), self._token(), self._payload(), self._number((0, 0, 1, HOUR)))
        return self._twin("complete_many", self._given(self.keys.active), *words)

    # -- verbs that are scripts on both wires, which set the scene -----------------------------------------------------

    def _admit(self) -> Call[Any]:
        group = self._choose((None, None, *GROUPS))
        at_ms = self._choose((None, None, *self._times))
        lane_text = "a lane" if group and self._choose((False, True)) else ""
        return admit(
            *(self.queue, self._job(), self._bytes()),
            at_ms=at_ms,
            group=group,
            lane_text=lane_text,
            dedup=self._choose(DEDUPS),
        )

    def _lane(self) -> Call[Any]:
        return lanes.enqueue(self.queue, self._job(), self._bytes(), self._choose(GROUPS))

    def _flow(self) -> Call[Any]:
        """A parent and its children, or a child whose parent is in another queue."""
        chosen = list(dict.fromkeys(self._job() for _ in range(self._choose((2, 3, 4)))))
        died = OnDeath.FAIL_PARENT if self._choose((True, False)) else OnDeath.IGNORE
        if len(chosen) < 2 or self._choose((True, False, False)):
            far = (chosen[0], self._bytes(), self._choose(IDS[-5:]), f"{died.value}far", 0)
            return Call("flow add", (self.keys.pending,), far, as_list, script("flow_add"))
        parts = tuple(Node(self.queue, job_id, self._bytes(), on_death=died) for job_id in chosen[1:])
        return next(add(Node(self.queue, chosen[0], self._bytes(), parts)))

    def _lane_claim(self) -> Call[Any]:
        return lanes.claim(self.queue, lease_ms=self._choose((1, HOUR)))

    def _weighted(self) -> Call[Any]:
        return lanes.claim_weighted(self.queue, lease_ms=HOUR)

    def _known_token(self) -> str:
        return self._choose(TOKENS)

    def _retry(self) -> Call[Any]:
        most, delay_ms = self._choose((1, 1, 2, 9)), self._choose(SPANS)
        return jobs.retry(
            *(self.queue, self._job(), self._known_token()), delay_ms=delay_ms, max_attempts=most, error="boom"
        )

    def _release(self) -> Call[Any]:
        return jobs.release(self.queue, self._job(), self._known_token())

    def _extend(self) -> Call[Any]:
        return jobs.extend(self.queue, self._job(), self._known_token(), lease_ms=HOUR)

    def _sweep(self) -> Call[Any]:
        return jobs.sweep(self.queue, max_stalled=self._choose((1, 3)))

    def _reap(self) -> Call[Any]:
        return jobs.reap(self.queue)

    def _complete(self) -> Call[Any]:
        done = Finished(self._job(), self._known_token(), self._bytes(), self._choose((0, HOUR)))
        return jobs.complete(*(self.queue, done.id, done.token), result=done.result, result_ttl_ms=done.result_ttl_ms)

    def _reprocess(self) -> Call[Any]:
        return admin.reprocess_job(self.queue, self._job())

    def _remove(self) -> Call[Any]:
        return admin.remove_job(self.queue, self._job())

    def _pause(self) -> Call[Any]:
        return self._choose((lanes.pause, lanes.resume, lanes.resume))(self.queue, self._choose(GROUPS))

    def _limit(self) -> Call[Any]:
        if self._choose((True, False)):
            return lanes.weight(self.queue, self._choose(GROUPS), self._choose((1, 2, 3)))
        return lanes.limit(self.queue, self._choose(GROUPS), self._choose((None, None, 1, 2)))

    def _ceiling(self) -> Call[Any]:
        return admin.set_ceiling(self.queue, self._choose((None, 1, 2, 3, 4, 6)))

    def _rate(self) -> Call[Any]:
        n = self._choose((None, None, None, 1, 4))
        return admin.set_rate(self.queue, n, period_ms=None if n is None else self._choose((20, HOUR)))

    def _hold(self) -> Call[Any]:
        return admin.pause_queue(self.queue)

    def _resume(self) -> Call[Any]:
        return admin.resume_queue(self.queue)

    def _cancel(self) -> Call[Any]:
        return admin.cancel_job(self.queue, self._job())

    def _data(self) -> Call[Any]:
        return admin.update_data(self.queue, self._job(), self._bytes())

    def _progress(self) -> Call[Any]:
        return admin.update_progress(self.queue, self._job(), "half")

    def _log(self) -> Call[Any]:
        return admin.add_log(self.queue, self._job(), "a line")

    def _repeat(self) -> Call[Any]:
        if self._choose((True, False)):
            return repeat.cancel(self.queue, "r")
        return repeat.register(
            self.queue, "r", every_ms=HOUR, template=b"t", first_run_ms=self._choose(self._times[:-1])
        )

    def _fire(self) -> Call[Any]:
        return repeat.due(self.queue, now_ms=self._times[5])

    def _drain(self) -> Call[Any]:
        return next(admin.drain(self.queue, scheduled=self._choose((False, True))))

    def _look(self) -> Call[Any]:
        return metrics.state(self.queue, self._job())

    # -- what no verb would leave there --------------------------------------------------------------------------------

    def _state(self) -> Call[Any]:
        words = bad_state(self.keys, self._choose, self._ids)
        return Call("by hand", (), tuple(words[1:]), as_int, command=words[0])


_MISSHAPES = (*("sound",) * 11, "bent")
_LIES = (*(False,) * 15, True)
