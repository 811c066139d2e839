"""Text for rich without characters that control the terminal. It is measured and laid out as it is shown."""

from __future__ import annotations

from typing import TypeAlias

import rich.text
from rich.style import Style

from scheduler_async.texts import escaped

AnyText: TypeAlias = rich.text.Text
"""For annotations: rich returns this when it copies, wraps or joins a `Text`. Only `Text` is to be constructed."""


class Text(rich.text.Text):
    """Text in which no character controls the terminal, except those in *keep*."""

    def __init__(self, text: str = "", style: str | Style = "", *, keep: str = "", **options: object) -> None:
        super().__init__(escaped(text, keep), style, **options)  # type: ignore[arg-type]

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> Text:
        """Add *text*, and return the whole."""
        super().append(escaped(text) if isinstance(text, str) else text, style)
        return self
