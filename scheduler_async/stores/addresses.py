"""The address of a store: a file, or the URL of a database; and how to display it without its secrets. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from scheduler_async.errors import SchedulerError, StoreError, quoted

A_STORE: Final = (
    'A store must be the path of a SQLite file such as "jobs.db", ":memory:", or a URL such as "postgresql://host/db".'
)
A_URL: Final = 'A URL looks like "postgresql://user:password@host:5432/database".'
ESCAPES: Final = (
    "Percent-encode special characters in a password: %40 for @, %2F for /, %23 for #, %3F for ?, %20 for a space."
)

DEFAULT_SCHEMA: Final = "scheduler_async"
LARGEST_PORT: Final = 65_535

_SCHEMES = ("postgresql", "postgres")
_SCHEME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*")

# Strings that were meant as a URL. They may contain a password, which a file name would reveal.
_MEANT_AS_URL = re.compile(
    r"""
    .*://                                       # any URL, with whatever before it
    | [\s"']* (postgres|pgsql|sqlite|file)[^/\\]*:  # postgresql:/host, " postgres:host", file:jobs.db
    | .*password\s*=                            # host=db user=ann password=…
    | [\s"']* /? [^/\\]*:[^/\\]*@               # ann:…@host/db
    | [^/\\]*//[^/\\]*:.*@                      # //ann:…@host/db, postgresql;//ann:…@host/db
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

_HOST = r"(\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(:[0-9]*)?"
_HOSTS = re.compile(rf"{_HOST}(,{_HOST})*")
_PORT = re.compile(r":([0-9]+)(?=,|$)")
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")

# The characters between the user name and the host, or the value of an option.
_PASSWORD = re.compile(
    r"""
    ( \w[\w+.-]*:/{1,2}[^\s:/@]*: | (?<![\w.-])[\w.-]+:(?![\\/]) ) (?!password@) \S* (?=@)  # but for our example
    | ( password\s*= ) [^\s&'"]*
    """,
    re.VERBOSE | re.IGNORECASE,
)


def is_url(store: str) -> bool:
    """Return whether *store* is the URL of a database. Otherwise it is the path of a file.

    Raise `SchedulerError` if it looks like a URL that is not supported.
    """
    scheme, separator, _ = store.partition("://")
    if separator and scheme.lower() in _SCHEMES:
        return True
    if not _MEANT_AS_URL.match(store):
        return False
    if separator and _SCHEME.fullmatch(scheme):
        raise SchedulerError(f"Stores of the kind {quoted(scheme)} are not supported. {A_STORE}")
    raise SchedulerError(
        f'The store looks like a URL, but it does not begin with "postgresql://". {A_STORE} '
        'If it is a path, write "./" before it.'
    )


def redacted(text: str) -> str:
    """Return *text* without the passwords in its URLs, even if the URLs are malformed."""
    return _PASSWORD.sub(r"\1\2***", text)


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address of a database."""

    dsn: str = field(repr=False)
    schema: str
    shown: str
    """The URL for display, without the password."""


def read_url(url: str, schema: str | None = None) -> Address:
    """Read the URL of a database. An error never contains any part of a password."""
    from urllib.parse import parse_qsl, unquote, urlencode  # noqa: PLC0415 - a store in a file does not need it

    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    authority, _, database = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if scheme.lower() not in _SCHEMES:
        raise StoreError(f"A PostgreSQL store must be given as a URL. {A_URL}")
    # A second "@" may be part of a password. The text after it would be taken for the name of a host.
    is_plain = url.isprintable() and " " not in url and "#" not in url and "\0" not in unquote(url)
    if not is_plain or url.count("@") > len(at) or not _HOSTS.fullmatch(hosts):
        raise StoreError(f"The URL of the store is not valid. {A_URL} {ESCAPES}")
    if not all(0 < int(port) <= LARGEST_PORT for port in _PORT.findall(hosts)):
        raise StoreError(f"The port in the URL of the store must be a number from 1 to {LARGEST_PORT}. {A_URL}")
    options = parse_qsl(query, keep_blank_values=True)
    given = schema if schema is not None else dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(given):
        raise StoreError(
            f"schema must consist of 1 to 63 lower-case letters, digits and underscores, not {quoted(given)}. "
            "It must not begin with a digit or with pg_."
        )
    others = urlencode([(name, value) for name, value in options if name != "schema"])
    user = login.partition(":")[0]
    shown = f"postgresql://{user}{'@' if user else ''}{hosts}/{database}"
    return Address(
        dsn=f"postgresql://{place}{'?' if others else ''}{others}",
        schema=given,
        shown=shown if given == DEFAULT_SCHEMA else f"{shown}?schema={given}",
    )
