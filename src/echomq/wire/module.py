"""The native module: where the file is that a server loads to answer `EMQ.*` by itself (protocol §5, Native twins).

It is built with the package (`hatch_build.py`); a wheel that was built without a C compiler has none.
"""

from __future__ import annotations

from pathlib import Path

from echomq.protocol.errors import EchoMQError

__all__ = ["ModuleMissingError", "find_module", "module_path"]

BUILD_VARIABLE = "ECHOMQ_BUILD_NATIVE"
"""Read as the package is built (`hatch_build.py`): 1, the module must be built; 0, it is not."""

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
            f" put cc, gcc or clang on PATH and run `{BUILD_VARIABLE}=1 pip install --force-reinstall"
            " --no-binary echomq echomq` (in a source tree: `make native`), or stay on wire 4, which needs no module"
        )
    return found
