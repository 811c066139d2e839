"""How many occurrences lie ahead, if there are too many to compute them all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_async import Cron, Every
from scheduler_async.jobs.enums import Status
from scheduler_async.rules import forecasts
from scheduler_async.rules.forecasts import forecast
from scheduler_async.timekeeping.instants import HOUR
from tests.rules.stories import NOON, a_job


def test_jobs_that_are_not_looked_at_count_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job has a schedule of its own, and there is time for two of the twenty."""
    monkeypatch.setattr(forecasts, "MOST_OF_ALL", 20)
    jobs = [a_job(Every(f"{900 + number}s")) for number in range(20)]

    found = forecast(jobs, 1.0, NOON, NOON + 4 * HOUR)

    assert not found.is_exact
    assert 250 <= sum(found.hours.values()) <= 350  # about 20 × 16


def test_a_job_that_rests_at_night_does_so_in_the_forecast_of_a_few_jobs() -> None:
    """Its first 48 occurrences pass in two and a half hours. At their pace, it would run all night."""
    job = a_job(Cron("*/3 6-22 * * *", tz="UTC"))

    found = forecast([job, a_job(Every("5m"))], 1.0, NOON, NOON + 24 * HOUR)

    assert found.is_exact
    by_hour = [found.hours[NOON + number * HOUR] for number in range(24)]
    assert by_hour[1:11] == [32] * 10
    assert by_hour[11:18] == [12] * 7


@pytest.mark.parametrize("is_running", [False, True])
def test_a_job_goes_on_after_the_end_of_its_preview(is_running: bool) -> None:
    """A preview has 1,000 occurrences at most, and a day has 1,440 minutes."""
    job = a_job(Every("1m"))
    if is_running:
        job = replace(job, state=replace(job.state, activity=Status.RUNNING, next_run_at=None))

    found = forecast([job], 1.0, NOON, NOON + 24 * HOUR)

    assert not found.is_exact
    assert all(60 <= found.hours[NOON + number * HOUR] <= 61 for number in range(1, 24)), found.hours
