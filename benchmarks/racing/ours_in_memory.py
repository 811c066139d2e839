"""scheduler_async, with default settings, in memory."""

from __future__ import annotations

from pathlib import Path

from racing import ours


class Contestant(ours.Contestant):
    async def open(self, path: Path) -> None:  # noqa: ARG002 (it has no file)
        await super().open(Path(":memory:"))
