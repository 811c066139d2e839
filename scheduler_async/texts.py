"""Text from outside the scheduler, such as that of an exception: taken safely, storable, and of bounded size. Pure."""

from __future__ import annotations

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
