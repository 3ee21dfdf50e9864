"""Codecs of the user's own between the arguments of a job and its payload: compression, encryption (protocol §13)."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from typing import Protocol, cast, runtime_checkable

from echomq.app.errors import EnvelopeError, SerializationError
from echomq.app.misfits import reason
from echomq.app.text import cut
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import name_of


@runtime_checkable
class Codec(Protocol):
    """What `EchoMQ(codec=...)` takes: an object with a name and two functions that undo each other.

    The name travels with every payload, and a worker finds by it what can read that: a codec that reads another form,
    or has another key, is to have another name. Both functions are called from any thread, also on event loops.
    """

    @property
    def name(self) -> str:
        """Printable text."""
        ...

    def encode(self, data: bytes, /) -> bytes:
        """The arguments of a job, which are JSON, as they are to be stored. What it raises keeps the job from being
        sent."""
        ...

    def decode(self, data: bytes, /) -> bytes:
        """What `encode` was given. What it raises, for data that is damaged or forged, sends the job to the morgue."""
        ...


class Codecs:
    """An app's codecs by name; the first one is that which it encodes with."""

    def __init__(self, given: Codec | Iterable[Codec] | None) -> None:
        self._codecs: dict[str, Codec] = {}
        for each in _several(given):
            codec = _checked(each)
            name = name_of("the name of a codec", codec.name)
            if name in self._codecs:
                raise InvalidInputError(f"two codecs are named {name!r}: a payload says by the name which one it needs")
            self._codecs[name] = codec
        self.first: Codec | None = next(iter(self._codecs.values()), None)

    def get(self, name: str) -> Codec | None:
        """The codec of that name."""
        return self._codecs.get(name)

    def known(self) -> str:
        """Their names, for people."""
        return ", ".join(map(repr, self._codecs)) or "none"


def encoded(codec: Codec, job: str, data: bytes) -> str:
    """The body of an envelope; `SerializationError` when the codec gives none."""
    try:
        body: object = codec.encode(data)
    except Exception as error:
        raise SerializationError(
            f"the arguments of job {job!r} cannot be encoded by the codec {codec.name!r}: {reason(error)}"
        ) from error
    if not isinstance(body, bytes):
        raise SerializationError(
            f"the codec {codec.name!r} has encoded the arguments of job {job!r} as {type(body).__name__}, not bytes"
        )
    return b2a_base64(body, newline=False).decode()


def decoded(codec: Codec, body: str) -> bytes:
    """What an envelope's body says; `EnvelopeError` when the codec cannot read it."""
    try:
        data: object = codec.decode(a2b_base64(body, strict_mode=True))
    except Exception as error:
        raise EnvelopeError(f"the codec {codec.name!r} cannot decode the body: {reason(error)}") from error
    if not isinstance(data, bytes):
        raise EnvelopeError(f"the codec {codec.name!r} has decoded the body as {type(data).__name__}, not bytes")
    return data


def missing(name: str, codecs: Codecs) -> str:
    """Why a payload cannot be read, for the log and the morgue."""
    return f"payload is encoded by the codec {cut(name)!r}, which this worker does not have; it has {codecs.known()}"


def _several(given: object) -> Iterable[object]:
    if given is None:
        return ()
    if isinstance(given, Iterable) and not isinstance(given, (Codec, str, bytes)):
        return cast("Iterable[object]", given)
    return (given,)


def _checked(codec: object) -> Codec:
    if isinstance(codec, type) or not isinstance(codec, Codec):
        raise InvalidInputError(
            f"a codec is an object with a name, encode(bytes) and decode(bytes), which {codec!r:.200} is not"
        )
    return codec
