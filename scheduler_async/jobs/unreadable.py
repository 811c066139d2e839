"""Problems that prevent a store from reading a job."""

from __future__ import annotations

from collections.abc import Sequence


class Unreadable(ValueError):  # noqa: N818 - more often used as a value than raised
    """A problem in a column of a row. Two problems with the same text are equal."""

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
"""The beginning of the `disabled_reason` of a job whose description cannot be read."""


def reason_of(problems: Sequence[Unreadable]) -> str:
    """Return the `disabled_reason` of a job whose description has these *problems*."""
    return f"{UNREADABLE}{problems[0]}"
