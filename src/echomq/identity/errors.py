"""The root of every error this package raises, and the one that identity itself raises."""

from __future__ import annotations


class EchoMQError(Exception):
    """Anything that EchoMQ raises on purpose derives from this class."""


class InvalidInputError(EchoMQError, ValueError):
    """A value was refused on the host, before anything was sent."""


class IdError(InvalidInputError):
    """A text is not a branded id of the kind that was asked for (protocol §1)."""
