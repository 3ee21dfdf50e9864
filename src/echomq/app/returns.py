"""What a job's function returns, by its annotation: encoded by the worker, read where somebody waits for it.

The rules are those of arguments. A result lies as JSON in the row's `:result`, and in the `:processed` of a flow's
parent; for None an empty text lies there. What no JSON begins with says the rest (docs/additions.md): after a `!` why a
value could not be kept, after a `~` the name of a codec of the app's own, and after a new line what that has encoded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, Final, Never, NoReturn, get_args, get_origin, get_type_hints

import msgspec

from echomq.app.arguments import Parameter
from echomq.app.codec import Codecs
from echomq.app.errors import ResultError
from echomq.app.fidelity import lost
from echomq.app.misfits import DISCREET, discreet, reason
from echomq.app.plain import altered, encode_value, not_finite
from echomq.app.text import cut

log: Final = logging.getLogger("echomq.worker")

NOT_KEPT: Final = b"!"
CODED: Final = b"~"
_LOOSE: Final = Parameter(Any)
_decode: Final = msgspec.json.Decoder().decode


class Returns:
    """The results of the job `job`, of at most `most` bytes each; the first of `codecs` has the last word on them."""

    def __init__(self, job: str, function: Callable[..., object] | None, codecs: Codecs, most: int) -> None:
        self._job = job
        self._codecs = codecs
        self._most = most
        self._said = False
        self._parameter = _LOOSE if function is None else _parameter(function)

    def encoded(self, value: object) -> bytes:
        """`value` as it is kept. The job is done either way: what cannot be kept is noted, and logged once."""
        if value is None:
            return b""
        try:
            why = self._unfit(value)
            data = encode_value(value) if why is None else b""
            if why is None and b"null" in data and not_finite(value):
                why = "it holds a NaN or an infinity, which have no form in JSON"
            if why is None:
                why = self._lost(value, data)
        except Exception as error:  # noqa: BLE001  (a value's own hooks may raise anything)
            why, data = discreet(error), b""
        if why is None and (codec := self._codecs.first) is not None:
            try:
                data = b"%b%b\n%b" % (CODED, codec.name.encode(), codec.encode(data))
            except Exception as error:  # noqa: BLE001  (as above)
                why = reason(error)
        if why is None and len(data) > self._most:
            why = f"it is {len(data):,} bytes, and at most {self._most:,} are allowed (max_payload)"
        if why is None:
            return data
        if not self._said:
            self._said = True
            log.warning("job %s is done, but its result, %s, is not kept: %s", self._job, _kind(value), why)
        return NOT_KEPT + f"{_kind(value)}: {why}".encode("utf-8", "backslashreplace")

    def value(self, data: bytes) -> object:
        """What was returned, as the annotation says; `ResultError` when it was not kept or does not fit."""
        if not data:
            return None
        if data.startswith(NOT_KEPT):
            why = data[1:].decode("utf-8", "replace")
            raise ResultError(f"it is done, but its result could not be kept, {why}")
        plain = self._json(data)
        try:
            return self._parameter.arrive(plain)
        except Exception as error:  # noqa: BLE001  (a model's own checks may raise anything)
            # Not from the error itself, which may quote the value.
            raise ResultError(f"it is done, but its result does not fit the annotation: {discreet(error)}") from None

    def plain(self, data: bytes) -> Any:
        """The same as JSON has it; None when it was not kept or cannot be read."""
        try:
            return self._json(data) if data and not data.startswith(NOT_KEPT) else None
        except ResultError:
            return None

    def _json(self, data: bytes) -> object:
        try:
            if data.startswith(CODED):
                name, body = data[1:].split(b"\n", 1)
                if (codec := self._codecs.get(name.decode())) is None:
                    raise ResultError(
                        f"it is done, but its result is encoded by the codec {cut(name.decode())!r}, "
                        f"which this EchoMQ does not have; it has {self._codecs.known()}"
                    )
                data = codec.decode(body)
            return _decode(data)
        except ResultError:
            raise
        except Exception as error:
            raise ResultError(f"it is done, but its result cannot be read: {reason(error)}") from error

    def _unfit(self, value: object) -> str | None:
        parameter = self._parameter
        return altered(value, DISCREET) if parameter.loose and type(value) is not parameter.exact else None

    def _lost(self, value: object, data: bytes) -> str | None:
        """Why `value` would come back altered; nothing of one that does not fit, which whoever reads it is told."""
        parameter = self._parameter
        if parameter.convert is None or type(value) is parameter.exact:
            return None
        try:
            back = parameter.arrive(_decode(data))
        except Exception:  # noqa: BLE001  (a model's own checks may raise anything)
            return None
        why = lost(value, back, DISCREET)
        return why and f"it would come back altered: {why}"


def _kind(value: object) -> str:
    return cut(type(value).__qualname__)


def _parameter(function: Callable[..., object]) -> Parameter:
    """What the annotation of the result asks for; nothing where there is none, or none that JSON can serve."""
    try:
        return Parameter(_annotation(function))
    except Exception:  # noqa: BLE001  (it was no part of the job's contract so far: no reason to refuse the job)
        return _LOOSE


def _annotation(function: Callable[..., object]) -> Any:
    import inspect

    inner = inspect.unwrap(function)
    raw = getattr(inner, "__annotations__", {}).get("return", Any)
    found: Any = get_type_hints(
        SimpleNamespace(__annotations__={"return": raw}),
        globalns=getattr(inner, "__globals__", {}),
        include_extras=True,
    )["return"]
    if get_origin(found) in (Awaitable, Coroutine):
        found = get_args(found)[-1]
    return Any if found in (Never, NoReturn) else found
