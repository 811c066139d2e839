"""Long texts, cut to fit a terminal. Pure."""

from __future__ import annotations

# How many characters of a long text are shown: in a line of a table, and where it is all there is to read.
SHORT_TEXT, LONG_TEXT = 200, 1_000


def shortened(text: str, most: int) -> str:
    """Return *text*, or its first *most* characters and a note of how long it is."""
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()}… ({size(len(text.encode(errors='replace')))}, --json shows all)"


def size(count: int) -> str:
    """Return a number of bytes in words: "812 bytes", "1.5 KiB", "64 KiB", "4.8 MiB"."""
    if count < 1024:
        return f"{count} bytes"
    amount, unit = (count / 1024, "KiB") if count < 1024**2 else (count / 1024**2, "MiB")
    return f"{amount:.0f} {unit}" if amount >= 10 or amount == round(amount) else f"{amount:.1f} {unit}"
