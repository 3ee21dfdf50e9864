"""What the app tier refuses, and what it warns about."""

from __future__ import annotations

from echomq.identity.errors import EchoMQError, InvalidInputError

__all__ = ["BlockingCallWarning", "EnvelopeError", "JobDefinitionError", "SerializationError"]


class JobDefinitionError(InvalidInputError):
    """A function that cannot be a job as it stands: its kind, its name, its options or its annotations."""


class SerializationError(InvalidInputError):
    """An argument that JSON cannot carry to the worker unaltered; names the job and the argument."""


class EnvelopeError(EchoMQError):
    """A payload that this worker cannot read; its text is the reason that the morgue shows."""


class BlockingCallWarning(RuntimeWarning):
    """`enqueue` was called on a running event loop, which stands still until the server answers."""
