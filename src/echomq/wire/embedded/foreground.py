"""`echomq server`: the embedded server in the foreground, and how one looks from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import explain, locks, probe, supervisor
from echomq.wire.embedded.binary import find_binary
from echomq.wire.embedded.folder import Folder, find_home, locate, open_folder
from echomq.wire.module import find_module

__all__ = ["Status", "serve", "status"]


@dataclass(frozen=True, slots=True)
class Status:
    """A folder's server as it is now."""

    home: Path
    socket: str
    url: str
    supervised: bool
    """Whether a supervisor, in the background or the foreground, owns the folder."""
    reach: probe.Reach
    in_use: bool
    """Whether any process holds the server in use."""
    supervisor_pid: int | None
    server_pid: int | None

    @property
    def running(self) -> bool:
        """Whether the server answers, be it that it is loading."""
        return self.reach in (probe.Reach.UP, probe.Reach.LOADING)


def status(home: str | os.PathLike[str] | None = None) -> Status:
    """Look at a folder's server; nothing is started, created or changed."""
    folder = locate(find_home(home))
    supervised = locks.is_held(folder, folder.start_lock, shared=True)
    return Status(
        home=folder.home,
        socket=folder.socket,
        url=_url(folder.socket),
        supervised=supervised,
        reach=probe.reach(folder.socket),
        in_use=locks.is_held(folder, folder.users_lock, shared=False),
        supervisor_pid=supervisor.read_pid(str(folder.supervisor_pid)) if supervised else None,
        server_pid=supervisor.read_pid(str(folder.server_pid)) if supervised else None,
    )


def serve(
    home: str | os.PathLike[str] | None = None, *, durable: bool = False, say: Callable[[str], None] = print
) -> None:
    """Run a folder's server here until SIGINT, SIGTERM or SIGHUP; to be called from the main thread.

    `say` gets the lines for the person who watches. `EmbeddedServerError` when the folder has a server
    already, and when it cannot run or ends by itself. Whoever still uses it then starts it in the background.
    """
    folder = open_folder(find_home(home))
    start_fd = locks.try_start_lock(folder)
    if start_fd is None:
        pid = supervisor.read_pid(str(folder.supervisor_pid))
        raise EmbeddedServerError(
            f"embedded server: {folder.home} has a running server (supervisor pid {pid or 'unknown'}, socket"
            f" {folder.socket}); use that one, or stop it first: it goes by itself soon after its last user"
        )
    try:
        binary = find_binary()
        say(f"server in {folder.home}")
        say(f"connect to {_url(folder.socket)}, or to nothing at all with ECHOMQ_HOME={folder.home}")
        module = find_module()
        failure = _run(folder, binary, start_fd, durable=durable, module=module)
        if module is not None and failure and explain.blames_module(failure):
            say(explain.without_module(binary, module, failure))
            failure = _run(folder, binary, start_fd, durable=durable, module=None)
    finally:
        locks.close(start_fd)
    if failure:
        raise EmbeddedServerError(explain.not_started(folder, binary, failure))
    say("server stopped")


def _run(folder: Folder, binary: str, start_fd: int, *, durable: bool, module: Path | None) -> str:
    return supervisor.Supervisor(
        home=str(folder.home),
        socket=folder.socket,
        binary=binary,
        start_fd=start_fd,
        idle_s=None,
        durable=durable,
        module=str(module or ""),
    ).run()


def _url(socket: str) -> str:
    return f"unix://{quote(socket)}"
