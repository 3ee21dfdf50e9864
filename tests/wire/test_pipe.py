"""The order of calls and replies on one connection, without a socket."""

from __future__ import annotations

from collections import deque

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import StaleTokenError, UnexpectedReplyError
from echomq.protocol.replies import as_int
from echomq.wire.commands import check_command
from echomq.wire.limits import Limits
from echomq.wire.pipe import Entry, Pipe, outcome
from echomq.wire.resp import ErrorReply, pack, raw
from support.scripted import NOSCRIPT, TextScript, Waiter

A = TextScript("a", "return 1")
B = TextScript("b", "return 2")


def entry(call: Call[int]) -> Entry[Waiter]:
    return Entry(call, Waiter(), pack(call), ordered=False)


def scripted(script: TextScript, name: str) -> Entry[Waiter]:
    return entry(Call("run", (f"emq:{{q}}:{name}",), (), as_int, script=script, subject=name))


def plain(name: str) -> Entry[Waiter]:
    return entry(Call("get", (f"emq:{{q}}:{name}",), (), as_int, command="GET", subject=name))


def subjects(done: list[tuple[Entry[Waiter], Reply | ErrorReply]]) -> list[tuple[str, object]]:
    return [(each.call.subject, answer) for each, answer in done]


def test_replies_meet_calls_in_order_whatever_the_pieces() -> None:
    pipe: Pipe[Waiter] = Pipe()
    assert pipe.take(deque([plain("x"), plain("y")])).count(b"GET") == 2
    assert pipe.feed(b":1\r") == []
    assert subjects(pipe.feed(b"\n:2\r\n")) == [("x", 1), ("y", 2)]


def test_a_call_whose_caller_left_is_not_sent() -> None:
    pipe: Pipe[Waiter] = Pipe()
    x, y = plain("x"), plain("y")
    assert x.sink is not None
    x.sink.left = True
    assert pipe.take(deque([x, y])) == y.packed


def test_a_call_whose_caller_left_after_the_sending_still_takes_its_reply() -> None:
    pipe: Pipe[Waiter] = Pipe()
    x, y = plain("x"), plain("y")
    pipe.take(deque([x, y]))
    assert x.sink is not None
    x.sink.left = True
    assert subjects(pipe.feed(b":1\r\n:2\r\n")) == [("x", 1), ("y", 2)]


def test_what_lacked_its_script_is_sent_again_in_order_after_one_load_each() -> None:
    pipe: Pipe[Waiter] = Pipe()
    a1, b1, get, a2 = scripted(A, "a1"), scripted(B, "b1"), plain("get"), scripted(A, "a2")
    pipe.take(deque([a1, b1, get, a2]))
    newer = deque([plain("newer")])
    assert subjects(pipe.feed(NOSCRIPT)) == []
    assert pipe.take(newer) == b"", "nothing newer leaves before the others have their answers"
    assert subjects(pipe.feed(NOSCRIPT + b":7\r\n")) == [("get", 7)]
    assert pipe.take(newer) == b""
    assert pipe.feed(NOSCRIPT) == []
    load_a, load_b = (pack(raw("SCRIPT", "LOAD", script.source)) for script in (A, B))
    last = newer[0].packed
    assert pipe.take(newer) == load_a + load_b + a1.packed + b1.packed + a2.packed + last
    answers = b"$2\r\nab\r\n$2\r\ncd\r\n:1\r\n:2\r\n:3\r\n:4\r\n"
    assert subjects(pipe.feed(answers)) == [("a1", 1), ("b1", 2), ("a2", 3), ("newer", 4)]
    assert not pipe.sent
    assert not pipe.missing


def test_a_caller_that_left_before_the_second_sending_is_not_run() -> None:
    pipe: Pipe[Waiter] = Pipe()
    a1 = scripted(A, "a1")
    pipe.take(deque([a1]))
    pipe.feed(NOSCRIPT)
    assert a1.sink is not None
    a1.sink.left = True
    assert pipe.take(deque()) == b""
    assert not pipe.sent


# What the server takes


def long(name: str, size: int) -> Entry[Waiter]:
    return entry(Call("set", (f"emq:{{q}}:{name}",), (b"x" * size,), as_int, command="SET", subject=name))


def test_a_flight_that_would_be_too_long_goes_in_several_in_order() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.limits = Limits(flight=1_000)
    a, b, c, d, e = (long(name, 400) for name in "abcde")
    waiting = deque([a, b, c])
    assert pipe.take(waiting) == a.packed + b.packed
    assert (list(waiting), pipe.full) == ([c], True)
    waiting.extend([d, e])
    pipe.feed(b":1\r\n")
    assert pipe.take(waiting) == b"", "nothing leaves before the last answer"
    pipe.feed(b":2\r\n")
    assert pipe.take(waiting) == c.packed + d.packed
    pipe.feed(b":3\r\n:4\r\n")
    assert pipe.take(waiting) == e.packed
    assert not pipe.full


def test_calls_that_come_one_by_one_count_together_until_all_are_answered() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.limits = Limits(flight=1_000)
    for name in "ab":
        assert pipe.take(deque([long(name, 400)]))
    assert pipe.take(deque([long("c", 400)])) == b""
    pipe.feed(b":1\r\n:2\r\n")
    assert pipe.take(deque([long("c", 400)]))


def test_a_call_longer_than_a_flight_goes_alone() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.limits = Limits(flight=1_000)
    small, huge, last = long("small", 1), long("huge", 5_000), long("last", 1)
    waiting = deque([small, huge, last])
    assert pipe.take(waiting) == small.packed
    pipe.feed(b":1\r\n")
    assert pipe.take(waiting) == huge.packed
    pipe.feed(b":1\r\n")
    assert pipe.take(waiting) == last.packed


def test_a_call_with_too_long_a_word_is_refused_alone() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.limits = Limits(string=1_000)
    a, b, c = long("a", 1_000), long("b", 1_001), long("c", 1)
    assert pipe.take(deque([a, b, c])) == a.packed + c.packed
    [(refused, error)] = pipe.refused
    assert refused is b
    assert "set b: the word after 'emq:{q}:b' is 1,001 bytes; the server takes at most 1,000" in str(error)


def test_what_is_sent_again_for_its_script_counts_too() -> None:
    pipe: Pipe[Waiter] = Pipe()
    a = scripted(A, "a")
    pipe.limits = Limits(flight=len(a.packed) + 100)
    pipe.take(deque([a]))
    pipe.feed(NOSCRIPT)
    b = long("b", 100)
    assert b.packed not in pipe.take(deque([b]))
    assert pipe.full


def test_a_script_that_cannot_be_loaded_fails_its_calls_with_the_reason() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.take(deque([scripted(A, "a1")]))
    pipe.feed(NOSCRIPT)
    pipe.take(deque())
    [(_, answer)] = pipe.feed(b"-NOPERM no rights\r\n" + NOSCRIPT)
    assert isinstance(answer, ErrorReply)
    assert "NOPERM no rights" in answer.text


def test_a_script_that_is_flushed_again_and_again_is_given_up() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.take(deque([scripted(A, "a1")]))
    for _ in range(2):
        assert pipe.feed(NOSCRIPT) == []
        pipe.take(deque())
        pipe.feed(b"$2\r\nab\r\n")
    [(_, answer)] = pipe.feed(NOSCRIPT)
    assert isinstance(answer, ErrorReply)


def test_a_plain_command_s_noscript_is_its_own_reply() -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.take(deque([plain("x")]))
    assert len(pipe.feed(NOSCRIPT)) == 1


def test_a_push_answers_a_subscribe_in_its_turn_and_takes_no_reply() -> None:
    pipe: Pipe[Waiter] = Pipe()
    call = raw("SUBSCRIBE", "c")
    subscribe = Entry(call, Waiter(), pack(call))
    pipe.take(deque([plain("x"), subscribe, plain("y")]))
    message = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
    confirmed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    done = pipe.feed(message + b":1\r\n" + confirmed + message + b":2\r\n")
    assert [answer for _, answer in done] == [1, None, 2]
    assert pipe.pushes == [[b"message", b"c", b"m"]] * 2


@pytest.mark.parametrize("data", [b"HTTP/1.1 400\r\n", b":1\r\n:2\r\n", b"~1\r\n*1\r\n:1\r\n%1\r\n*0\r\n:1\r\n"])
def test_a_stream_that_makes_no_sense_is_broken_and_loses_no_earlier_reply(data: bytes) -> None:
    pipe: Pipe[Waiter] = Pipe()
    pipe.take(deque([plain("x")]))
    done = pipe.feed(b":5\r\n" + data)
    assert subjects(done) == [("x", 5)]
    assert pipe.broken


def test_an_outcome_is_a_value_or_a_typed_error() -> None:
    call = Call("complete", ("k",), (), as_int, subject="JOBx", token="3")
    assert outcome(call, 1) == 1
    stale = outcome(call, ErrorReply("EMQSTALE complete token mismatch"))
    assert isinstance(stale, StaleTokenError)
    assert "token 3" in str(stale)
    assert isinstance(outcome(call, []), UnexpectedReplyError)


def test_an_answer_that_cannot_be_read_is_told_by_its_beginning() -> None:
    def decode(reply: Reply) -> int:
        raise KeyError(reply)

    call = Call("look", ("emq:{q}:a",), (), decode, command="GET", subject="q")
    error = outcome(call, [b"x" * 1_000_000] * 3)
    assert isinstance(error, UnexpectedReplyError)
    assert len(str(error)) < 300
    assert len(error.reply) <= 200
    assert str(error).startswith("look q: cannot read [b'xxx")


def test_a_decoder_that_fails_costs_only_its_own_call() -> None:
    def decode(reply: Reply) -> int:
        raise KeyError("nothing there")

    error = outcome(Call("get", ("k",), (), decode, command="GET"), 1)
    assert isinstance(error, UnexpectedReplyError)
    assert isinstance(error.__cause__, KeyError)


@pytest.mark.parametrize("word", [None, True, 1.5 + 2j, ["x"], "\ud800"])
def test_what_cannot_be_sent_is_named_before_anything_is(word: object) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sent"):
        pack(Call("get", ("k",), (word,), as_int, command="GET"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [("SUBSCRIBE", "c"), ("multi",), ("Client", "reply", "OFF"), ("SELECT", 1), ("MONITOR",), ("HELLO", 2)],
)
def test_commands_that_change_the_connection_are_refused(words: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sent on a connector"):
        check_command(words)


@pytest.mark.parametrize("words", [(), (1,), ("",)])
def test_a_command_has_a_name(words: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="begins with its name"):
        raw(*words)
