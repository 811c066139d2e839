"""How the program ends early: one sentence on stderr, and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

from scheduler_async.cli.printing import put


def fail(sentence: str, code: int) -> NoReturn:
    """End the program: it was asked for what makes no sense (2), or what did not work (1)."""
    put_error(sentence)
    sys.exit(code)


def misused(sentence: str) -> NoReturn:
    """End the program, which was asked for what makes no sense."""
    fail(sentence, 2)


def put_error(sentence: str) -> None:
    """Print what went wrong, without the passwords of URLs that were given."""
    from scheduler_async.stores.addresses import redacted

    put(f"Error: {redacted(sentence)}", stderr=True)
