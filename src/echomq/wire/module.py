"""The native module: where the file is that a server loads to answer `EMQ.*` by itself (protocol §5, Native twins).

It is built with the package (`hatch_build.py`); a wheel that was built without a C compiler has none.
"""

from __future__ import annotations

from pathlib import Path

from echomq.protocol.errors import EchoMQError

__all__ = ["ModuleMissingError", "find_module", "module_path"]

_FILE = Path(__file__).parent / "native" / "echomq.so"


class ModuleMissingError(EchoMQError):
    """This installation of EchoMQ has no native module."""


def find_module() -> Path | None:
    """The module's absolute path, as `--loadmodule` wants it, or None where it was not built."""
    return _FILE.absolute() if _FILE.is_file() else None


def module_path() -> Path:
    """The module's absolute path, as `--loadmodule` wants it; `ModuleMissingError` where it was not built."""
    found = find_module()
    if found is None:
        raise ModuleMissingError(
            f"native module: {_FILE} is not there, this EchoMQ was installed without a C compiler;"
            " put cc, gcc or clang on PATH and run `pip install --force-reinstall --no-binary echomq echomq`"
            " (in a source tree: `make native`), or stay on wire 4, which needs no module"
        )
    return found
