"""Relative links, which work under any prefix and behind any proxy, and names as segments of a path. Pure.

Links on pages have letters of all scripts. Browsers send them in ASCII, which takes up to four times as much room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import punctuation
from urllib.parse import quote

_ESCAPES = {"~": "~0", "/": "~1", ".": "~d"}
_MEANINGS = {"0": "~", "1": "/", "d": "."}


def segment_of(name: str) -> str:
    """Return *name* as one segment of a path, as JSON Pointer escapes it, and with "~d" for every dot.

    Servers and proxies decode %2F, and remove "." and "..". So names that contain these are written without them.

    >>> segment_of("a/b?.txt")
    'a~1b%3F~dtxt'
    """
    return address_of(_quoted(_escaped(name)))


def _escaped(name: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in name)


def _quoted(text: str) -> str:
    """Return *text* without what means something else in a link. Letters of all scripts stay, which keeps it short."""
    if text.isascii():
        return quote(text, safe="~")
    return "".join(
        letter if _may_stay(letter) else quote(letter.encode("utf-8", "surrogatepass"), safe="~") for letter in text
    )


def _may_stay(letter: str) -> bool:
    return letter.isprintable() and not letter.isascii()


def address_of(link: str) -> str:
    """Return a *link* of a page in ASCII, as browsers send it, and as headers hold it."""
    return quote(link, safe=punctuation)


def name_of(segment: str) -> str | None:
    """Return the name that a decoded *segment* of a path stands for; None if it stands for none.

    >>> name_of("a~1b?~dtxt")
    'a/b?.txt'
    """
    first, *rest = segment.split("~")
    if any(part[:1] not in _MEANINGS for part in rest):
        return None
    return first + "".join(_MEANINGS[part[0]] + part[1:] for part in rest)


def query_of(values: Mapping[str, str | int]) -> str:
    """Return *values* as the query of a link, with its question mark; nothing if there are none.

    >>> query_of({"text": "a b&c", "limit": 5})
    '?text=a%20b%26c&limit=5'
    """
    pairs = "&".join(f"{_quoted(name)}={_quoted(str(value))}" for name, value in values.items())
    return f"?{pairs}" if pairs else ""


@dataclass(frozen=True)
class Links:
    """Links from a page that is *depth* levels below the root of the application."""

    depth: int

    @property
    def root(self) -> str:
        """The way from here to the root: "./" or "../../"."""
        return "../" * self.depth or "./"

    def to(self, *names: str | int, query: Mapping[str, str | int | None] | None = None) -> str:
        """Return the link to a page, whose path consists of *names*: `to("jobs", "default", "a/b")`.

        >>> Links(2).to("jobs", "default", "a/b", query={"tab": "runs", "after": None})
        '../../jobs/default/a~1b?tab=runs'
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        path = "/".join(_quoted(_escaped(str(name))) for name in names)
        return f"{self.root}{path}{query_of(given)}"

    def file(self, path: str) -> str:
        """Return the link to a file of the page, whose *path* is as it is: `file("static/page.css")`."""
        return f"{self.root}{path}"
