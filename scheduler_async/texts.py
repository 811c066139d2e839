"""Text from outside the scheduler: taken safely, storable, bounded, and harmless to terminals and logs. Pure."""

from __future__ import annotations

import json
import re
from traceback import TracebackException

LONGEST = 64 * 1024  # bytes of UTF-8
CUT = "… (cut at 64 KiB)"

# Long enough for any class that a person has named.
_LONGEST_NAME = 200  # characters


def storable(text: str) -> str:
    """Return *text* as every store can keep it: well-formed, and at most 64 KiB long, with a mark if it was cut.

    Half a character, as in a file name that is not UTF-8, is written as an escape sequence.
    """
    if type(text) is not str:
        text = str.__str__(text)  # a subclass may redefine everything; this refuses other types
    if len(text) <= LONGEST and text.isascii():
        return text
    data = text[: LONGEST + 1].encode("utf-8", "backslashreplace")
    if len(data) > LONGEST:
        data = data[: LONGEST - len(CUT.encode())]
        return data.decode("utf-8", "ignore") + CUT
    return data.decode()


def name_of_class(kind: type) -> str:
    """Return the name of a class, even if its metaclass redefines the attribute."""
    name: str = _class_name(kind)
    return name[:_LONGEST_NAME]


_class_name = type.__dict__["__name__"].__get__


def message_of(error: BaseException) -> str:
    """Return the message of an exception, even if its `__str__` raises, exits or returns megabytes."""
    try:
        return storable(str(error))
    except BaseException as failure:  # a method of the user's may raise anything
        return f"its text cannot be had ({name_of_class(type(failure))})"


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an exception, as the last line of a traceback shows them."""
    name, message = name_of_class(type(error)), message_of(error)
    return storable(f"{name}: {message}") if message else name


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception as Python prints it, cut at 64 KiB."""
    lines: list[str] = []
    room = LONGEST
    try:
        for line in TracebackException.from_exception(error, compact=True).format():
            lines.append(storable(line))
            room -= len(lines[-1])
            if room < 0:
                break
    except BaseException as failure:  # the class of the exception, or a loader of source code, is the user's
        lines.append(f"The traceback cannot be had ({name_of_class(type(failure))})")
    return storable("".join(lines).rstrip("\n"))


# ---------------------------------------------------------------- made visible

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
