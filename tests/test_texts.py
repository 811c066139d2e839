"""Text from outside: whatever it is, and whatever its class does, it is storable and short."""

from __future__ import annotations

import json
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.texts import (
    CUT,
    LONGEST,
    describe_error,
    escaped,
    json_text,
    message_of,
    name_of_class,
    storable,
    traceback_of,
)

MEGABYTES = 3_000_000


class Shouting(str):
    """A string that redefines what strings do."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    __len__ = __eq__ = __hash__ = __format__ = encode = isascii = __str__  # type: ignore[assignment]


class Meta(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class Hostile(Exception, metaclass=Meta):  # noqa: N818
    """An exception that raises its own kind of trouble wherever it is touched."""

    trouble: BaseException = ValueError("no words")

    def raises(self, *_: object) -> Any:
        raise self.trouble

    __str__ = __repr__ = __bool__ = __eq__ = __len__ = __hash__ = raises
    __class__ = __traceback__ = __cause__ = __context__ = __notes__ = property(raises)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("", "", id="nothing"),
        pytest.param("Räksmörgås €", "Räksmörgås €", id="well-formed"),
        pytest.param("a\ud800b", "a\\ud800b", id="half a character"),
        pytest.param("a" * LONGEST, "a" * LONGEST, id="as long as it may be"),
        pytest.param("a" * (LONGEST + 1), "a" * (LONGEST - len(CUT.encode())) + CUT, id="one character too long"),
        pytest.param(Shouting("hello"), "hello", id="a subclass"),
    ],
)
def test_text_is_kept_as_far_as_it_can_be(text: str, kept: str) -> None:
    found = storable(text)

    assert type(found) is str
    assert found == kept


@given(st.text(st.characters(), min_size=1, max_size=8), st.integers(LONGEST // 32, LONGEST))
def test_every_text_fits_and_says_if_it_was_cut(part: str, count: int) -> None:
    whole = part * count

    found = storable(whole)

    assert len(found.encode()) <= LONGEST
    escaped = whole.encode("utf-8", "backslashreplace").decode()
    assert found == escaped or (found.endswith(CUT) and escaped.startswith(found.removesuffix(CUT)[:-6]))


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError):
        storable(7)  # type: ignore[arg-type]


@pytest.mark.parametrize("trouble", [ValueError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exception_is_described_whatever_its_class_does(trouble: BaseException) -> None:
    error = Hostile()
    error.trouble = trouble

    assert name_of_class(type(error)) == "Hostile"
    assert message_of(error) == f"(no message: its __str__ raised {type(trouble).__name__})"
    assert describe_error(error) == f"Hostile: (no message: its __str__ raised {type(trouble).__name__})"
    assert traceback_of(error)


def test_a_long_message_is_cut_with_its_class_in_front() -> None:
    found = describe_error(ValueError("x" * MEGABYTES))

    assert found.startswith("ValueError: xxx")
    assert found.endswith(f"x{CUT}")
    assert len(found.encode()) <= LONGEST


def test_an_exception_without_a_message_is_described_by_its_class() -> None:
    assert describe_error(KeyError()) == "KeyError"


def test_a_traceback_is_as_python_prints_it() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        lines = traceback_of(error).splitlines()

    assert lines[0] == "Traceback (most recent call last):"
    assert "KeyError: 'first'" in lines
    assert lines[-1] == "ValueError: second"


def test_a_traceback_can_begin_below_a_folder() -> None:
    """If all calls are in that folder, none is left out."""
    try:
        json.loads("{")
    except ValueError as error:
        whole, below, same = (traceback_of(error, below=path) for path in ("/nowhere/", __file__, "/"))

    assert f'File "{__file__}"' in whole
    assert f'File "{__file__}"' not in below
    assert f'File "{json.__file__}"' in below
    assert same == whole


def test_a_long_traceback_is_cut() -> None:
    error = ValueError("x" * MEGABYTES)
    error.__cause__ = KeyError("y" * MEGABYTES)

    found = traceback_of(error)

    assert len(found.encode()) <= LONGEST
    assert found.endswith(CUT)


# ---------------------------------------------------------------- characters that control a reader

CONTROLS = [
    char for char in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
]
DIRECTIONS = [chr(number) for number in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)]


def test_nothing_that_controls_a_reader_is_left() -> None:
    every = "".join((*CONTROLS, *DIRECTIONS))

    assert escaped(every).isprintable()
    assert json_text(every).isprintable()


@pytest.mark.parametrize("text", ["", "plain", "größer, 日本　語, \N{PILE OF POO}, \N{NO-BREAK SPACE}", "a\\nb"])
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\ud800", r"\ud800"),
    ],
)
def test_an_escape_says_what_it_was(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_lines_may_be_kept() -> None:
    assert escaped("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(
    value=st.recursive(
        st.text(st.characters(exclude_categories=[])) | st.integers(), lambda more: st.dictionaries(st.text(), more)
    )
)
def test_json_is_the_same_value_however_it_is_escaped(value: object) -> None:
    for indent in (None, 2):
        text = json_text(value, indent)

        assert json.loads(text) == value
        assert escaped(text, keep="\n") == text, "nothing is left to be escaped"
