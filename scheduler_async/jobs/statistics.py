"""Statistics of runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from scheduler_async.jobs.enums import Outcome, Trigger
from scheduler_async.jobs.run import RunRow


@dataclass(frozen=True, kw_only=True)
class RunStats:
    """Statistics of a job's runs. Durations and delays are in milliseconds, or None without data."""

    total: int
    """How many runs have ended."""
    counts: Mapping[str, int]
    """How many occurrences had each outcome, including skipped occurrences."""
    success_rate: float | None
    """The share of successes among all successes and failures."""
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    delay_p50_ms: float | None
    delay_p95_ms: float | None
    last_run_at: datetime | None


def stats_of(rows: Sequence[RunRow]) -> RunStats:
    """Return the statistics of *rows*. Delays count only first attempts, because retries are late on purpose."""
    runs = [row for row in rows if row.attempt > 0 and row.outcome is not None]
    counts: dict[str, int] = {}
    for row in rows:
        if row.outcome is not None:
            counts[row.outcome.value] = counts.get(row.outcome.value, 0) + (row.missed or 1)
    durations = sorted(row.duration_ms for row in runs if row.duration_ms is not None)
    delays = sorted(
        row.delay_ms
        for row in runs
        if row.delay_ms is not None and row.attempt == 1 and row.trigger is not Trigger.MANUAL
    )
    good = sum(row.outcome in (Outcome.SUCCESS, Outcome.NOOP) for row in runs)
    judged = good + sum(row.outcome is not None and row.outcome.is_failure for row in runs)
    started = [row.started_at for row in runs if row.started_at is not None]
    return RunStats(
        total=len(runs),
        counts=counts,
        success_rate=good / judged if judged else None,
        mean_ms=sum(durations) / len(durations) if durations else None,
        p50_ms=_percentile(durations, 50),
        p95_ms=_percentile(durations, 95),
        delay_p50_ms=_percentile(delays, 50),
        delay_p95_ms=_percentile(delays, 95),
        last_run_at=max(started, default=None),
    )


def _percentile(values: Sequence[float], percent: int) -> float | None:
    """Return a percentile of the sorted *values* by the nearest-rank method. Return None without values."""
    return values[max(-(-len(values) * percent // 100) - 1, 0)] if values else None
