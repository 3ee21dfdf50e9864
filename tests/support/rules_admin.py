"""Rules of the state machine: settings, rate limit, locks, deduplicated admission (protocol §7)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import admin, admission, workers
from echomq.protocol.admission import Dedup
from support.machine import GROUPS, HOUR, KEYS, MINTER, Bench, Holder, delays, holders, payloads, picks, plain
from support.model import Span

keys_ = st.sampled_from(KEYS)


class AdminRules(Bench):
    """What operators do, and what time does to what they have set."""

    # -- settings -----------------------------------------------------------------------------------------------------

    @rule(paused=st.sampled_from([False, False, True]))
    def pause_queue(self, paused: bool) -> None:
        if paused:
            self.step(admin.pause_queue(self.queue), lambda: self.model.setting("paused", True))
        else:
            self.step(admin.resume_queue(self.queue), lambda: self.model.resume_queue())
        self.step(admin.is_paused(self.queue), lambda: paused)

    @rule(ceiling=st.sampled_from([None, None, None, 1, 2, 4]))
    def set_ceiling(self, ceiling: int | None) -> None:
        self.step(admin.set_ceiling(self.queue, ceiling), lambda: self.model.setting("ceiling", ceiling or 0))
        self.step(admin.gate(self.queue), lambda: self.model.ceiling_gate(), lambda a, b: plain(a) == b)

    @rule(n=st.sampled_from([None, None, 1, 3, 6]), hours=st.integers(1, 2))
    def set_rate(self, n: int | None, hours: int) -> None:
        period_ms = hours * HOUR
        rate = None if n is None else (n, period_ms)
        self.step(
            admin.set_rate(self.queue, n, period_ms=period_ms),
            lambda: self.model.setting("rate", rate),
        )

    @rule(n=st.sampled_from([0, 0, 1, 3]))
    def look_at_rate(self, n: int) -> None:
        self.step(admin.rate_ttl(self.queue, n=n), lambda: self.model.rate_ttl(n), lambda ttl, span: ttl in span)

    @rule(how=st.sampled_from(["over", "over", "no end", "half an hour"]))
    def rate_window(self, how: str) -> None:
        """A window ends, is left without an end by another client, or is cut short."""
        model, key = self.model, self.keys.limiter
        if not model.spent:
            return
        if how == "over":
            model.spent, model.window = 0, None
            self.by_hand("window ends", "DEL", key)
        elif how == "no end":
            model.window = None
            self.by_hand("window has no end", "PERSIST", key)
        else:
            ends = self.runner.now_ms() + HOUR // 2
            model.window = Span.at(ends)
            self.by_hand("window rescored", "PEXPIREAT", key, ends)

    # -- one job ------------------------------------------------------------------------------------------------------

    @rule(pick=picks, payload=payloads)
    def update_data(self, pick: int, payload: bytes) -> None:
        job_id = self.ids[pick]
        self.step(admin.update_data(self.queue, job_id, payload), lambda: self.model.update_data(job_id, payload))

    @rule(who=st.lists(holders, min_size=1, max_size=4))
    def keep(self, who: list[Holder]) -> None:
        """The beat of a lease keeper: from now on the jobs are locked."""
        batch = [self.holder(each) for each in who]
        self.step(workers.keep(self.queue, batch, lease_ms=HOUR), lambda: self.model.keep(batch, HOUR))

    @rule(pick=picks)
    def lock_ends(self, pick: int) -> None:
        """A worker has not been heard of for two leases."""
        if self.model.locks:
            job_id = sorted(self.model.locks)[pick % len(self.model.locks)]
            self.model.locks.discard(job_id)
            self.by_hand("lock ends", "DEL", f"{self.keys.job(job_id)}:lock")

    # -- admission with options ---------------------------------------------------------------------------------------

    @rule(
        pick=picks,
        payload=payloads,
        delay_ms=st.one_of(st.none(), delays),
        group=st.sampled_from([None, None, *GROUPS]),
        key=st.sampled_from([None, *KEYS, *KEYS]),
        windowed=st.booleans(),
        replace=st.booleans(),
        fresh=st.sampled_from([True, True, False]),
    )
    def admit(
        self,
        pick: int,
        payload: bytes,
        delay_ms: int | None,
        group: str | None,
        key: str | None,
        windowed: bool,
        replace: bool,
        fresh: bool,
    ) -> None:
        if fresh and self.model.known(self.ids[pick]):
            self.ids[pick] = MINTER.mint()
        job_id, model = self.ids[pick], self.model
        dedup = None if key is None else Dedup(key, HOUR if windowed else None, replace)
        self.step(
            admission.admit(self.queue, job_id, payload, delay_ms=delay_ms, group=group, dedup=dedup),
            lambda: model.admit(
                job_id,
                payload,
                at=None if delay_ms is None else model.now + delay_ms,
                group=group,
                key=key,
                windowed=windowed,
                replace=replace,
            ),
        )

    @rule(key=keys_)
    def window_of_key_ends(self, key: str) -> None:
        """A deduplication key is free before its job has ended."""
        if self.model.claims.pop(key, None):
            self.by_hand("key ends", "DEL", f"{self.keys.base}de:{key}")
