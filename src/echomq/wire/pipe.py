"""One connection's order of calls and replies, without I/O: what both faces share.

What stays true, whatever the server answers:

* replies meet their calls in the order of sending; a call whose caller has gone still takes its reply;
* a call that answered `NOSCRIPT` never ran. All such calls of a flight are sent again, in their order and
  after one `SCRIPT LOAD` a script, once every call that was sent with them has its answer. Nothing submitted
  later overtakes them, and nothing that ran runs twice;
* a native command that its server leaves to the script, or does not know, never ran either: it is sent again in
  the same way, as the script; a queue whose claims or settlements it leaves there sends them there at once for a while;
* the calls of a queue run in the order of sending, but for entries that mind no order. A command that may be left to
  its script goes as the script at once where another call of its queue is right behind it. Behind one that may not run
  at first all the same, the others of its queue wait for its answer;
* what the server's `limits` do not allow is not sent: a call with too long a word is refused alone, and what
  would be too much at once waits until all that was sent has its answer.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import DisconnectedError, EchoMQError, ServerError, UnexpectedReplyError, from_reply
from echomq.protocol.scripts import Script
from echomq.wire import dialect
from echomq.wire.handshake import Terms
from echomq.wire.limits import Limits, too_large
from echomq.wire.resp import NOT_YET, Answer, ErrorReply, HiredisError, Push, pack, raw, reader

_MAX_SENDS: Final = 3
"""A script that is unknown again after so many loads is being flushed as fast as it is loaded."""

_ALL: Final = object()

_CONFIRMED: Final[dict[Reply, str]] = {b"subscribe": "SUBSCRIBE", b"unsubscribe": "UNSUBSCRIBE"}


class Sink(Protocol):
    """Where a call's answer goes: a future, or a slot that a thread looks into."""

    def done(self) -> bool:
        """Whether nobody waits for it any more."""
        ...


S = TypeVar("S", bound=Sink)


class Entry(Generic[S]):
    """One call on its way. `deadline` is on the face's own clock and came of `timeout`; None is no limit.

    `sink` is None for what the pipe itself sent. `native` tells whether `packed` is the native command, `ordered`
    whether it may not overtake others.
    """

    __slots__ = ("call", "deadline", "native", "ordered", "packed", "sink", "timeout")

    def __init__(
        self,
        call: Call[object],
        sink: S | None,
        packed: bytes,
        timeout: float | None = None,
        deadline: float = float("inf"),
        native: bool = False,
        ordered: bool = True,
    ) -> None:
        self.call = call
        self.sink = sink
        self.packed = packed
        self.timeout = timeout
        self.deadline = deadline
        self.native = native
        self.ordered = ordered

    def turn(self) -> None:
        """Say it on the other wire."""
        self.native = not self.native
        self.packed = pack(self.call, native=self.native)


def outcome(call: Call[object], answer: Answer) -> object:
    """What the caller gets: the decoded value, or an `EchoMQError` (returned, not raised)."""
    if isinstance(answer, ErrorReply):
        return refusal(call, answer)
    try:
        return call.decode(answer)
    except Exception as error:  # noqa: BLE001  (a decoder's bug must not cost the other calls their replies)
        return unreadable(call, answer, error)


def refusal(call: Call[object], answer: ErrorReply) -> ServerError:
    """What the caller gets when the server refused."""
    return from_reply(answer.text, verb=call.verb, subject=call.subject, token=call.token)


def unreadable(call: Call[object], answer: Answer, error: Exception) -> EchoMQError:
    """What the caller gets when its decoder failed."""
    if isinstance(error, EchoMQError):
        return error
    # Its beginning is enough: it may be long, and hold payloads.
    unread = UnexpectedReplyError(f"{call.verb} {call.subject}: cannot read {answer!r:.200}", reply=f"{answer!r:.200}")
    unread.__cause__ = error
    return unread


def lost(call: Call[object], address: str, reason: str, *, sent: bool = True) -> DisconnectedError:
    """The error of a call whose answer will not come."""
    what = f"{call.verb} {call.subject}".strip()
    if not sent:
        return DisconnectedError(f"{what}: not sent, the connection to {address} was lost ({reason})", sent=False)
    return DisconnectedError(
        f"{what}: the connection to {address} was lost before the answer came ({reason}); the call may have run "
        "and is not repeated",
        sent=True,
    )


class Pipe(Generic[S]):
    """The calls of one connection: what was sent, what has to be sent again, and what the server pushes."""

    __slots__ = (
        "_doubts",
        "_left",
        "_load_errors",
        "_ran",
        "_reader",
        "_room",
        "_sends",
        "broken",
        "full",
        "limits",
        "missing",
        "native",
        "pushes",
        "refused",
        "sent",
        "yields",
    )

    def __init__(self) -> None:
        self._reader = reader()
        self._doubts: dict[str, object] = {}  # by queue: what is on its way, and may not run at first
        self._left = dialect.Left()
        self._ran: tuple[set[Script | None], set[Script | None]] = ({None}, {None})  # surely run: scripts, commands
        self._load_errors: dict[str, str] = {}
        self._sends: dict[Entry[S], int] = {}
        self._room = 0
        self.limits = Limits()
        """What the server takes; the handshake learns it."""
        self.native: frozenset[Script] = frozenset()
        """The scripts that go as native commands; the handshake learns them."""
        self.yields = False
        """Whether a native command that the server turns out to lack is given up for its script."""
        self.sent: deque[Entry[S]] = deque()
        """On the wire, oldest first."""
        self.missing: list[Entry[S]] = []
        """Never run: without their script, or left to it by their native command; oldest first."""
        self.full = False
        """Whether something waits only for the answers to what was sent."""
        self.refused: list[tuple[Entry[S], EchoMQError]] = []
        """Calls that were not sent, and why; the face takes them."""
        self.pushes: list[list[Reply]] = []
        """What the server sent without being asked; the face takes them."""
        self.broken = ""
        """Why the stream cannot be read any further."""

    def agree(self, terms: Terms) -> None:
        """Take over what the handshake has learnt."""
        self.limits, self.native, self.yields = terms.limits, terms.native, terms.yields
        self._ran[False].update(terms.loaded)

    def take(self, unsent: deque[Entry[S]]) -> bytes:
        """What to write now; takes from `unsent` what may leave, drops what nobody waits for."""
        sent, doubts = self.sent, self._doubts
        if not sent:
            self._room = self.limits.flight
            self.full = False
            doubts.clear()
        elif self.missing or self.full:
            return b""
        out = self._again() if self.missing else []
        longest, room, native, left, ran = self.limits.string, self._room, self.native, self._left, self._ran
        while unsent:
            entry = unsent.popleft()
            if entry.sink is not None and entry.sink.done():
                continue
            if (entry.call.script in native and not (left and left.takes(entry.call))) is not entry.native:
                entry.turn()
            if entry.native and entry.ordered and unsent and self._is_followed(entry, unsent[0]):
                entry.turn()
            if doubts and self._behind(entry):
                unsent.appendleft(entry)
                self.full = True
                break
            size = len(entry.packed)
            if size > longest and (error := too_large(entry.call, self.limits)) is not None:
                self.refused.append((entry, error))
                continue
            if size > room and sent:
                unsent.appendleft(entry)
                self.full = True
                break
            room -= size
            sent.append(entry)
            out.append(entry.packed)
            if entry.call.script not in ran[entry.native]:
                self._doubt(entry)
        self._room = room
        return out[0] if len(out) == 1 else b"".join(out)

    def _again(self) -> list[bytes]:
        """What never ran, with the scripts that it lacked before it."""
        sent = self.sent
        again = [entry for entry in self.missing if entry.sink is None or not entry.sink.done()]
        self.missing = []
        self._load_errors.clear()
        for script in dict.fromkeys(entry.call.script for entry in again if entry in self._sends):
            if script is not None:
                load = raw("SCRIPT", "LOAD", script.source)
                sent.append(Entry(load, None, pack(load)))
        sent.extend(again)
        for entry in again:
            if entry.call.script not in self._ran[entry.native]:
                self._doubt(entry)
        out = [entry.packed for entry in sent]
        self._room -= sum(map(len, out))
        return out

    def feed(self, data: bytes) -> list[tuple[Entry[S], Answer]]:
        """The answers that `data` completes, each with its call; `broken` says if the stream ended there."""
        done: list[tuple[Entry[S], Answer]] = []
        gets, sent, sends, ran = self._reader.gets, self.sent, self._sends, self._ran
        try:
            self._reader.feed(data)
            while (reply := gets()) is not NOT_YET:
                if isinstance(reply, Push):
                    self._pushed(reply, done)
                    continue
                if not sent:
                    self.broken = f"the server sent {reply!r} without being asked"
                    break
                entry = sent.popleft()
                if isinstance(reply, ErrorReply):
                    if not self._is_final(entry, reply):
                        continue
                elif entry.call.script not in ran[entry.native]:
                    self._prove(entry)
                if sends:
                    sends.pop(entry, None)
                if entry.sink is not None:
                    done.append((entry, reply))
        except (HiredisError, TypeError) as error:
            # TypeError: a map or set whose members cannot be hashed.
            self.broken = f"the server's reply cannot be read ({error})"
        return done

    def _is_final(self, entry: Entry[S], error: ErrorReply) -> bool:
        """Whether the caller has to see this error; a call that never ran for want of a command or script is resent."""
        if entry.sink is None:
            self._load_errors[str(entry.call.args[-1])] = error.text
            return True
        script = entry.call.script
        if entry.native:
            if not dialect.is_left_to_script(error.text):
                if not (self.yields and dialect.is_missing(error.text)):
                    return True
                self.native = dialect.without(self.native, script, error.text)
            else:
                self._left.note(entry.call)
            entry.turn()
            self.missing.append(entry)
            return False
        if script is None or not error.text.startswith("NOSCRIPT"):
            return True
        if refusal := self._load_errors.get(script.source):
            error.args = (f"{error.text} SCRIPT LOAD of {script.name} answered: {refusal}",)
            return True
        sends = self._sends.pop(entry, 0) + 1
        if sends >= _MAX_SENDS:
            return True
        self._sends[entry] = sends
        self._ran[False].intersection_update((None,))  # whoever flushes one flushes all
        self.missing.append(entry)
        return False

    def _is_followed(self, entry: Entry[S], following: Entry[S]) -> bool:
        """Whether a command that may be left to its script is not the last of its queue in this flight."""
        call = entry.call
        return call.script in dialect.leaving() and dialect.queue_of(call) == dialect.queue_of(following.call)

    def _behind(self, entry: Entry[S]) -> bool:
        """Whether a call of its queue is on its way that may not run at first, and it would."""
        script = entry.call.script
        return entry.ordered and self._doubts.get(dialect.queue_of(entry.call), script) is not script

    def _doubt(self, entry: Entry[S]) -> None:
        """It may not run at first: until it has its answer, its queue waits, but for what lacks the same script."""
        script = entry.call.script
        if entry.ordered and entry.call.keys:
            all_wait = entry.native and script in dialect.leaving()
            self._doubts.setdefault(dialect.queue_of(entry.call), _ALL if all_wait else script)

    def _prove(self, entry: Entry[S]) -> None:
        """It has run: the next one will too, except for a command that is left to its script now and then."""
        script = entry.call.script
        if not (entry.native and script in dialect.leaving()):
            self._ran[entry.native].add(script)

    def _pushed(self, push: list[Reply], done: list[tuple[Entry[S], Answer]]) -> None:
        # A SUBSCRIBE is answered by a push, in its turn among the replies.
        if push[0] in _CONFIRMED and self.sent and self.sent[0].call.command == _CONFIRMED[push[0]]:
            done.append((self.sent.popleft(), None))
        else:
            self.pushes.append(push)
