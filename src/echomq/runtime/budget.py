"""A budget of slots that the consumers of a process share, over its queues.

Whoever wants slots while others do too is held to its fair share; what nobody else wants it may have whole. Where
there are fewer slots than consumers that want one, they take turns.
"""

from __future__ import annotations

from typing import Protocol

from echomq.protocol.checks import integer


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


class Budget:
    """How many jobs run at once, over all the consumers that are given it. For one event loop."""

    def __init__(self, slots: int) -> None:
        self.slots = integer("slots", slots, least=1, most=100_000)
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        """Count its slots from now on."""
        self._members.append(member)

    def leave(self, member: Member) -> None:
        """Count them no more."""
        if member in self._members:
            self._members.remove(member)
            self.changed(member)

    def room(self, member: Member) -> int:
        """For how many more jobs it may claim."""
        spare = self.slots - sum(each.used for each in self._members)
        if spare <= 0:
            return 0
        wanting = [each for each in self._members if each is member or each.wants]
        if len(wanting) == 1:
            return spare
        share, rest = divmod(self.slots, len(wanting))
        for rank, each in enumerate(wanting):
            lacks = share + (rank < rest) - each.used
            if each is member:
                return max(0, min(spare, lacks))
            spare -= max(0, lacks)  # theirs first: they have waited for longer
        return 0

    def claimed(self, member: Member) -> None:
        """It has claimed, so the others go before it."""
        self._members.remove(member)
        self._members.append(member)

    def changed(self, member: Member) -> None:
        """It has given slots back, or wants none any more: tell those who can use them."""
        for each in tuple(self._members):
            if each is not member and each.wants and self.room(each) > 0:
                each.wake()
