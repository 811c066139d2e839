"""Schedules that users write, on the page: one that fails or is slow harms its own lines alone, and never the loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import httpx
import pytest

from scheduler_async import Every, Schedule
from scheduler_async.schedules import patience
from scheduler_async.testing import VirtualClock
from tests.cast import MINUTE, PATIENCE, NewScheduler, Worker
from tests.web.visitors import page_of, visitor


@dataclass(frozen=True)
class Moody(Schedule):
    """Every ten minutes. It can be told to fail, or to block, and notes which threads ask."""

    kind = "test-page-moody"
    mood: ClassVar[str] = ""
    threads: ClassVar[set[str]] = set()
    end: ClassVar[threading.Event] = threading.Event()  # type: ignore[assignment, misc]

    def next_after(self, now: datetime) -> datetime:
        self.threads.add(threading.current_thread().name)
        if self.mood == "fails":
            raise ZeroDivisionError("no such year")
        if self.mood == "blocks":
            self.end.wait(PATIENCE)
        return now + 10 * MINUTE


MOODY = ["running", "due", "paused", "later"]
PLACES = [
    "",
    "jobs",
    "timeline",
    *(f"jobs/default/{name}" for name in MOODY),
    "jobs/default/later?at=2026-01-05T12:25:00",
    *(f"api/v1/jobs/default/{name}/upcoming" for name in MOODY),
    "api/v1/jobs/default/due/explain",
    "api/v1/jobs/default/later/explain?at=2026-01-05T12:45:00Z",
]


@pytest.fixture
async def anna(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A visitor of a store in which jobs need their schedules in every way, beside a job that is harmless."""
    monkeypatch.setattr(Moody, "mood", "")
    worker.blocks = True
    scheduler = new_scheduler(":memory:")
    await scheduler.start()
    await scheduler.add_job(Moody(), handler="work", id="running")
    await scheduler.add_job(Moody(), handler="missing", id="due")
    await clock.advance("11m", wait_for_runs=False)
    for name in ("paused", "later"):
        await scheduler.add_job(Moody(), handler="missing", id=name)
    await scheduler.pause_job("paused", until="1h")
    await scheduler.add_job(Every("10m"), handler="missing", id="harmless")
    Moody.threads.clear()
    async with visitor(page_of(scheduler)) as client:
        yield client
    Moody.end.set()


@pytest.mark.parametrize("mood", ["", "fails", "blocks"])
async def test_a_bad_schedule_harms_no_page(
    anna: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, mood: str
) -> None:
    """Everybody sees the timeline. An operator opens the page of such a job to learn what is wrong with it."""
    Moody.end.clear()
    monkeypatch.setattr(Moody, "mood", mood)
    monkeypatch.setattr(patience, "PATIENCE", 0.02 if mood == "blocks" else PATIENCE)

    answers = {place: await anna.get(f"/{place}") for place in PLACES}

    assert {place: answer.status_code for place, answer in answers.items()} == dict.fromkeys(PLACES, 200)
    for place in ("", "jobs", "timeline"):
        assert ">harmless<" in answers[place].text
    assert "harmless: planned " in answers["timeline"].text
    assert Moody.threads == {"scheduler_async schedule"}, "the event loop has been asked to wait"


async def test_what_is_known_of_a_schedule_that_fails_is_shown(
    anna: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moody, "mood", "fails")

    later = (await anna.get("/api/v1/jobs/default/later/upcoming")).json()["items"]
    due = (await anna.get("/jobs/default/due")).text

    assert [one["at"] for one in later] == ["2026-01-05T12:21:00Z"]
    assert "its schedule fails: next_after() of the schedule" in due
