"""The payload of an occurrence: a recurrence's template, told which slot it is for (protocol §13)."""

from __future__ import annotations

from typing import Final

import msgspec


class _Envelope(msgspec.Struct):
    v: int
    job: str


_decode: Final = msgspec.json.Decoder(_Envelope).decode


def slotted(template: bytes, slot_ms: int, expires_in_ms: int | None = None) -> bytes | None:
    """The template with `slot_ms`, and `expires_ms` that long after it; None when it is no envelope of ours.

    What any other client has registered is admitted as it is.
    """
    try:
        if _decode(template).v != 1:
            return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    expires = "" if expires_in_ms is None else f',"expires_ms":{slot_ms + expires_in_ms}'
    # After what is there: of two members of a name the last one counts.
    return template.rstrip()[:-1] + f',"slot_ms":{slot_ms}{expires}}}'.encode()
