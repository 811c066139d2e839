"""Convert text to the form that PostgreSQL can store, and back. It stores any character except NUL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from scheduler_async.jobs.job import JobState
from scheduler_async.stores.codec import STATE_FIELDS, Row, state_values
from scheduler_async.stores.columns import STATE_TEXTS

_TEXTS: Final = tuple(map(STATE_FIELDS.index, STATE_TEXTS))

# PostgreSQL text cannot contain NUL. This replaces it, and is not an assigned character itself.
ESCAPE: Final = "\uffff"
_escaped = re.compile(f"{ESCAPE}(.)", re.DOTALL)


def kept(text: str) -> str:
    """Return *text* in the form that PostgreSQL can store."""
    if "\0" in text or ESCAPE in text:
        text = text.replace(ESCAPE, ESCAPE * 2).replace("\0", f"{ESCAPE}0")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def original(text: str | None) -> str | None:
    """Return the original of a stored text."""
    if text is None or ESCAPE not in text:
        return text
    return _escaped.sub(lambda found: "\0" if found[1] == "0" else found[1], text)


def kept_values(values: Iterable[object]) -> list[object]:
    """Return the parameters of a query, with text in the form that PostgreSQL can store."""
    return [kept(value) if isinstance(value, str) else value for value in values]


def maybe_kept(text: str | None) -> str | None:
    """Return *text* in the form that PostgreSQL can store, or None."""
    return None if text is None else kept(text)


def state_columns(values: Sequence[Any]) -> Row:
    """Return the columns of a state with their original text."""
    columns = list(values)
    for number in _TEXTS:
        columns[number] = original(columns[number])
    return tuple(columns)


def stored_state(state: JobState) -> list[Any]:
    """Return the columns of a state in their stored form."""
    columns = state_values(state)
    for number in _TEXTS:
        if columns[number] is not None:
            columns[number] = kept(columns[number])
    return columns
