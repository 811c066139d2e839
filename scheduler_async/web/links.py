"""Relative links, which work under any prefix and behind any proxy, and names as segments of a path. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

_ESCAPES = {"~": "~0", "/": "~1", ".": "~d"}
_MEANINGS = {"0": "~", "1": "/", "d": "."}


def segment_of(name: str) -> str:
    """Return *name* as one segment of a path, as JSON Pointer escapes it, and with "~d" for every dot.

    Servers and proxies decode %2F, and remove "." and "..". So names that contain these are written without them.

    >>> segment_of("a/b?.txt")
    'a~1b%3F~dtxt'
    """
    escaped = "".join(_ESCAPES.get(letter, letter) for letter in name)
    return quote(escaped.encode("utf-8", "surrogatepass"), safe="~")


def name_of(segment: str) -> str | None:
    """Return the name that a decoded *segment* of a path stands for; None if it stands for none.

    >>> name_of("a~1b?~dtxt")
    'a/b?.txt'
    """
    first, *rest = segment.split("~")
    if any(part[:1] not in _MEANINGS for part in rest):
        return None
    return first + "".join(_MEANINGS[part[0]] + part[1:] for part in rest)


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
        path = "/".join(segment_of(str(name)) for name in names)
        return f"{self.root}{path}{'?' if given else ''}{urlencode(given)}"

    def file(self, path: str) -> str:
        """Return the link to a file of the page, whose *path* is as it is: `file("static/page.css")`."""
        return f"{self.root}{path}"
