"""What an enqueue gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from echomq.identity.branded import unix_ms

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Job(Generic[R_co]):
    """A job that the server has accepted; `R_co` is what its function returns.

    `id` is the receipt: with it, any verb of `echomq.jobs` and `echomq.metrics` finds the job in `queue`.
    """

    id: str
    name: str
    queue: str

    @property
    def minted_ms(self) -> int:
        """When the id was minted, Unix ms, by this host's clock."""
        return unix_ms(self.id)
