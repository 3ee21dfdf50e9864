"""One function's arguments: bound like a call, checked before they are sent, converted on arrival.

What stays true: whatever `outgoing` accepts, `incoming` of the same function takes, and gives the
function values equal to those that were sent. One thing is as in every queue that speaks JSON: under no annotation (or
`Any`, `list`, ...) a tuple, also a namedtuple, arrives as a list, and an `IntEnum` or `StrEnum` as the number or text
that it equals. Annotate the argument to get them back as they were.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sized
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, get_type_hints

import msgspec

from echomq.app.depends import injected, signature_of
from echomq.app.errors import EnvelopeError, JobDefinitionError, SerializationError
from echomq.app.fidelity import lost
from echomq.app.misfits import discreet, reason
from echomq.app.plain import HOLE, altered, dec_hook, encode_value, is_loose, not_finite
from echomq.app.text import cut
from echomq.app.unions import unserved

_EMPTY: Final = inspect.Parameter.empty
_MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_EXACT: Final = (str, int, bool)
"""Values of exactly these types pass by an annotation of the same type without being converted."""

_decode: Final = msgspec.json.Decoder().decode


class UnresolvedError(JobDefinitionError):
    """An annotation names what is not known at this moment. Where the job is written that may come yet."""


class Parameter:
    """What one parameter's annotation asks for."""

    __slots__ = ("convert", "exact", "loose")

    def __init__(self, annotation: Any) -> None:
        self.exact: Any = next((kind for kind in _EXACT if kind is annotation), None)
        self.loose = annotation is _EMPTY or is_loose(annotation)
        self.convert: Callable[[object], object] | None = None
        if annotation is not _EMPTY and annotation is not Any and annotation is not object:
            # Building a decoder is what tells that msgspec cannot decide between the members of a union.
            msgspec.json.Decoder(annotation, dec_hook=dec_hook)
            self.convert = partial(msgspec.convert, type=annotation, dec_hook=dec_hook, str_keys=True)

    def arrive(self, value: object) -> object:
        """`value` as the function wants it; raises what msgspec raises."""
        if self.convert is None or type(value) is self.exact:
            return value
        return self.convert(value)


class Arguments:
    """The arguments of the job `job`, by the signature of its function."""

    def __init__(self, job: str, function: Callable[..., object]) -> None:
        self.job = job
        self.needs = injected(f"job {job!r}", function)
        """The arguments that a worker fills in, which are never sent."""
        for need in self.needs.values():
            need.check()
        hints = _hints(job, function)
        self._signature = _without(signature_of(function), self.needs)
        self._parameters: dict[str, Parameter] = {}
        self._many: dict[str, bool] = {}
        """The parameters that take many arguments; true for those by keyword."""
        for name, parameter in self._signature.parameters.items():
            try:
                self._parameters[name] = Parameter(hints.get(name, _EMPTY))
            except TypeError as error:
                raise JobDefinitionError(
                    f"argument {name!r} of job {job!r} has an annotation that JSON cannot serve: {unserved(error)}"
                ) from None
            except (NameError, AttributeError) as error:  # in a field of a class that the annotation names
                raise _unresolved(job, error) from error
            if parameter.kind in _MANY:
                self._many[name] = parameter.kind is inspect.Parameter.VAR_KEYWORD
        self._plain = all(each.convert is None for each in self._parameters.values())
        parameters = self._signature.parameters.values()
        self._positional = [(each.name, self._parameters[each.name]) for each in parameters if each.kind in _BY_PLACE]
        """The parameters that take one argument by its place."""
        self._least = sum(each.default is _EMPTY for each in parameters if each.kind in _BY_PLACE)
        if any(each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is _EMPTY for each in parameters):
            self._least = sys.maxsize

    def outgoing(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Checks a call before it is sent: Python's own `TypeError`, or `SerializationError`."""
        if self._by_place(args, kwargs):  # without a generator: this is on the way of every job
            for (name, parameter), value in zip(self._positional, args, strict=False):
                if parameter.exact is not type(value):
                    self._check(name, parameter, value)
            return
        for name, parameter, value in self._each(args, kwargs):
            if parameter.exact is not type(value):
                self._check(name, parameter, value)

    def incoming(self, args: list[object], kwargs: dict[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments to call the function with; `EnvelopeError` says which of them does not fit."""
        if self._by_place(args, kwargs):
            if self._plain:
                return tuple(args), kwargs
            pairs = zip(self._positional, args, strict=False)
            return tuple([self._arrived(name, value) for (name, _), value in pairs]), kwargs
        try:
            bound = self._bind(args, kwargs)
        except TypeError as error:
            raise EnvelopeError(f"the arguments do not fit: {cut(_by_names(str(error), kwargs))}") from None
        if not self._plain:
            values = bound.arguments
            for name, value in values.items():
                match self._many.get(name):
                    case None:
                        values[name] = self._arrived(name, value)
                    case False:
                        values[name] = tuple(self._arrived(f"*{name}", item, name) for item in value)
                    case True:
                        values[name] = {key: self._arrived(f"**{name}", item, name) for key, item in value.items()}
        return bound.args, bound.kwargs

    def named(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """A call's arguments by name, those that it leaves to their defaults among them; Python's own `TypeError`."""
        bound = self._bind(args, kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def name_of(self, place: int | str) -> str:
        """The parameter that takes the argument at a place of a call, or of a name."""
        if isinstance(place, str):
            return place
        if place < len(self._positional):
            return self._positional[place][0]
        return next(f"*{name}" for name, by_word in self._many.items() if not by_word)

    def culprit(self, args: tuple[object, ...], kwargs: dict[str, object], error: Exception) -> SerializationError:
        """Which argument it was that could not be encoded, and why."""
        for name, _, value in self._each(args, kwargs):
            try:
                encode_value(value)
            except Exception as own:  # noqa: BLE001  (a value's own hooks may raise anything)
                return self._unserialisable(name, reason(own))
        return SerializationError(f"the arguments of job {self.job!r} cannot be serialised: {reason(error)}")

    def _by_place(self, args: Sized, kwargs: dict[str, object]) -> bool:
        """Whether the arguments need no binding, which costs more than all the rest."""
        return not kwargs and self._least <= len(args) <= len(self._positional)

    def _bind(self, args: Iterable[object], kwargs: dict[str, object]) -> inspect.BoundArguments:
        if self.needs:
            for name in self.needs.keys() & kwargs.keys():
                by = self.needs[name]
                raise TypeError(f"{self.job}(): argument {name!r} is never sent: the worker fills it in, by {by!r}")
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.job}(): {error}") from None

    def _each(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Iterator[tuple[str, Parameter, object]]:
        """Every argument of a call: what to call it, the parameter that takes it, its value."""
        if self._by_place(args, kwargs):
            yield from (
                (name, parameter, value) for (name, parameter), value in zip(self._positional, args, strict=False)
            )
            return
        for name, value in self._bind(args, kwargs).arguments.items():
            parameter = self._parameters[name]
            match self._many.get(name):
                case None:
                    yield name, parameter, value
                case False:
                    yield from ((f"*{name}", parameter, item) for item in value)
                case True:
                    yield from ((key, parameter, item) for key, item in value.items())

    def _check(self, name: str, parameter: Parameter, value: object) -> None:
        if value is HOLE:
            return
        if parameter.convert is None and type(value) in _EXACT:
            return
        if parameter.loose and (why := altered(value)):
            raise self._unserialisable(name, why)
        if parameter.convert is None:
            return
        try:
            encoded = encode_value(value)
            hidden = b"null" in encoded and not_finite(value)
        except Exception as error:
            raise self._unserialisable(name, reason(error)) from error
        if hidden:
            raise self._unserialisable(name, "it holds a NaN or an infinity, which have no form in JSON")
        try:
            arrived = parameter.arrive(_decode(encoded))
        except Exception as error:
            raise SerializationError(
                f"argument {name!r} of job {self.job!r} does not fit its annotation: {reason(error)}"
            ) from error
        if why := lost(value, arrived):
            raise SerializationError(f"argument {name!r} of job {self.job!r} would arrive altered: {why}")

    def _arrived(self, called: str, value: object, name: str | None = None) -> object:
        try:
            return self._parameters[name or called].arrive(value)
        except Exception as error:  # noqa: BLE001  (a model's own checks may raise anything)
            # Not from the error itself, which may quote the value.
            raise EnvelopeError(f"argument {cut(called)!r} does not fit its annotation: {discreet(error)}") from None

    def _unserialisable(self, name: str, why: str) -> SerializationError:
        return SerializationError(f"argument {name!r} of job {self.job!r} cannot be serialised: {why}")


def _by_names(text: str, kwargs: Iterable[str]) -> str:
    """What Python says of a call, without those of its keywords that are data: no parameter can have such a name."""
    for word in kwargs:
        if not word.isidentifier():
            text = text.replace(repr(word), "'...'")
    return text


def _without(signature: inspect.Signature, names: Container[str]) -> inspect.Signature:
    kept = [each for each in signature.parameters.values() if each.name not in names]
    return signature.replace(parameters=kept)


def _hints(job: str, function: Callable[..., object]) -> dict[str, Any]:
    """The parameters' annotations, resolved; that of the result does not matter here."""
    inner = inspect.unwrap(function)
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        raw = dict(get_annotations(inner, format=Format.FORWARDREF))
    else:
        raw = dict(getattr(inner, "__annotations__", {}))
    raw.pop("return", None)
    if not raw:
        return {}
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=raw),
            globalns=getattr(inner, "__globals__", {}),
            include_extras=True,
        )
    except Exception as error:
        raise _unresolved(job, error) from error


def _unresolved(job: str, error: Exception) -> UnresolvedError:
    return UnresolvedError(
        f"the annotations of job {job!r} cannot be resolved: {error}; a worker needs them at run time, "
        "so import their types outside `if TYPE_CHECKING`"
    )
