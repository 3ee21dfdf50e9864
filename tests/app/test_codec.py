"""Codecs between the arguments of a job and its payload: what is stored, and who can read it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from echomq import Codec, EchoMQ, Failure, InvalidInputError, Job, State, jobs, metrics, mint
from echomq.errors import PayloadTooLargeError, SerializationError
from echomq.protocol import survey
from support.apps import burst
from support.servers import Server


class Zip:
    name = "zlib"

    def encode(self, data: bytes, /) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes, /) -> bytes:
        return zlib.decompress(data)


@dataclass(frozen=True)
class Sealed:
    """Encrypts and signs, with what the standard library has."""

    name: str
    key: bytes

    def encode(self, data: bytes, /) -> bytes:
        nonce = os.urandom(16)
        hidden = nonce + self._mixed(nonce, data)
        return hmac.digest(self.key, hidden, "sha256") + hidden

    def decode(self, data: bytes, /) -> bytes:
        if not hmac.compare_digest(hmac.digest(self.key, data[32:], "sha256"), data[:32]):
            raise ValueError("its seal is broken")
        return self._mixed(data[32:48], data[48:])

    def _mixed(self, nonce: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(self.key + nonce).digest(len(data))
        return bytes(a ^ b for a, b in zip(data, stream, strict=True))


def app(server: Server, queue: str, *codecs: Codec, **options: Any) -> EchoMQ:
    return EchoMQ(server.url, default_queue=queue, codec=codecs, **options)


def row(mq: EchoMQ, job: Job[Any]) -> dict[str, bytes]:
    return dict(mq.run(metrics.row(job.queue, job.id)))


def quoted(body: bytes) -> str:
    return json.dumps(b64encode(body).decode())


def with_work(mq: EchoMQ) -> list[object]:
    """An app's jobs, and what they have been called with."""
    seen: list[object] = []

    @mq.job(name="work")
    async def work(text: str, when: timedelta | None = None) -> None:
        seen.append((text, when))

    return seen


def test_the_arguments_are_encoded_and_nothing_else(server: Server, queue: str) -> None:
    with app(server, queue, Zip()) as mq:
        with_work(mq)
        job = mq.jobs["work"].options(max_attempts=7, meta={"trace": 1}).enqueue("a" * 10_000)
        envelope = json.loads(row(mq, job)["payload"])
        body = envelope.pop("body")
        assert envelope == {"v": 1, "job": "work", "codec": "zlib", "max_attempts": 7, "meta": {"trace": 1}}
        assert json.loads(zlib.decompress(b64decode(body, validate=True))) == {"args": ["a" * 10_000], "kwargs": {}}
        assert len(body) < 200


def test_every_way_of_sending_is_read_again(server: Server, queue: str) -> None:
    with app(server, queue, Sealed("2026", b"secret")) as mq:
        seen = with_work(mq)
        work = mq.jobs["work"]
        hour = timedelta(hours=1)
        sent = work.enqueue("one", when=hour)
        mq.enqueue_many([work.s("two"), work.options(lane="acme", expires=hour).s("three", hour)])
        asyncio.run(work.aenqueue("four"))
        assert b"one" not in row(mq, sent)["payload"]
        burst(mq)
        assert sorted(seen, key=str) == [("four", None), ("one", hour), ("three", hour), ("two", None)]


def test_a_key_is_rotated_while_jobs_wait(server: Server, queue: str) -> None:
    old, new = Sealed("2025", b"old"), Sealed("2026", b"new")
    with app(server, queue, old) as before, app(server, queue, new, old) as after:
        with_work(before)
        seen = with_work(after)
        before.jobs["work"].enqueue("sent before")
        job = after.jobs["work"].enqueue("sent after")
        assert json.loads(row(after, job)["payload"])["codec"] == "2026"
        burst(after)
        assert sorted(seen, key=str) == [("sent after", None), ("sent before", None)]


def test_an_app_with_a_codec_reads_what_has_none(server: Server, queue: str) -> None:
    with app(server, queue) as plain, app(server, queue, Zip()) as mq:
        with_work(plain)
        seen = with_work(mq)
        plain.jobs["work"].enqueue("plain")
        burst(mq)
        assert seen == [("plain", None)]


def test_a_worker_without_the_codec_leaves_the_job_to_others_for_a_while(server: Server, queue: str) -> None:
    with app(server, queue, Zip()) as mq, app(server, queue, Sealed("2026", b"new")) as other:
        with_work(mq)
        seen = with_work(other)
        job = mq.jobs["work"].enqueue("zipped")
        burst(other)
        assert job.state() is State.SCHEDULED
        assert row(mq, job).get("failures") is None
        mq.run(jobs.reschedule(queue, job.id, delay_ms=0))
        burst(other, unknown_patience=timedelta(0))
        assert job.state() is State.DEAD
        assert row(mq, job)["last_error"].decode() == (
            "payload is encoded by the codec 'zlib', which this worker does not have; it has '2026'"
        )
        assert seen == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (quoted(b"not zipped"), "the codec 'zlib' cannot decode the body: Error -3"),
        ('"no base64!"', "the codec 'zlib' cannot decode the body"),
        ('""', "the codec 'zlib' cannot decode the body"),
        ("null", "the codec 'zlib' cannot decode the body"),
        ("5", "payload is not an envelope"),
        (quoted(zlib.compress(b"[1]")), "the body, decoded by 'zlib', is not a call"),
        (quoted(zlib.compress(b'{"args":5}')), "the body, decoded by 'zlib', is not a call"),
        (quoted(zlib.compress(b'{"args":[5]}')), "argument 'text' does not fit its annotation"),
        (quoted(zlib.compress(b"{}")), "the arguments do not fit: work(): missing"),
    ],
)
def test_what_cannot_be_decoded_is_buried_with_the_reason(server: Server, queue: str, body: str, why: str) -> None:
    with app(server, queue, Zip()) as mq:
        seen = with_work(mq)
        job_id = mint()
        mq.run(jobs.enqueue(queue, job_id, f'{{"v":1,"job":"work","codec":"zlib","body":{body}}}'))
        burst(mq)
        assert mq.run(metrics.state(queue, job_id)) is State.DEAD
        assert mq.run(metrics.row(queue, job_id))["last_error"].decode().startswith(why)
        assert seen == []


def test_a_forged_body_is_buried(server: Server, queue: str) -> None:
    with app(server, queue, Sealed("2026", b"theirs")) as forger, app(server, queue, Sealed("2026", b"ours")) as mq:
        with_work(forger)
        seen = with_work(mq)
        job = forger.jobs["work"].enqueue("forged")
        burst(mq)
        assert row(mq, job)["last_error"] == b"the codec '2026' cannot decode the body: its seal is broken"
        assert seen == []


def test_the_limit_is_that_of_what_is_sent(server: Server, queue: str) -> None:
    with app(server, queue, Zip(), max_payload=1_000) as mq:
        with_work(mq)
        mq.jobs["work"].enqueue("a" * 100_000)
        with pytest.raises(PayloadTooLargeError, match=r"payload of job 'work' is 1,\d+ bytes; at most 1,000"):
            mq.jobs["work"].enqueue(os.urandom(1_000).hex())


class Broken(Zip):
    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def encode(self, data: bytes, /) -> bytes:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    decode = encode


@pytest.mark.parametrize(
    ("gives", "why"),
    [
        (OSError("no key"), "the arguments of job 'work' cannot be encoded by the codec 'zlib': no key"),
        ("text", "the codec 'zlib' has encoded the arguments of job 'work' as str, not bytes"),
    ],
)
def test_a_codec_that_fails_keeps_the_job_from_being_sent(server: Server, queue: str, gives: Any, why: str) -> None:
    with app(server, queue, Broken(gives)) as mq:
        with_work(mq)
        with pytest.raises(SerializationError, match=why):
            mq.jobs["work"].enqueue("a")
        assert mq.run(metrics.counts(queue)).pending == 0


def test_a_codec_that_decodes_to_something_else_buries_the_job(server: Server, queue: str) -> None:
    with app(server, queue, Zip()) as mq, app(server, queue, Broken("text")) as other:
        with_work(mq)
        with_work(other)
        job = mq.jobs["work"].enqueue("a")
        burst(other)
        assert row(mq, job)["last_error"] == b"the codec 'zlib' has decoded the body as str, not bytes"


@pytest.mark.parametrize(
    ("codec", "why"),
    [
        (5, "a codec is an object with a name, encode"),
        ("zlib", "a codec is an object with a name, encode"),
        (zlib, "a codec is an object with a name, encode"),
        (Zip, "a codec is an object with a name, encode"),
        ([Zip(), 5], "a codec is an object with a name, encode"),
        ([Zip(), Zip()], "two codecs are named 'zlib'"),
        (Sealed("", b"x"), "the name of a codec"),
        (Sealed(5, b"x"), "the name of a codec must be str"),  # type: ignore[arg-type]  # the point of the test
    ],
)
def test_what_is_no_codec_is_refused(codec: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        EchoMQ(codec=codec)


def test_a_follower_that_only_another_worker_knows_is_encoded_all_the_same(server: Server, queue: str) -> None:
    sealed = Sealed("seal", b"key")
    buried: list[Failure] = []
    with app(server, queue, sealed) as newer:
        newer.job(name="work", on_dead="buried", max_attempts=1)(lambda secret: None)
        newer.jobs["work"].after(hours=1).enqueue("x marks the spot").cancel()
    with app(server, queue, sealed) as older:
        older.job(name="work")(lambda secret: None)
        burst(older, unknown_patience=timedelta(hours=1))
        (waits,) = older.run(survey.page(queue, State.SCHEDULED)).jobs
        sent = json.loads(waits.payload)
        assert (sent["job"], sent["codec"], sent.get("args")) == ("buried", "seal", None)
        assert b"marks the spot" not in waits.payload
        older.run(jobs.reschedule(queue, waits.id, delay_ms=0))
    with app(server, queue, sealed) as newer:

        @newer.job(name="buried")
        def bury(told: Failure) -> None:
            buried.append(told)

        burst(newer)
    assert [(each.name, each.args) for each in buried] == [("work", ["x marks the spot"])]


def test_a_follower_that_only_another_worker_knows_is_no_larger_than_others(server: Server, queue: str) -> None:
    with app(server, queue, max_payload=2_000) as mq:
        mq.job(name="work", on_dead="buried")(lambda text: None)
        mq.jobs["work"].after(hours=1).enqueue("x" * 1_500).cancel("y" * 600)
    with app(server, queue, max_payload=2_000) as mq:
        mq.job(name="work")(lambda text: None)
        burst(mq, unknown_patience=timedelta(hours=1))
        (waits,) = mq.run(survey.page(queue, State.SCHEDULED)).jobs
    (told,) = json.loads(waits.payload)["args"]
    assert (told["error"], told["args"]) == (f"cancelled: {'y' * 600}", None)
