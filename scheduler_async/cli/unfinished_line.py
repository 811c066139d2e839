"""Standard output that remembers whether its last line is complete. A handler may print text without a newline."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from scheduler_async.cli.printing import put


class _Watched:
    """A text stream that remembers whether the text so far ends within a line. It has all methods of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_unfinished = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write *text*, and remember how it ends."""
        if text:
            self.is_unfinished = not text.endswith("\n")
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write *lines*, which have their own ends."""
        for line in lines:
            self.write(line)


def watch_stdout() -> None:
    """Watch what handlers print from now on. Call it before a program is loaded that has handlers."""
    sys.stdout = _Watched(sys.stdout)


def end_line() -> None:
    """Complete the line that a handler has left unfinished, so that the next text begins on a line of its own."""
    stdout: object = sys.stdout
    if isinstance(stdout, _Watched) and stdout.is_unfinished:
        put("")
        stdout.flush()  # the report may go to stderr, which is not buffered
