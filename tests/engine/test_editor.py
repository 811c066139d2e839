"""Edits: user code runs before the transaction, on the event loop, and never on the thread of the database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler_async import Every, Scheduler


class Watched(Mapping[str, str]):
    """Metadata of a class of the user's, which notes the threads that read it."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def __getitem__(self, key: str) -> str:
        self.threads.add(threading.current_thread())
        return key

    def __iter__(self) -> Iterator[str]:
        return iter(["team"])

    def __len__(self) -> int:
        return 1


async def test_an_edit_runs_no_user_code_in_its_transaction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A log handler or a class that takes long, or asks the scheduler, would block the store."""
    scheduler = Scheduler(tmp_path / "jobs.db", min_interval="1m")
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    metadata = Watched()

    with caplog.at_level(logging.WARNING, "scheduler_async"):
        job = await scheduler.update_job("a", schedule=Every(timedelta(seconds=5)), metadata=metadata)
    await scheduler.stop()

    (warning,) = (record for record in caplog.records if "min_interval" in record.getMessage())
    assert warning.thread == threading.main_thread().ident
    assert metadata.threads == {threading.main_thread()}
    assert (job.schedule, job.metadata) == (Every("1m"), {"team": "team"})
