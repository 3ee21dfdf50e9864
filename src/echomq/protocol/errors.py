"""Typed errors: what the host refuses, what a server answers, what a socket does (protocol §11)."""

from __future__ import annotations

import re

from echomq.identity.errors import EchoMQError, IdError, InvalidInputError

__all__ = [
    "ConnectError",
    "DisconnectedError",
    "EchoMQError",
    "EmbeddedServerError",
    "FenceError",
    "IdError",
    "InvalidInputError",
    "JobCancelledError",
    "KindError",
    "LockedError",
    "NativeMissingError",
    "OverloadedError",
    "PayloadTooLargeError",
    "QueueNameError",
    "RateError",
    "ServerError",
    "ServerFullError",
    "StaleTokenError",
    "StateError",
    "UnexpectedReplyError",
    "WireError",
    "from_reply",
]


_PASSING = ("LOADING ", "BUSY ", "MASTERDOWN ", "CLUSTERDOWN ", "TRYAGAIN ")


class QueueNameError(InvalidInputError):
    """A queue name that protocol §2 does not allow."""


class PayloadTooLargeError(InvalidInputError):
    """A payload above the limit of what the server accepts as one string."""


class JobCancelledError(EchoMQError):
    """Raised inside a job by `raise_if_cancelled`: the job is to end, and no attempt of it follows."""


class ServerError(EchoMQError):
    """The server refused a call; nothing was written.

    `reply` is the server's own text, whole, whatever its class.
    """

    def __init__(self, message: str, *, reply: str) -> None:
        super().__init__(message)
        self.reply = reply

    @property
    def passes(self) -> bool:
        """Whether the same server may serve the same call later: it loads, is busy, or lacks slots for a while."""
        return self.reply.startswith(_PASSING)


class KindError(ServerError):
    """`EMQKIND`: the id is not a job's."""


class StaleTokenError(ServerError):
    """`EMQSTALE`: the holder's token is no longer the row's, or the row is gone."""


class LockedError(ServerError):
    """`EMQLOCK`: the job is held by a worker."""


class StateError(ServerError):
    """`EMQSTATE`: the job, or the queue, is not in the state that the verb needs."""


class RateError(ServerError):
    """`EMQRATE`: the queue is at a ceiling."""


class ServerFullError(ServerError):
    """The server is at `maxmemory` and refused an admission (protocol §5)."""


class UnexpectedReplyError(ServerError):
    """A reply of a shape that the verb does not have: another client's script, or a bug."""


class WireError(EchoMQError):
    """The call got no answer: the socket, the server or the connector stood in the way."""


class ConnectError(WireError):
    """No connection could be made, or the server refused the handshake."""


class NativeMissingError(ConnectError):
    """The server does not answer the native commands that a connector on wire 6 sends (protocol §5).

    Wire 4 needs none of them; `auto` uses those that a server has.
    """


class DisconnectedError(WireError):
    """The connection was lost before the answer came; the connector never repeats the call.

    `sent` tells whether the call may have run on the server.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class OverloadedError(WireError):
    """More calls than `max_pending` wait on one connector; the call was not sent."""


class FenceError(WireError):
    """The deployment speaks another version of the protocol (protocol §11)."""

    def __init__(self, message: str, *, ours: str, theirs: str) -> None:
        super().__init__(message)
        self.ours = ours
        self.theirs = theirs


class EmbeddedServerError(ConnectError):
    """The embedded server cannot be started, reached or read."""


_CLASSES: dict[str, type[ServerError]] = {
    "EMQKIND": KindError,
    "EMQSTALE": StaleTokenError,
    "EMQLOCK": LockedError,
    "EMQSTATE": StateError,
    "EMQRATE": RateError,
    "OOM": ServerFullError,
}

_ADVICE: dict[str, str] = {
    "token mismatch": "it was claimed again since; its new holder will settle it",
    "job gone": "it has no row any more: it was completed or removed",
    "not active": "it is not in hand: its lease lapsed or another caller has moved it",
    "not scheduled": "it is not on the schedule",
    "not dead": "it is not in the morgue: only a dead job can be given another life",
    "not paused": "queue {subject!r} is not paused: pause it, then try again",
    "active jobs present": "queue {subject!r} has jobs in hand: wait until they have ended, or force it, and "
    "their work is lost",
    "job is locked": "a worker has it in hand: cancel it, or wait until it has ended, then try again",
    "at concurrency ceiling": "queue {subject!r} has as many jobs in hand as its ceiling allows: try again when one "
    "has ended, or raise the ceiling",
    "must be JOB-namespaced": "give the id of a job: it begins with JOB",
    "not of this flow": "the id has a job of its own, whose end would never reach this parent; nothing of the call was "
    "written: give the child an id of its own, or let that job end or remove it",
    "not a parent": "the id has a job that waits for no children; nothing of the call was written: give the parent an "
    "id of its own, or let that job end or remove it",
    "has other children": "the id has a parent that was added with other children; nothing of the call was written: "
    "give the parent an id of its own, or repeat the flow with the ids that it was added with",
}


_NATIVE = re.compile(r"'(emq\.\w+)'", re.IGNORECASE)


def from_reply(text: str, *, verb: str, subject: str = "", token: str = "") -> ServerError:
    """The typed error for a server's error text (protocol §11); an unknown class comes back whole.

    `subject` is the job or queue that the call was about, `token` the attempts count it presented.
    """
    kind = _CLASSES.get(text.split(" ", 1)[0], ServerError)
    where = f"{verb} {subject}".strip()
    held = f" (token {token})" if token else ""
    advice = next((a.format(subject=subject) for words, a in _ADVICE.items() if text.endswith(words)), "")
    if text.startswith("ERR unknown command 'EMQ."):
        advice = "the server has lost its native module: connect with wire='auto' or wire=4, or load it again"
    if text.startswith("NOPERM") and (command := _NATIVE.search(text)):
        advice = f"give the user +{command[1]} (ACL SETUSER), or connect with wire='auto' or wire=4"
    if kind is ServerFullError:
        advice = "the server is at maxmemory: let workers drain, or give it more memory"
    tail = f"; {advice}" if advice else ""
    return kind(f"{where}{held}: {text}{tail}", reply=text)
