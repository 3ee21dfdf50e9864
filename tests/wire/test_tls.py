"""TLS with an authority of our own, on Debian's Redis 7.0: the Valkey wheels are built without TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from echomq.protocol.errors import ConnectError
from echomq.wire import aconnect, connect
from support.scripted import count
from support.servers import Kind, Server, find_binary, free_port

pytestmark = [
    pytest.mark.skipif(find_binary(Kind.REDIS) is None, reason="no Redis here, the one server built with TLS"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here to make certificates"),
]


@dataclass(frozen=True)
class Authority:
    folder: Path

    def openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def key(self, name: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]

    def found(self) -> None:
        # From Python 3.13 on an authority has to say what its key is for.
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        subject = ["-subj", "/CN=test authority", "-days", "2"]
        self.openssl("req", "-x509", *self.key("ca"), "-out", "ca.pem", *subject, *usage)

    def sign(self, name: str, subject: str) -> None:
        self.openssl("req", *self.key(name), "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.folder / "ext").write_text(f"subjectAltName={subject}\nauthorityKeyIdentifier=keyid\n")
        self.openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.pem", "-days", "2", "-extfile", "ext"),
        )


@dataclass(frozen=True)
class Secured:
    server: Server
    port: int
    folder: Path

    def url(self, **options: str) -> str:
        named = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"} | options
        words = [
            f"{name}={self.folder / value if value.endswith(('.pem', '.key')) else value}"
            for name, value in named.items()
            if value
        ]
        return f"rediss://127.0.0.1:{self.port}?{'&'.join(words)}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    authority.found()
    authority.sign("server", "IP:127.0.0.1")
    authority.sign("client", "DNS:client")
    port = free_port()
    options = ["--tls-port", str(port), "--tls-ca-cert-file", str(folder / "ca.pem")]
    options += ["--tls-cert-file", str(folder / "server.pem"), "--tls-key-file", str(folder / "server.key")]
    with Server(Kind.REDIS, options=options) as server:
        yield Secured(server, port, folder)


def fails(url: str, says: str, context: ssl.SSLContext | None = None, timeout: float = 5) -> None:
    async def opened() -> None:
        await aconnect(url, tls=context, timeout=timeout)

    for attempt in (lambda: connect(url, tls=context, timeout=timeout), lambda: asyncio.run(opened())):
        with pytest.raises(ConnectError) as refusal:
            attempt()
        assert says in str(refusal.value)


async def test_calls_travel_over_tls(secured: Secured, queue: str) -> None:
    big = "x" * 3_000_000
    async with aconnect(secured.url()) as conn:
        assert await asyncio.gather(*(conn.run(count(queue)) for _ in range(500))) == list(range(1, 501))
        assert await conn.execute("ECHO", big) == big.encode()
    with connect(secured.url()) as blocking:
        identity = blocking.execute("CLIENT", "ID")
        assert blocking.run_many(count(queue) for _ in range(500)) == list(range(501, 1001))
        assert blocking.execute("ECHO", big) == big.encode()
        assert [blocking.run(count(queue)) for _ in range(50)] == list(range(1001, 1051))
        # An idle connection is looked at before it is used; TLS's own records are no reason to reconnect.
        assert blocking.execute("CLIENT", "ID") == identity
        with blocking.subscribe(queue) as subscription:
            blocking.execute("PUBLISH", queue, "x")
            message = subscription.get(timeout=40)
            assert message is not None
            assert message.data == b"x"


def test_an_authority_nobody_knows_is_not_trusted(secured: Secured) -> None:
    fails(secured.url(ssl_ca_certs=""), "is not trusted")
    fails(secured.url(ssl_ca_certs="client.pem"), "is not trusted")


def test_a_name_that_is_not_the_server_s_is_not_trusted(secured: Secured) -> None:
    fails(secured.url().replace("127.0.0.1", "localhost"), "is not trusted")
    loose = secured.url(ssl_check_hostname="false").replace("127.0.0.1", "localhost")
    with connect(loose) as conn:
        assert conn.execute("PING") == b"PONG"


def test_verification_can_be_switched_off(secured: Secured) -> None:
    with connect(secured.url(ssl_ca_certs="", ssl_cert_reqs="none")) as conn:
        assert conn.execute("PING") == b"PONG"


def test_a_server_that_asks_for_a_certificate_refuses_without(secured: Secured) -> None:
    fails(secured.url(ssl_certfile="", ssl_keyfile=""), f"127.0.0.1:{secured.port}")


def test_a_context_of_one_s_own_is_used(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.folder / "ca.pem"))
    context.load_cert_chain(secured.folder / "client.pem", secured.folder / "client.key")
    with connect(f"valkeys://127.0.0.1:{secured.port}", tls=context) as conn:
        assert conn.execute("PING") == b"PONG"
    fails(f"valkeys://127.0.0.1:{secured.port}", "is not trusted")


def test_a_server_without_tls_is_named() -> None:
    with Server(tcp=True) as plain:
        fails(plain.tcp_url.replace("valkey://", "valkeys://"), "does it speak TLS?", timeout=2)
