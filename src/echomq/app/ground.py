"""What an app stands on: its server, and what a test puts in the place of that; `mq.testing()` and what it opens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, cast, overload

from echomq.app.errors import NotTestingError
from echomq.app.flag import flag
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from datetime import datetime

    from echomq.app.clock import Clock
    from echomq.app.connections import Connections
    from echomq.app.drained import Drained
    from echomq.app.eager import Eager
    from echomq.app.echomq import EchoMQ
    from echomq.app.enqueued import Enqueued, What
    from echomq.app.throwaway import Throwaway
    from echomq.app.trial import ServerTrial, Trial
    from echomq.wire import Wire

TIMEOUT: Final = timedelta(seconds=60)
"""How long a drain may take, unless told otherwise."""
WITHIN: Final = timedelta(seconds=1)
"""How far a run-at may be from the one that is asserted."""
CONCURRENCY: Final = 10


@dataclass(frozen=True, slots=True)
class Ground:
    """What an app stands on; exchanged as a whole, so that all of it can be put back."""

    connections: Connections
    moved: tuple[str | None, Wire | None] | None = None
    """What `use_server` was told."""
    aside: str = ""
    """What goes before the name of every queue, also before the app's prefix."""
    trial: Trial | None = None
    """The test that it is part of."""
    eager: Eager | None = None
    """What runs the jobs in the place of a server."""


class Tested:
    """The part of `EchoMQ` that is for tests. All but `testing` and `eager` is refused outside of them."""

    _ground: Ground

    @overload
    def testing(self, url: str | Throwaway | None = None) -> ServerTrial: ...

    @overload
    def testing(self, url: None = None, *, eager: Literal[True]) -> Eager: ...

    def testing(self, url: str | Throwaway | None = None, *, eager: bool = False) -> ServerTrial | Eager:
        """The app on a server for one test: `with mq.testing():`, or `async with`; then it is back where it was.

        By itself it starts a real server in a temporary folder, which is gone at the end. Given the URL of one, every
        queue of the app has another name there, `test-<random>:` and its own, and what they hold is removed at the end;
        nothing else on it is touched. A `Throwaway` is a server that several tests use one after the other; it is
        emptied after each. Whatever the app sends, in any thread or loop of this process, goes there. With `eager` it
        is `mq.eager()`. `EmbeddedServerError` and `ConnectError` say what stands in the way.
        """
        from echomq.app.trial import ServerTrial

        if not flag("eager", eager):
            return ServerTrial(self._app, url)
        if url is not None:
            raise InvalidInputError("testing takes a server, or eager=True, which has none; not both")
        return self.eager()

    def eager(self, *, raise_errors: bool = False) -> Eager:
        """The app without a server: `with mq.eager():`, or `async with`; each job runs where it is sent, at once.

        Its arguments are encoded and decoded as a worker would, and its handle has the result. A failure is tried again
        at once, as often as the job may; with `raise_errors` the last one is raised by the `enqueue`. No time is waited
        for. What needs a server, such as flows, recurrences and lanes' limits, is an `EagerError`.
        """
        from echomq.app.eager import Eager

        return Eager(self._app, raise_errors=raise_errors)

    @property
    def clock(self) -> Clock:
        """In a test: moves time on for what waits for it, `mq.clock.advance(hours=1)`."""
        return self._trial("mq.clock").clock

    async def drain(
        self,
        *,
        retries: bool = False,
        schedules: bool = False,
        raise_errors: bool = False,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | None = TIMEOUT,  # noqa: ASYNC109  (it says which jobs were in hand)
    ) -> Drained:
        """In a test: runs all that can run now, also what that sends and what is due, until nothing can; says what ran.

        A worker in this process does it, with the app's start-up hooks, middleware and dependencies. What waits for a
        time stays: retries and snoozed jobs too. With `retries` those whose attempt has failed in this drain run again
        at once, until they are done or dead. With `schedules` the schedules that the code declares are registered
        first, as a worker does at its start. `concurrency`: how many jobs run at once, 10 unless given; with 1 they
        run in the order in which they were sent.

        `raise_errors` raises what the jobs have raised, once all is run: one as it is, several as an `ExceptionGroup`.
        `DrainTimeoutError` after `timeout`, 60 seconds unless given.
        """
        from echomq.app.drained import Draining

        trial = self._trial("mq.drain()")
        return await trial.drain(Draining(retries, schedules, raise_errors, concurrency, timeout))

    def drain_blocking(
        self,
        *,
        retries: bool = False,
        schedules: bool = False,
        raise_errors: bool = False,
        concurrency: int = CONCURRENCY,
        timeout: timedelta | None = TIMEOUT,
    ) -> Drained:
        """`drain`, blocking, for tests that are no coroutines; the jobs run on an event loop that is made for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise InvalidInputError("drain_blocking would stop the event loop that it is called on: await mq.drain()")
        return asyncio.run(
            self.drain(
                retries=retries,
                schedules=schedules,
                raise_errors=raise_errors,
                concurrency=concurrency,
                timeout=timeout,
            )
        )

    def enqueued(self, what: What | None = None) -> list[Enqueued]:
        """In a test: the jobs that wait, in the order in which they were sent; of one job, if given, or all.

        Read from the server: pending, in lanes, scheduled, or held for their children; what runs, is done or is dead
        is not among them.
        """
        from echomq.app.enqueued import chosen

        trial = self._trial("mq.enqueued()")
        self._app.warn_on_a_loop("enqueued")
        return chosen(self._app, trial.enqueued(), what)

    async def aenqueued(self, what: What | None = None) -> list[Enqueued]:
        """`enqueued`, awaited."""
        from echomq.app.enqueued import chosen

        return chosen(self._app, await self._trial("mq.aenqueued()").aenqueued(), what)

    def assert_enqueued(
        self,
        what: What,
        /,
        *args: object,
        queue: str | None = None,
        lane: str | None = None,
        at: datetime | None = None,
        within: timedelta = WITHIN,
        times: int | None = None,
    ) -> Enqueued:
        """In a test: a job waits that is like this, `mq.assert_enqueued(send, "a@b.c", queue="mail")`; gives it.

        `what` is a job, with its arguments behind it or whatever they are; or a call, `send.s(to="a@b.c")`, whose
        arguments are checked by types, and whose options (queue, lane, time) count as well. `at`: an aware datetime,
        of which its run-at is no further than `within`, a second unless given. `times`: so many jobs, not more.
        `AssertionError` names the nearest job that does wait, and what is different.
        """
        __tracebackhide__ = True
        from echomq.app.enqueued import Wanted, found

        wanted = Wanted(self._app, what, args, queue=queue, lane=lane, at=at, within=within)
        trial = self._trial("mq.assert_enqueued()")
        self._app.warn_on_a_loop("assert_enqueued")
        return found(wanted, trial.enqueued(), times)

    async def aassert_enqueued(
        self,
        what: What,
        /,
        *args: object,
        queue: str | None = None,
        lane: str | None = None,
        at: datetime | None = None,
        within: timedelta = WITHIN,
        times: int | None = None,
    ) -> Enqueued:
        """`assert_enqueued`, awaited."""
        __tracebackhide__ = True
        from echomq.app.enqueued import Wanted, found

        wanted = Wanted(self._app, what, args, queue=queue, lane=lane, at=at, within=within)
        return found(wanted, await self._trial("mq.aassert_enqueued()").aenqueued(), times)

    def assert_not_enqueued(
        self, what: What, /, *args: object, queue: str | None = None, lane: str | None = None
    ) -> None:
        """In a test: no job waits that is like this; see `assert_enqueued`."""
        __tracebackhide__ = True
        from echomq.app.enqueued import Wanted, none_found

        wanted = Wanted(self._app, what, args, queue=queue, lane=lane, within=WITHIN)
        trial = self._trial("mq.assert_not_enqueued()")
        self._app.warn_on_a_loop("assert_not_enqueued")
        none_found(wanted, trial.enqueued())

    async def aassert_not_enqueued(
        self, what: What, /, *args: object, queue: str | None = None, lane: str | None = None
    ) -> None:
        """`assert_not_enqueued`, awaited."""
        __tracebackhide__ = True
        from echomq.app.enqueued import Wanted, none_found

        wanted = Wanted(self._app, what, args, queue=queue, lane=lane, within=WITHIN)
        none_found(wanted, await self._trial("mq.aassert_not_enqueued()").aenqueued())

    def ahead_ms(self) -> int | None:
        """How far the clock of recurrences is ahead of the server's: 0, except in a test that has moved it."""
        trial = self._ground.trial
        return 0 if trial is None else trial.ahead_ms()

    @property
    def _app(self) -> EchoMQ:
        return cast("EchoMQ", self)

    def _trial(self, what: str) -> Trial:
        trial = self._ground.trial
        if trial is None:
            raise NotTestingError(f"{what} is for tests: use it inside of `with mq.testing():`")
        return trial
