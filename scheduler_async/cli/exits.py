"""How the program ends early: with a sentence on stderr and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

from scheduler_async.cli.printing import put_sentence


def fail(sentence: str, code: int) -> NoReturn:
    """Print an error and end the program: 1 is for a failure, 2 for wrong usage."""
    put_error(sentence)
    sys.exit(code)


def misused(sentence: str) -> NoReturn:
    """Print an error about wrong usage and end the program."""
    fail(sentence, 2)


def put_error(sentence: str) -> None:
    """Print an error, without the passwords of URLs."""
    from scheduler_async.stores.addresses import redacted

    put_sentence(f"Error: {redacted(sentence)}")
