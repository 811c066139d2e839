"""Text printed as it is, without rich. No text from a store can control the terminal.

Text that is laid out first is made of `safe_text.Text`, which uses the same escapes.
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from textwrap import fill

from scheduler_async.texts import escaped, json_text

# In a narrower terminal nothing can be laid out, and the terminal wraps the lines itself.
NARROWEST = 20


def terminal_width() -> int:
    """Return how many columns the terminal has."""
    return max(get_terminal_size().columns, NARROWEST)


def put(text: str, *, stderr: bool = False, keep: str = "") -> None:
    """Print one line. Characters that would control the terminal are escaped, except those in *keep*."""
    print(escaped(text, keep), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def put_sentence(text: str) -> None:
    """Print a sentence on stderr. A terminal shows it wrapped at words."""
    sentence = escaped(text)
    if sys.stderr.isatty():
        sentence = fill(sentence, terminal_width(), break_long_words=False, break_on_hyphens=False)
    print(sentence, file=sys.stderr, flush=True)


def put_output(output: str) -> None:
    """Print the output of a run, line by line."""
    for line in lines_of(output):
        put(line, keep="\t")


def put_json(value: object) -> None:
    """Print one value as indented JSON."""
    print(json_text(value, indent=2))


def put_json_line(value: object) -> None:
    """Print one of several values as a line of JSON, and flush it."""
    print(json_text(value), flush=True)


def lines_of(output: str) -> list[str]:
    """Return the lines of the output of a run, without their ends."""
    return [line.removesuffix("\r") for line in output.removesuffix("\n").split("\n")]
