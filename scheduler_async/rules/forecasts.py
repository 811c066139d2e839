"""How many occurrences lie ahead in each hour, from a sample of jobs and the pace of those that run often. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from scheduler_async.jobs.job import Job
from scheduler_async.rules.explaining import MAX_UPCOMING, upcoming
from scheduler_async.rules.terms import Room, Rules
from scheduler_async.timekeeping.instants import HOUR, Micros, to_micros

# So many occurrences of a job are computed, and more if there is time. It goes on at their pace.
MOST_OF_A_JOB = 48
# So many occurrences are computed in all. Jobs with the same schedule go on at the pace of the first of them.
MOST_OF_ALL = 2_000
# A preview ends after so many occurrences, whatever follows. That of a running job has one less.
LAST_KNOWN = MAX_UPCOMING - 1


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

    @property
    def total(self) -> int:
        """How many occurrences there are."""
        return int(sum(self.hours.values()))


def forecast(jobs: Sequence[Job], weight: float, now: Micros, until: Micros) -> Forecast:
    """Return the occurrences of *jobs* before *until*. Each of them stands for *weight* jobs."""
    first = now - now % HOUR
    totals: dict[Micros, float] = dict.fromkeys(range(first, max(until, first), HOUR), 0)
    by_schedule: dict[str, Pace] = {}
    paces: list[Pace] = []
    computed: list[tuple[int, Job]] = []
    left = MOST_OF_ALL
    for job in jobs:
        schedule = job.schedule.json_text()
        if left > 0:
            pace = by_schedule[schedule] = pace_of(job, now, until)
            left -= 1 + min(pace.total, MOST_OF_A_JOB)
            computed.append((len(paces), job))
            paces.append(pace)
        elif schedule in by_schedule:
            paces.append(by_schedule[schedule])
    # With few jobs, there is time to compute more of those that run often: they may rest at night.
    for place, job in sorted(computed, key=lambda one: paces[one[0]].total):
        if not paces[place].is_exact and paces[place].total < left:
            paces[place] = pace_of(job, now, until, min(left, LAST_KNOWN))
            left -= paces[place].total
    for pace in paces:
        for hour, number in pace.hours.items():
            if hour in totals:
                totals[hour] += number
    is_exact = weight == 1 and len(computed) == len(jobs) and all(pace.is_exact for pace in paces)
    weight *= len(jobs) / max(len(paces), 1)  # the others are taken to run as often
    return Forecast(hours={hour: round(number * weight) for hour, number in totals.items()}, is_exact=is_exact)


def pace_of(job: Job, now: Micros, until: Micros, most: int = MOST_OF_A_JOB) -> Pace:
    """Return the occurrences of *job* by hour. If there are *most* or more, the last ones are estimated."""
    hours: dict[Micros, float] = {}
    try:
        runs = upcoming(job, now, until - 1, Room(), Rules())
        times = [to_micros(run.at) for run in islice(runs, most)]
    except Exception:  # a schedule that no longer computes has no occurrences
        return Pace(hours, is_exact=True)
    for at in times:
        hours[at - at % HOUR] = hours.get(at - at % HOUR, 0) + 1
    if len(times) < most or times[-1] <= times[0]:
        return Pace(hours, is_exact=True)
    per_hour = (len(times) - 1) * HOUR / (times[-1] - times[0])
    last = times[-1] - times[-1] % HOUR
    hours[last] += per_hour * (min(last + HOUR, until) - times[-1]) / HOUR
    for hour in range(last + HOUR, until, HOUR):
        hours[hour] = per_hour * (min(hour + HOUR, until) - hour) / HOUR
    return Pace(hours, is_exact=False)
