"""Text that anyone may have written: what a terminal or a log would obey is made visible. Pure."""

from __future__ import annotations

import json
import re

# Control characters (C0, DEL, C1), halves of surrogate pairs, line and paragraph separators, and what formats text
# without being seen: above all, what reverses the direction of a line.
_UNSEEN = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f]"
)


def escaped(text: str, keep: str = "") -> str:
    r"""Return *text* with every character that controls its reader written as an escape, such as \x1b or \u202e.

    Those in *keep* stay as they are.
    """
    if text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _python_escape(found[0]), text)


def json_text(value: object, indent: int | None = None) -> str:
    """Return *value* as JSON in which the same characters are escaped: every program reads it as the same value."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # They stand in strings, but for the newlines of an indented text.
    return _UNSEEN.sub(lambda found: "\n" if found[0] == "\n" else json.dumps(found[0])[1:-1], text)


def _python_escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
