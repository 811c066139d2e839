"""What keeps a job from being read from its store."""

from __future__ import annotations

from collections.abc import Sequence


class Unreadable(ValueError):  # noqa: N818 - more often a value than an exception
    """What keeps a row from being read. Two that say the same are equal."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(column, why)
        self.column, self.why = column, why

    def __str__(self) -> str:
        return f"{self.column}: {self.why}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


UNREADABLE = "it cannot be read from the store: "
"""How the reason begins for which a job is disabled whose description cannot be read."""


def reason_of(problems: Sequence[Unreadable]) -> str:
    """Return why a job is disabled whose description has these *problems*."""
    return f"{UNREADABLE}{problems[0]}"
