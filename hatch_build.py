"""Compiles `native/` into the package when a wheel is built, also for an editable install.

`ECHOMQ_BUILD_NATIVE=1` makes a module that cannot be built an error, `0` builds none; without it, a machine without a
C compiler gets a warning and a wheel of Python alone, in which wire 4 does everything. `CC` names the compiler.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

VARIABLE = "ECHOMQ_BUILD_NATIVE"
MODULE = "echomq/wire/native/echomq.so"


class NativeModule(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is hatchling's own business
    """The hook that hatchling runs before it packs a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Puts the module into the wheel, whose tag then names the platform and any Python 3."""
        wanted = os.environ.get(VARIABLE, "")
        if wanted not in ("", "0", "1"):
            raise ValueError(f"{VARIABLE}={wanted}: 1 (must be built), 0 (is not built) or nothing is allowed")
        output = Path(self.root, "src", MODULE)
        if wanted == "0":
            if version == "editable":
                output.unlink(missing_ok=True)
            return
        if version != "editable":
            output = Path(tempfile.mkdtemp(prefix="echomq-native-"), "echomq.so")
            atexit.register(shutil.rmtree, output.parent, ignore_errors=True)
        trouble = self._compile(output)
        if not trouble:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{next(platform_tags())}"
            if version != "editable":
                build_data["force_include"][str(output)] = MODULE
            return
        # An older one would be loaded by a server that this package starts, and be another than its source.
        output.unlink(missing_ok=True)
        if wanted == "1":
            raise RuntimeError(f"native module: {trouble}; install a C compiler, or set {VARIABLE}=0 to do without")
        self.app.display_warning(
            f"native module: {trouble}; this wheel holds none and works by scripts alone (wire 4)."
            f" {VARIABLE}=1 makes this an error."
        )

    def _compile(self, output: Path) -> str:
        """Compiles the module to `output`; why it could not, or nothing."""
        named = os.environ.get("CC", "")
        try:
            compiler = shlex.split(named) or [next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")]
        except ValueError as error:
            return f"CC={named}: {error}"
        if shutil.which(compiler[0]) is None:
            return f"no C compiler: {compiler[0]} is not on PATH"
        shell = shutil.which("sh")
        if shell is None:
            return "it is built by a shell script, and there is no sh here"
        done = subprocess.run(
            [shell, str(Path(self.root, "native", "build")), str(output)],
            env={**os.environ, "CC": shlex.join(compiler)},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        return "" if done.returncode == 0 else f"{compiler[0]} failed:\n{done.stderr.strip()}"
