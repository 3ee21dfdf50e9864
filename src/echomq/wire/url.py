"""What a URL says about a server: `Target`, parsed once, with nothing secret in any text it shows.

    valkey://  redis://      [user[:password]@]host[:port][/database]
    valkeys:// rediss://     the same over TLS
    unix://                  [user[:password]@]/path/to.sock

Options after `?`: `db`, `wire` (`4`, `6` or `auto`), `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`
(`required` or `none`) and `ssl_check_hostname` (`true` or `false`; also without the `ssl_`).
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from echomq.identity.errors import InvalidInputError
from echomq.wire.dialect import Wire, check_wire

DEFAULT_PORT: Final = 6379
MAX_DATABASE: Final = 2**31 - 1
"""What SELECT can count to; how many a server has is for its own settings."""

_PLAIN: Final = ("valkey", "redis")
_SECURE: Final = ("valkeys", "rediss")
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_OPTIONS: Final = ("db", "wire", *_TLS_OPTIONS)
_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, slots=True)
class TLS:
    """How to trust a server, and how to be trusted by it."""

    ca_certs: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    verify: bool = True
    check_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """The context these options mean; `InvalidInputError` names the file that cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_certs)
        except (OSError, ssl.SSLError) as error:
            raise InvalidInputError(f"ssl_ca_certs={self.ca_certs!r} cannot be read: {error}") from error
        if not (self.verify and self.check_hostname):
            context.check_hostname = False
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.certfile is not None:
            try:
                context.load_cert_chain(self.certfile, self.keyfile)
            except (OSError, ssl.SSLError) as error:
                raise InvalidInputError(
                    f"ssl_certfile={self.certfile!r} with ssl_keyfile={self.keyfile!r} cannot be used: {error}"
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class Target:
    """One server as a connector reaches it: a host and port, or the path of a Unix socket."""

    host: str = "localhost"
    port: int = DEFAULT_PORT
    path: str | None = None
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TLS | None = None
    wire: Wire | None = None

    @property
    def address(self) -> str:
        """Where the server is, as shown to people and never with a password."""
        if self.path is not None:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_url(url: str) -> Target:
    """The `Target` that `url` names, or `InvalidInputError` that says what is allowed."""
    if not isinstance(url, str):
        raise InvalidInputError(f"a server's URL must be str, not {type(url).__name__}")
    shown = _shown(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # The error's own text may hold a piece of the password.
        raise InvalidInputError(
            f"{shown!r} is not a server's URL: host or port cannot be read (in a user or password, "
            "write the characters :/?#[]@ percent-encoded)"
        ) from None
    if parts.scheme not in (*_PLAIN, *_SECURE, "unix") or not url.lower().startswith(parts.scheme + "://"):
        raise InvalidInputError(
            f"{shown!r} is not a server's URL: it must begin with valkey://, redis://, valkeys://, rediss:// or unix://"
        )
    if parts.fragment:
        raise InvalidInputError(f"{shown!r} holds a '#': in a user or password write it as %23")
    options = _options(parts, shown)
    user, password = _credentials(parts)
    wire = check_wire(options["wire"], f"{shown!r}: wire=") if "wire" in options else None
    if parts.scheme == "unix":
        if parts.hostname or port is not None:
            raise InvalidInputError(f"{shown!r}: a Unix socket's path is absolute, as in unix:///run/valkey.sock")
        path = unquote(parts.path)
        if path in ("", "/") or "\0" in path:
            raise InvalidInputError(f"{shown!r} names no socket: write unix:///path/to.sock")
        database = _database("", options, shown)
        return Target(path=path, database=database, user=user, password=password, wire=wire)
    if not parts.hostname:
        raise InvalidInputError(f"{shown!r} names no host: write {parts.scheme}://host:port/database")
    if port == 0:
        raise InvalidInputError(f"{shown!r}: port 0 cannot be connected to; 1 to 65535 are allowed")
    return Target(
        host=unquote(parts.hostname),
        port=DEFAULT_PORT if port is None else port,
        database=_database(parts.path, options, shown),
        user=user,
        password=password,
        tls=_tls(options, shown) if parts.scheme in _SECURE else None,
        wire=wire,
    )


def _shown(url: str) -> str:
    """`url` without what may be secret: credentials and options."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "(a text without ://)" if "@" in url else url
    credentials, at, place = rest.rpartition("@")
    place = place.partition("?")[0].partition("#")[0]
    return f"{scheme}://{'***@' if at and credentials else ''}{place}"


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    # An empty pair, as in redis://:@host, means none.
    return user, password or None


def _options(parts: SplitResult, shown: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        known = f"ssl_{name}" if name == "check_hostname" else name
        if known not in _OPTIONS:
            raise InvalidInputError(f"{shown!r}: unknown option {name!r}; allowed are {', '.join(_OPTIONS)}")
        if known in options:
            raise InvalidInputError(f"{shown!r}: option {name!r} is given twice")
        if known in _TLS_OPTIONS and parts.scheme not in _SECURE:
            raise InvalidInputError(f"{shown!r}: option {name!r} needs TLS: begin with valkeys:// or rediss://")
        options[known] = value
    return options


def _database(path: str, options: dict[str, str], shown: str) -> int:
    stated = {text for text in (path.strip("/"), options.get("db", "")) if text}
    if len(stated) > 1:
        raise InvalidInputError(f"{shown!r} names two databases: use either /0 or ?db=0")
    text = stated.pop() if stated else "0"
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdigit()) or len(digits) > 10 or int(digits) > MAX_DATABASE:
        raise InvalidInputError(f"{shown!r}: database {text[:40]!r} must be a number from 0 to {MAX_DATABASE}")
    return int(digits)


def _tls(options: dict[str, str], shown: str) -> TLS:
    requirement = options.get("ssl_cert_reqs", "required")
    if requirement not in ("required", "none"):
        raise InvalidInputError(f"{shown!r}: ssl_cert_reqs={requirement!r}; 'required' and 'none' are allowed")
    check = options.get("ssl_check_hostname", "true")
    if check.lower() not in _BOOLEANS:
        raise InvalidInputError(f"{shown!r}: ssl_check_hostname={check!r}; 'true' and 'false' are allowed")
    certfile, keyfile = options.get("ssl_certfile"), options.get("ssl_keyfile")
    if keyfile and not certfile:
        raise InvalidInputError(f"{shown!r}: ssl_keyfile needs its ssl_certfile")
    return TLS(
        ca_certs=options.get("ssl_ca_certs") or None,
        certfile=certfile or None,
        keyfile=keyfile or None,
        verify=requirement == "required",
        check_hostname=_BOOLEANS[check.lower()],
    )
