"""A budget of slots that the consumers of a process share, over its queues.

Whoever wants slots while others do too is held to its share, by its weight; what nobody else wants it may have whole.
Where shares are not whole slots, they take turns, so that in the long run each is served by its weight. In a strict
order one that comes later is served only while none before it finds anything to claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from echomq.protocol.checks import integer
from echomq.runtime.signals import Signal

MAX_WEIGHT: Final = 1_000


class Member(Protocol):
    """A consumer as its budget sees it."""

    @property
    def used(self) -> int:
        """Slots that it has: jobs that run, and claims under way."""
        ...

    @property
    def wants(self) -> bool:
        """Whether it would claim if it had a slot."""
        ...

    def wake(self) -> None:
        """There may be a slot for it now."""


@dataclass(slots=True)
class _Place:
    member: Member
    weight: int
    served: float = 0.0
    """Jobs by its weight, on a clock that all members share; whoever is behind goes first."""


class Budget:
    """How many jobs run at once, over all the consumers that are given it. For one event loop.

    With `most` they claim no more than so many jobs in all; `spent` fires when they have. With `strict` they are
    served in the order in which they have joined.
    """

    def __init__(self, slots: int, *, most: int | None = None, strict: bool = False) -> None:
        self.slots = integer("slots", slots, least=1, most=100_000)
        self._left = None if most is None else integer("most", most, least=1)
        self._strict = strict
        self._places: list[_Place] = []
        self._clock = 0.0
        self._asked = 0
        self.spent = Signal()

    def join(self, member: Member, weight: int = 1) -> None:
        """Count its slots from now on."""
        self._places.append(_Place(member, integer("weight", weight, least=1, most=MAX_WEIGHT)))

    def leave(self, member: Member) -> None:
        """Count them no more."""
        if (place := self._place(member)) is not None:
            self._places.remove(place)
            self.changed(member)

    def room(self, member: Member) -> int:
        """For how many more jobs it may claim."""
        spare = self.slots - sum(each.member.used for each in self._places)
        if self._left is not None:
            spare = min(spare, self._left - self._asked)
        if spare <= 0:
            return 0
        wanting = [each for each in self._places if each.member is member or each.member.wants]
        if len(wanting) == 1:
            return spare
        if self._strict:
            return spare if wanting[0].member is member else 0
        weights = sum(each.weight for each in wanting)
        rest = self.slots - sum(self.slots * each.weight // weights for each in wanting)
        for rank, each in enumerate(sorted(wanting, key=self._turn)):
            lacks = self.slots * each.weight // weights + (rank < rest) - each.member.used
            if each.member is member:
                return max(0, min(spare, lacks))
            spare -= max(0, lacks)  # theirs first: they have waited for longer
        return 0

    def asked(self, member: Member, jobs: int) -> None:
        """It claims so many jobs. Among those that are equally far behind the others go before it."""
        self._asked += jobs
        if not self._strict and (place := self._place(member)) is not None:
            self._places.remove(place)
            self._places.append(place)

    def landed(self, member: Member, asked: int, jobs: int) -> None:
        """Its claim of `asked` jobs has brought `jobs`."""
        self._asked -= asked
        if (place := self._place(member)) is not None:
            place.served = self._turn(place) + jobs / place.weight
            # Whoever wants is not passed by the clock: what it is behind is owed to it.
            wanting = [each for each in self._places if each is place or each.member.wants]
            self._clock = min(self._turn(each) for each in wanting)
        if self._left is not None and jobs:
            self._left -= jobs
            if self._left <= 0:
                self.spent.fire()

    def changed(self, member: Member) -> None:
        """It has given slots back, or wants none any more: tell those who can use them."""
        for each in tuple(self._places):
            other = each.member
            if other is not member and other.wants and self.room(other) > 0:
                other.wake()

    def _turn(self, place: _Place) -> float:
        """Whoever wanted nothing for a while has saved nothing up."""
        return max(self._clock, place.served)

    def _place(self, member: Member) -> _Place | None:
        return next((each for each in self._places if each.member is member), None)
