"""APScheduler 3.11 with the job store that it has by default, in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from apscheduler.jobstores.memory import MemoryJobStore

from racing import apscheduler3


class Contestant(apscheduler3.Contestant):
    def _store(self, path: Path) -> Any:  # noqa: ARG002 (it has no file)
        return MemoryJobStore()
