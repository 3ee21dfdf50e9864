"""`MODULE:OBJECT` on the command line: the `EchoMQ` that it names, or a sentence with the nearest one that exists."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Final

from echomq.app.echomq import EchoMQ
from echomq.app.text import nearest
from echomq.identity.errors import InvalidInputError

_PACKAGE: Final = str(Path(__file__).parent.parent) + os.sep


def load(target: str) -> EchoMQ:
    """The app that `target` names; its module is found from the current folder, too."""
    name, colon, path = target.partition(":")
    if "/" in name or name.endswith(".py"):
        dotted = name.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        raise InvalidInputError(f"{name!r} is a file; write its module, as in {dotted}:{path or 'mq'}")
    if not name or not all(part.isidentifier() for part in name.split(".")) or (colon and not path):
        raise InvalidInputError(f"{target!r} is not MODULE:OBJECT, as in tasks:mq")
    module = _module(name)
    if not colon:
        raise InvalidInputError(f"{target!r} names no object of its module; {_choice(module)}")
    try:
        found: object = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise InvalidInputError(f"module {name!r} has no {path!r}; {_choice(module, path)}") from None
    if not isinstance(found, EchoMQ):
        kind = type(found).__name__
        raise InvalidInputError(f"{target} is not an EchoMQ but of type {kind}; {_choice(module, path)}")
    return found


def _choice(module: ModuleType, wrong: str = "") -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, EchoMQ)]
    if not apps:
        return f"no EchoMQ is defined in {module.__name__!r}: begin with mq = EchoMQ()"
    names = nearest(wrong, apps).replace("'", "")
    return "write " + " or ".join(f"{module.__name__}:{name}" for name in names.split(", "))


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise InvalidInputError(_broken(name, error)) from None
        near = nearest(error.name, _importable(error.name, here))
        raise InvalidInputError(f"no module named {error.name!r} in {here}; nearest: {near}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the user's module may raise anything)
        raise InvalidInputError(_broken(name, error)) from None


def _importable(name: str, here: str) -> list[str]:
    """The modules beside the one that is missing."""
    parent, _, _ = name.rpartition(".")
    places = [here]
    prefix = ""
    if parent:
        package = sys.modules.get(parent)
        if package is not None:
            places, prefix = list(getattr(package, "__path__", [])), parent + "."
        elif (folder := Path(here, *parent.split("."))).is_dir():
            places, prefix = [str(folder)], parent + "."
    # A folder without an __init__.py is a package, too.
    bare = {file.parent.name for place in places for file in Path(place).glob("*/*.py")}
    return [prefix + each for each in {each.name for each in pkgutil.iter_modules(places)} | bare]


def _broken(name: str, error: BaseException) -> str:
    """A module that exists and cannot be imported: what happened, and on which line of the user's own."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    # What EchoMQ refuses stands where the module has written it, not where it was refused.
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    what = f"it exits with {error}" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
    return f"module {name!r} cannot be imported: {what}{where}"
