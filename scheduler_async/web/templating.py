"""The templates of the pages: everything is escaped, and a name that does not exist is an error."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from scheduler_async.texts import escaped


def harmless(value: object) -> object:
    """Return *value* with characters that hide or reverse text made visible. Markup is harmless already."""
    return escaped(value) if type(value) is str else value


def lines_of(text: str) -> Markup:
    """Return *text* of several lines for `<pre>`, with control characters made visible."""
    return escape(escaped(text, keep="\n\t"))


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=PackageLoader("scheduler_async.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=harmless,
    )
    made.filters["lines"] = lines_of
    return made
