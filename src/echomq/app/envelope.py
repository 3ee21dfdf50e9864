"""The payload of an app job: the JSON of protocol §13, written and read by msgspec."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from echomq.app.arguments import Arguments
from echomq.app.codec import Codec, decoded, encoded
from echomq.app.errors import EnvelopeError, SerializationError
from echomq.app.misfits import discreet
from echomq.app.plain import encode_value
from echomq.app.text import cut
from echomq.protocol.checks import MAX_MS, MAX_PAYLOAD, MAX_SPAN_MS
from echomq.protocol.errors import PayloadTooLargeError

VERSION: Final = 1
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Envelope(msgspec.Struct, frozen=True):
    """What an app job carries. Members that this client does not know are left where they are: in the row."""

    v: int
    job: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    max_attempts: Positive | None = None
    timeout_ms: Positive | None = None
    expires_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_MS)] | None = None
    result_ttl_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_MS)] | None = None
    slot_ms: int | None = None
    codec: str | None = None
    body: str | None = None
    """Base64 of what the codec has made of `args` and `kwargs`."""
    meta: dict[str, Any] | None = None
    on_dead: Any = None
    at_ms: Any = None
    """False: nothing here says what the job was sent for."""
    delay_ms: Any = None
    takes: Any = None
    """The arguments that are the results of children (`echomq.app.holes`)."""


class _Body(msgspec.Struct, frozen=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_body: Final = msgspec.json.Decoder(_Body).decode


def encode(
    arguments: Arguments,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    more: Mapping[str, object] = NOTHING,
    *,
    codec: Codec | None = None,
    max_bytes: int = MAX_PAYLOAD,
) -> bytes:
    """The payload for a call of a job; refuses what a worker could not read back as it was.

    `more`: the members of protocol §13 that options set.
    """
    arguments.outgoing(args, kwargs)
    try:
        return written(arguments.job, args, kwargs, more, codec=codec, max_bytes=max_bytes)
    except (SerializationError, PayloadTooLargeError):
        raise
    except Exception as error:
        raise arguments.culprit(args, kwargs, error) from error


def written(
    job: str,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    more: Mapping[str, object] = NOTHING,
    *,
    codec: Codec | None,
    max_bytes: int,
) -> bytes:
    """The payload for a call of a job by its name, whatever arguments its function takes."""
    members: dict[str, object] = {"v": VERSION, "job": job}
    if codec is None:
        payload = encode_value({**members, "args": args, "kwargs": kwargs, **more})
    else:
        body = encoded(codec, job, encode_value({"args": args, "kwargs": kwargs}))
        payload = encode_value({**members, "codec": codec.name, "body": body, **more})
    if len(payload) > max_bytes:
        raise PayloadTooLargeError(
            f"the payload of job {job!r} is {len(payload):,} bytes; "
            f"at most {max_bytes:,} are allowed: keep large data elsewhere and send where it is"
        )
    return payload


def decode(payload: bytes) -> Envelope:
    """The envelope in a payload; `EnvelopeError`, whose text is fit for the morgue, when there is none."""
    try:
        envelope = _decode(payload)
    except RecursionError:
        raise EnvelopeError("payload is not an envelope: nested too deeply") from None
    except Exception as error:  # noqa: BLE001  (bytes from anywhere: nothing in them may stop a worker)
        raise EnvelopeError(f"payload is not an envelope: {cut(str(error))}") from None
    if envelope.v != VERSION:
        raise EnvelopeError(
            f"payload is an envelope of version {cut(str(envelope.v), 20)}; this worker reads version {VERSION}"
        )
    if envelope.body is not None and envelope.codec is None:
        raise EnvelopeError("payload is not an envelope: a body, and no codec that says what reads it")
    if (envelope.max_attempts or 0) > MAX_MS or (envelope.timeout_ms or 0) > MAX_SPAN_MS:
        return _bounded(envelope)
    return envelope


def renamed(envelope: Envelope, name: str) -> Envelope:
    """An envelope that waited under an alias, under the name that its job has now."""
    return msgspec.structs.replace(envelope, job=name)


def opened(envelope: Envelope, codec: Codec) -> Envelope:
    """An envelope with the arguments that a codec had made the body of."""
    body = decoded(codec, envelope.body or "")
    try:
        call = _decode_body(body)
    except Exception as error:  # noqa: BLE001  (bytes from anywhere, as above)
        raise EnvelopeError(f"the body, decoded by {codec.name!r}, is not a call: {discreet(error)}") from None
    return msgspec.structs.replace(envelope, args=call.args, kwargs=call.kwargs)


def _bounded(envelope: Envelope) -> Envelope:
    """Numbers beyond what a server and a loop can count to mean as many as those can: no less than was asked for."""
    most, timeout_ms = envelope.max_attempts, envelope.timeout_ms
    return msgspec.structs.replace(
        envelope,
        max_attempts=most and min(most, MAX_MS),
        timeout_ms=timeout_ms and min(timeout_ms, MAX_SPAN_MS),
    )
