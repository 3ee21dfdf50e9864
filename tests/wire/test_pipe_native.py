"""Native commands among the calls of one connection, without a socket (protocol §5, Native twins)."""

from __future__ import annotations

from collections import deque

import pytest

from echomq.protocol.call import Call
from echomq.protocol.replies import as_int
from echomq.protocol.scripts import Script, script
from echomq.wire.handshake import Terms
from echomq.wire.limits import Limits
from echomq.wire.pipe import Entry, Pipe
from echomq.wire.resp import ErrorReply, pack, raw
from support.scripted import NOSCRIPT, Waiter

PROMOTE, DELAY, CLAIM = script("promote"), script("delay"), script("claim")
NATIVE = frozenset({PROMOTE, DELAY})

LANE = b"-EMQSTATE promote lane not native\r\n"
UNKNOWN = b"-ERR unknown command 'EMQ.PROMOTE', with args beginning with: '2'\r\n"
FORBIDDEN = b"-NOPERM User mail has no permissions to run the 'emq.promote' command\r\n"


def pipe_on(native: frozenset[Script] = NATIVE, *, yields: bool = True) -> Pipe[Waiter]:
    pipe: Pipe[Waiter] = Pipe()
    pipe.agree(Terms(Limits(), native, yields))
    return pipe


def entry(what: Script | None, name: str, *, ordered: bool = False) -> Entry[Waiter]:
    """A call as a caller packs it who knows nothing of the connection."""
    command = "" if what else "GET"
    call = Call("run", (f"emq:{{q}}:{name}",), (), as_int, script=what, command=command, subject=name)
    return Entry(call, Waiter(), pack(call), ordered=ordered)


def said(each: Entry[Waiter], *, native: bool) -> bytes:
    return pack(each.call, native=native)


def answers(pipe: Pipe[Waiter], data: bytes) -> list[tuple[str, object]]:
    return [
        (each.call.subject, answer.text if isinstance(answer, ErrorReply) else answer)
        for each, answer in pipe.feed(data)
    ]


def test_a_script_with_a_twin_goes_as_the_command_and_others_as_they_are() -> None:
    promote, claim, get = entry(PROMOTE, "p"), entry(CLAIM, "c"), entry(None, "g")
    sent = pipe_on().take(deque([promote, claim, get]))
    assert sent == said(promote, native=True) + said(claim, native=False) + said(get, native=False)
    assert b"EMQ.PROMOTE" in sent


def test_what_was_packed_for_a_native_connection_goes_as_the_script_on_one_without_the_command() -> None:
    waiting = [entry(PROMOTE, "p"), entry(DELAY, "d")]
    for each in waiting:
        each.turn()
    sent = pipe_on(frozenset({DELAY})).take(deque(waiting))
    assert sent == said(waiting[0], native=False) + said(waiting[1], native=True)


@pytest.mark.parametrize("yields", [True, False])
def test_what_is_left_to_the_script_is_sent_again_in_order_with_nothing_newer_before_it(yields: bool) -> None:
    pipe = pipe_on(yields=yields)
    p1, get, d, p2 = entry(PROMOTE, "p1"), entry(None, "get"), entry(DELAY, "d"), entry(PROMOTE, "p2")
    pipe.take(deque([p1, get, d, p2]))
    newer = deque([entry(PROMOTE, "newer")])
    assert answers(pipe, LANE) == []
    assert pipe.take(newer) == b""
    assert answers(pipe, b":7\r\n-EMQSTATE delay lane not native\r\n:2\r\n") == [("get", 7), ("p2", 2)]
    again = said(p1, native=False) + said(d, native=False) + said(entry(PROMOTE, "newer"), native=True)
    assert pipe.take(newer) == again, "no script is loaded, and the next call is native again"
    assert answers(pipe, b":3\r\n:1\r\n:0\r\n") == [("p1", 3), ("d", 1), ("newer", 0)]
    assert not pipe.sent
    assert not pipe.missing


def test_a_script_that_the_server_lacks_in_turn_is_loaded_for_the_call_that_was_left_to_it() -> None:
    pipe = pipe_on()
    p, c = entry(PROMOTE, "p"), entry(CLAIM, "c")
    pipe.take(deque([p, c]))
    assert answers(pipe, LANE + NOSCRIPT) == []
    load_claim, load_promote = (pack(raw("SCRIPT", "LOAD", each.source)) for each in (CLAIM, PROMOTE))
    assert pipe.take(deque()) == load_claim + said(p, native=False) + said(c, native=False)
    assert answers(pipe, b"$2\r\nab\r\n" + NOSCRIPT + b":5\r\n") == [("c", 5)]
    assert pipe.take(deque()) == load_promote + said(p, native=False)
    assert answers(pipe, b"$2\r\nab\r\n:4\r\n") == [("p", 4)]


@pytest.mark.parametrize("error", [UNKNOWN, FORBIDDEN], ids=["unknown", "forbidden"])
def test_auto_gives_up_a_command_that_is_not_there_and_runs_its_calls_as_scripts(error: bytes) -> None:
    pipe = pipe_on()
    p1, p2, d = entry(PROMOTE, "p1"), entry(PROMOTE, "p2"), entry(DELAY, "d")
    pipe.take(deque([p1, p2, d]))
    assert answers(pipe, error + error + b":1\r\n") == [("d", 1)]
    p3, d2 = entry(PROMOTE, "p3"), entry(DELAY, "d2")
    again = [said(each, native=False) for each in (p1, p2, p3)]
    others = error == FORBIDDEN  # where one is unknown that was there, the module has gone
    assert pipe.take(deque([p3, d2])) == b"".join(again) + said(d2, native=others)
    assert bool(pipe.native) is others
    assert answers(pipe, b":1\r\n:2\r\n:3\r\n:4\r\n") == [("p1", 1), ("p2", 2), ("p3", 3), ("d2", 4)]


@pytest.mark.parametrize("error", [UNKNOWN, FORBIDDEN], ids=["unknown", "forbidden"])
def test_wire_6_tells_the_caller_that_a_command_is_not_there(error: bytes) -> None:
    pipe = pipe_on(yields=False)
    pipe.take(deque([entry(PROMOTE, "p")]))
    [(_, text)] = answers(pipe, error)
    assert text == error[1:].decode().strip()
    assert not pipe.missing


def test_refusals_of_a_native_command_and_unknown_plain_commands_reach_the_caller() -> None:
    pipe = pipe_on()
    pipe.take(deque([entry(DELAY, "d"), entry(None, "g"), entry(CLAIM, "c"), entry(DELAY, "k")]))
    texts = ["EMQSTATE delay not active", "ERR unknown command 'GET'", "EMQSTATE x not native", "ERR x not native"]
    found = answers(pipe, b"".join(b"-" + text.encode() + b"\r\n" for text in texts))
    assert [text for _, text in found] == texts


def test_a_caller_that_left_before_its_script_was_sent_is_not_run() -> None:
    pipe = pipe_on()
    p = entry(PROMOTE, "p")
    pipe.take(deque([p]))
    pipe.feed(LANE)
    assert p.sink is not None
    p.sink.left = True
    assert pipe.take(deque()) == b""


OFTEN = frozenset({PROMOTE, CLAIM})


def test_claims_that_a_queue_has_left_to_the_script_go_there_at_once_and_are_tried_again_later() -> None:
    pipe = pipe_on(OFTEN)
    pipe.take(deque([entry(CLAIM, "c")]))
    answers(pipe, LANE)
    pipe.take(deque())
    assert answers(pipe, b":1\r\n") == [("c", 1)]
    commands = 0
    for _ in range(130):
        each = entry(CLAIM, "later")
        sent = pipe.take(deque([each]))
        commands += sent == said(each, native=True)
        assert answers(pipe, b":1\r\n") == [("later", 1)]
    assert commands == 66
    other = entry(PROMOTE, "p")
    assert pipe.take(deque([other])) == said(other, native=True)


def test_another_queue_is_not_held_to_it() -> None:
    pipe = pipe_on(OFTEN)
    pipe.take(deque([entry(CLAIM, "c")]))
    answers(pipe, LANE)
    pipe.take(deque())
    answers(pipe, b":1\r\n")
    call = Call("run", ("emq:{other}:pending",), (), as_int, script=CLAIM)
    each = Entry(call, Waiter(), pack(call))
    assert pipe.take(deque([each])) == said(each, native=True)


# The order of a queue's calls


def test_what_may_be_left_goes_as_the_script_where_its_queue_goes_on() -> None:
    pipe = pipe_on()
    pipe.agree(Terms(Limits(), NATIVE, yields=True, loaded=(PROMOTE, CLAIM)))
    p, c, d = entry(PROMOTE, "p", ordered=True), entry(CLAIM, "c", ordered=True), entry(DELAY, "d", ordered=True)
    assert pipe.take(deque([p, c, d])) == said(p, native=False) + said(c, native=False) + said(d, native=True)


def test_behind_what_may_be_left_its_queue_waits_for_the_answer_and_others_do_not() -> None:
    pipe = pipe_on()
    p, get = entry(PROMOTE, "p", ordered=True), entry(None, "get", ordered=True)
    assert pipe.take(deque([p])) == said(p, native=True)
    elsewhere = Call("get", ("emq:{other}:x",), (), as_int, command="GET", subject="elsewhere")
    other = Entry(elsewhere, Waiter(), pack(elsewhere))
    waiting = deque([other, get])
    assert pipe.take(waiting) == other.packed
    assert list(waiting) == [get]
    assert pipe.take(waiting) == b""
    assert answers(pipe, LANE + b":5\r\n") == [("elsewhere", 5)]
    assert pipe.take(waiting) == said(p, native=False), "it may lack its script, too"
    assert pipe.take(waiting) == b""
    assert answers(pipe, b":1\r\n") == [("p", 1)]
    assert pipe.take(waiting) == get.packed


def test_a_script_that_has_run_holds_nobody_up_until_the_server_has_lost_it() -> None:
    pipe: Pipe[Waiter] = Pipe()

    def flight() -> list[Entry[Waiter]]:
        return [entry(CLAIM, "c", ordered=True), entry(CLAIM, "c2", ordered=True), entry(None, "get", ordered=True)]

    c, c2, get = flight()
    waiting = deque([c, c2, get])
    assert pipe.take(waiting) == c.packed + c2.packed
    assert answers(pipe, b":1\r\n:2\r\n") == [("c", 1), ("c2", 2)]
    assert pipe.take(waiting) == get.packed
    assert answers(pipe, b":3\r\n") == [("get", 3)]
    assert pipe.take(deque(flight())) == c.packed + c2.packed + get.packed
    assert answers(pipe, NOSCRIPT + NOSCRIPT + b":3\r\n") == [("get", 3)]
    load = pack(raw("SCRIPT", "LOAD", CLAIM.source))
    assert pipe.take(last := deque([entry(None, "last", ordered=True)])) == load + c.packed + c2.packed
    assert answers(pipe, b"$2\r\nab\r\n:1\r\n:2\r\n") == [("c", 1), ("c2", 2)]
    assert pipe.take(last) == pack(raw("GET", "emq:{q}:last"))


def test_what_minds_no_order_neither_waits_nor_is_waited_for() -> None:
    pipe = pipe_on()
    p, get = entry(PROMOTE, "p"), entry(None, "get", ordered=True)
    assert pipe.take(deque([p, get])) == said(p, native=True) + get.packed
    ordered, loose = entry(DELAY, "d", ordered=True), entry(None, "loose")
    assert pipe.take(deque([ordered])) == said(ordered, native=True)
    assert pipe.take(deque([loose])) == loose.packed
