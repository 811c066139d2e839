"""Characters that control a terminal or forge a line of a log are shown instead."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.escapes import escaped, json_text

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
