"""How many occurrences lie ahead in each hour, from a sample of jobs and the pace of those that run often. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from scheduler_async.jobs.job import Job
from scheduler_async.rules.explaining import upcoming
from scheduler_async.rules.terms import Room, Rules
from scheduler_async.timekeeping.instants import HOUR, Micros, to_micros

# So many occurrences of a job are computed. It goes on at their pace.
MOST_OF_A_JOB = 48
# So many occurrences are computed in all. Jobs with the same schedule go on at the pace of the first of them.
MOST_OF_ALL = 2_000


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Occurrences by hour."""

    hours: Mapping[Micros, int]
    is_exact: bool


@dataclass(frozen=True)
class Pace:
    """The occurrences of a job by hour, and whether some of them are estimated."""

    hours: Mapping[Micros, float]
    is_exact: bool


def forecast(jobs: Sequence[Job], weight: float, now: Micros, until: Micros) -> Forecast:
    """Return the occurrences of *jobs* before *until*. Each of them stands for *weight* jobs."""
    first = now - now % HOUR
    totals: dict[Micros, float] = dict.fromkeys(range(first, max(until, first), HOUR), 0)
    is_exact = weight == 1
    paces: dict[str, Pace] = {}
    left, counted = MOST_OF_ALL, 0
    for job in jobs:
        schedule = job.schedule.json_text()
        pace = paces.get(schedule) if left <= 0 else None
        if pace is None and left <= 0:
            is_exact = False
            continue
        if pace is None:
            pace = paces[schedule] = pace_of(job, now, until)
            left -= 1 + min(int(sum(pace.hours.values())), MOST_OF_A_JOB)
        else:
            is_exact = False
        counted += 1
        is_exact = is_exact and pace.is_exact
        for hour, number in pace.hours.items():
            if hour in totals:
                totals[hour] += number
    weight *= len(jobs) / max(counted, 1)  # the others are taken to run as often
    return Forecast(hours={hour: round(number * weight) for hour, number in totals.items()}, is_exact=is_exact)


def pace_of(job: Job, now: Micros, until: Micros) -> Pace:
    """Return the occurrences of *job* by hour. If there are many, the last ones are estimated from the others."""
    hours: dict[Micros, float] = {}
    try:
        runs = upcoming(job, now, until - 1, Room(), Rules())
        times = [to_micros(run.at) for run in islice(runs, MOST_OF_A_JOB)]
    except Exception:  # a schedule that no longer computes has no occurrences
        return Pace(hours, is_exact=True)
    for at in times:
        hours[at - at % HOUR] = hours.get(at - at % HOUR, 0) + 1
    if len(times) < MOST_OF_A_JOB or times[-1] <= times[0]:
        return Pace(hours, is_exact=True)
    per_hour = (len(times) - 1) * HOUR / (times[-1] - times[0])
    last = times[-1] - times[-1] % HOUR
    hours[last] += per_hour * (min(last + HOUR, until) - times[-1]) / HOUR
    for hour in range(last + HOUR, until, HOUR):
        hours[hour] = per_hour * (min(hour + HOUR, until) - hour) / HOUR
    return Pace(hours, is_exact=False)
