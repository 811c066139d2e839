"""Text from users and handlers: formatted safely, storable, limited, and harmless to terminals and logs. Pure."""

from __future__ import annotations

import json
import re
from itertools import dropwhile
from traceback import TracebackException

LONGEST = 64 * 1024  # bytes of UTF-8
CUT = "… (cut at 64 KiB)"

# Longer than the name of any class that a person wrote.
_LONGEST_NAME = 200  # characters


def storable(text: str) -> str:
    """Return *text* in a form that every store can keep: valid Unicode of at most 64 KiB, with a mark if it was cut.

    A lone surrogate, as in a file name that is not UTF-8, becomes an escape sequence.
    """
    if type(text) is not str:
        text = str.__str__(text)  # a subclass may override any method; this call rejects other types
    if len(text) <= LONGEST and text.isascii():
        return text
    data = text[: LONGEST + 1].encode("utf-8", "backslashreplace")
    if len(data) > LONGEST:
        data = data[: LONGEST - len(CUT.encode())]
        return data.decode("utf-8", "ignore") + CUT
    return data.decode()


def name_of_class(kind: type) -> str:
    """Return the name of a class, even if its metaclass overrides the attribute."""
    name: str = _class_name(kind)
    return name[:_LONGEST_NAME]


_class_name = type.__dict__["__name__"].__get__


def message_of(error: BaseException) -> str:
    """Return the message of an exception, even if its `__str__` raises, exits or returns megabytes."""
    try:
        return storable(str(error))
    except BaseException as failure:  # a user's method may raise anything
        return f"(no message: its __str__ raised {name_of_class(type(failure))})"


def describe_error(error: BaseException) -> str:
    """Return the class and the message of an exception, as the last line of a traceback shows them."""
    name, message = name_of_class(type(error)), message_of(error)
    return storable(f"{name}: {message}") if message else name


def traceback_of(error: BaseException, *, below: str | None = None) -> str:
    """Return the traceback of an exception as Python prints it, cut at 64 KiB.

    It begins with the first call outside of the folder *below*, if there is one.
    """
    lines: list[str] = []
    room = LONGEST
    try:
        told = TracebackException.from_exception(error, compact=True)
        if below is not None:
            calls = list(dropwhile(lambda call: call.filename.startswith(below), told.stack))
            told.stack[:] = calls or told.stack
        for line in told.format():
            lines.append(storable(line))
            room -= len(lines[-1])
            if room < 0:
                break
    except BaseException as failure:  # the exception class or a source loader of the user may raise anything
        lines.append(f"(no traceback: formatting it raised {name_of_class(type(failure))})")
    return storable("".join(lines).rstrip("\n"))


# ---------------------------------------------------------------- made visible

# Control characters (C0, DEL, C1), lone surrogates, line and paragraph separators, and invisible formatting characters,
# above all those that reverse the direction of a line.
_UNSEEN = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ud800-\\udfff\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f]"
)


def escaped(text: str, keep: str = "") -> str:
    r"""Return *text* with control characters and invisible characters as escapes, such as \x1b or \u202e.

    The characters in *keep* stay unchanged.
    """
    if text.isprintable():
        return text
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _python_escape(found[0]), text)


def json_text(value: object, indent: int | None = None) -> str:
    """Return *value* as JSON text with the same characters escaped. Every program reads it as the same value."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # The characters occur only inside strings, except for the newlines of an indented text.
    return _UNSEEN.sub(lambda found: "\n" if found[0] == "\n" else json.dumps(found[0])[1:-1], text)


def _python_escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
