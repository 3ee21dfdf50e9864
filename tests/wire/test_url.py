"""Every form of a server's URL, what is refused, and that no text shows a password."""

from __future__ import annotations

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.wire.url import TLS, Target, parse_url


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("valkey://localhost", Target()),
        ("redis://localhost:6380/3", Target(port=6380, database=3)),
        ("redis://h/?db=4", Target(host="h", database=4)),
        ("redis://h/4?db=4", Target(host="h", database=4)),
        ("valkey://10.0.0.1:7000", Target(host="10.0.0.1", port=7000)),
        ("valkey://[::1]:7000/1", Target(host="::1", port=7000, database=1)),
        ("valkey://[fe80::2]", Target(host="fe80::2")),
        ("valkey://ann:s%40c%2Fr%3At@h", Target(host="h", user="ann", password="s@c/r:t")),
        ("valkey://:secret@h", Target(host="h", password="secret")),
        ("valkey://ann@h", Target(host="h", user="ann")),
        ("valkey://:@h", Target(host="h")),
        ("valkeys://h", Target(host="h", tls=TLS())),
        ("rediss://h?ssl_cert_reqs=none", Target(host="h", tls=TLS(verify=False))),
        ("rediss://h?check_hostname=false", Target(host="h", tls=TLS(check_hostname=False))),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem&ssl_check_hostname=true",
            Target(host="h", tls=TLS(ca_certs="/ca.pem", certfile="/c.pem", keyfile="/k.pem")),
        ),
        ("unix:///run/valkey.sock", Target(path="/run/valkey.sock")),
        ("unix:///a%20b/s?db=2", Target(path="/a b/s", database=2)),
        ("unix://ann:secret@/s", Target(path="/s", user="ann", password="secret")),
    ],
)
def test_a_url_names_its_target(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://h", "must begin with valkey://"),
        ("localhost:6379", "must begin with valkey://"),
        ("valkey:h", "must begin with valkey://"),
        ("", "must begin with valkey://"),
        ("valkey://", "names no host"),
        ("valkey:///1", "names no host"),
        ("valkey://h:port", "host or port"),
        ("valkey://h:70000", "host or port"),
        ("valkey://h:0", "port 0"),
        ("valkey://[::1", "host or port"),
        ("valkey://h/one", "database 'one' must be a number"),
        ("valkey://h/-1", "database '-1' must be a number"),
        ("valkey://h/1/2", "database '1/2'"),
        ("redis://h/99999999999999999999", "database '99999999999999999999' must be a number from 0 to 2147483647"),
        ("redis://h/2147483648", "from 0 to 2147483647"),
        ("redis://h?db=" + "9" * 5_000, "from 0 to 2147483647"),
        ("valkey://h/1?db=2", "two databases"),
        ("valkey://h?protocol=2", "unknown option 'protocol'"),
        ("valkey://h?db=1&db=1", "given twice"),
        ("valkey://h?ssl_cert_reqs=none", "needs TLS"),
        ("rediss://h?ssl_cert_reqs=optional", "'required' and 'none'"),
        ("rediss://h?check_hostname=maybe", "'true' and 'false'"),
        ("rediss://h?ssl_keyfile=/k", "needs its ssl_certfile"),
        ("valkey://h#x", "%23"),
        ("unix://", "names no socket"),
        ("unix:///", "names no socket"),
        ("unix://relative/path", "is absolute"),
    ],
)
def test_anything_else_is_refused_and_named(url: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        parse_url(url)
    assert says in str(refusal.value)


def test_only_a_text_is_a_url() -> None:
    with pytest.raises(InvalidInputError, match="must be str, not bytes"):
        parse_url(b"valkey://h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "valkey://ann:hunter2@h:port",
        "valkey://ann:hunter2@h/x",
        "valkey://ann:hunter2@h?nonsense=1",
        "valkey://ann:hun/ter2@h",
        "valkey://ann:hunter2#@h",
        "valkey://ann:hunter2@",
        "http://ann:hunter2@h",
        "unix://ann:hunter2@host/s",
        "valkey://h/1/2?password=hunter2",
        "ann:hunter2@h",
    ],
)
def test_a_refusal_never_shows_the_password(url: str) -> None:
    with pytest.raises(InvalidInputError) as refusal:
        parse_url(url)
    assert "ter2" not in str(refusal.value)
    assert "ter2" not in repr(refusal.value)


def test_a_target_shows_no_password() -> None:
    target = parse_url("valkey://ann:hunter2@[::1]:7")
    assert "hunter2" not in repr(target)
    assert target.address == "[::1]:7"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"ssl_ca_certs='/no/such\.pem'"):
        TLS(ca_certs="/no/such.pem").context()
    with pytest.raises(InvalidInputError, match=r"ssl_certfile='/no/such\.pem'"):
        TLS(certfile="/no/such.pem").context()
