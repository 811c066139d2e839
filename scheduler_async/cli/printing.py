"""All that is printed as it is: no matter who wrote it, it does not control the terminal.

What is laid out first is made of `safe_text.Text`, which uses the same escapes.
"""

from __future__ import annotations

import sys

from scheduler_async.escapes import escaped, json_text


def put(text: str, *, stderr: bool = False, keep: str = "") -> None:
    """Print one line. Characters that would control the terminal are escaped, except those in *keep*."""
    print(escaped(text, keep), file=sys.stderr if stderr else sys.stdout, flush=stderr)


def put_output(output: str) -> None:
    """Print what a run wrote, line by line."""
    for line in lines_of(output):
        put(line, keep="\t")


def put_json(value: object) -> None:
    """Print one value for a program to read, laid out."""
    print(json_text(value, indent=2))


def put_json_line(value: object) -> None:
    """Print one of several values for a program to read, each on its own line, as it comes."""
    print(json_text(value), flush=True)


def lines_of(output: str) -> list[str]:
    """Return the lines of what a run wrote, without their ends."""
    return [line.removesuffix("\r") for line in output.removesuffix("\n").split("\n")]
