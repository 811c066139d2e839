"""The overview: whether it works, what needs attention, the runs per hour, what runs and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from starlette.responses import Response

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import Concern, Count, Counts
from scheduler_async.web.pages import hours, lines, sight
from scheduler_async.web.pages.kinds import CONCERNS, Kind, Sign
from scheduler_async.web.pages.moments import Moments
from scheduler_async.web.pages.next_runs import next_runs
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

MOST_CONCERNS = 30
ROWS = 10


@dataclass(frozen=True)
class Figure:
    """A number of the strip, which leads to the list of what it counts."""

    count: Count
    word: str
    link: str
    kind: Kind | None


class Care(NamedTuple):
    """A concern, as it is shown."""

    concern: Concern
    sign: Sign
    name: str


async def overview(visit: Visit) -> Response:
    """Show what is going on."""
    scheduler, namespaces = visit.scheduler, visit.access.namespaces
    moments = moments_of(visit)
    now = moments.now
    mark = await scheduler.mark(namespaces=namespaces)
    counts = await scheduler.counts(namespaces=namespaces)
    concerns = [
        sight.concern_for(visit, one)
        for one in await scheduler.attention(namespaces=namespaces, limit=MOST_CONCERNS + 1)
    ]
    tally = await scheduler.tally(
        since=now - timedelta(hours=hours.BACK), namespaces=namespaces, by=("hour", "outcome")
    )
    planned = await scheduler.planned(until=hours.end_of(now), namespaces=namespaces)
    running = await scheduler.jobs_page(status="running", namespaces=namespaces, limit=ROWS)
    coming = await scheduler.jobs_page(namespaces=namespaces, ended=False, limit=2 * ROWS)
    latest = await scheduler.runs_page(namespaces=namespaces, limit=ROWS)
    by_hour = hours.hours_of(tally.items, planned, now)
    return show(
        visit,
        "overview.html",
        moments,
        mark=mark,
        counts=counts,
        state=state_of(concerns, counts),
        figures=figures_of(visit, counts),
        cares=[care_of(one) for one in concerns[:MOST_CONCERNS]],
        has_more=len(concerns) > MOST_CONCERNS,
        hours=by_hour,
        chart=hours.chart(by_hour, now, moments.zone()),
        axis=hours.axis_of(by_hour, now, moments.zone()),
        tallest=hours.tallest(by_hour),
        is_exact=planned.exact,
        coming=await _coming(visit, [job for job in coming.items if not job.is_running][:ROWS], moments),
        going=await _going(visit, running.items, moments),
        latest=lines.runs_of(sight.rows_for(visit, latest.items), moments),
    )


def care_of(concern: Concern) -> Care:
    """Return a concern as it is shown."""
    name = "" if concern.job_id is None else lines.name_of(concern.namespace or "default", concern.job_id)
    return Care(concern, CONCERNS[concern.kind], name)


async def _going(visit: Visit, jobs: tuple[Job, ...], moments: Moments) -> list[lines.RunLine]:
    """Return the runs in progress of *jobs*."""
    found = await visit.scheduler.recent_runs([(job.namespace, job.id) for job in jobs], n=3) if jobs else []
    rows = [row for rows in found for row in rows if row.outcome is None]
    return lines.runs_of(sight.rows_for(visit, rows), moments)


async def _coming(visit: Visit, jobs: list[Job], moments: Moments) -> list[lines.JobLine]:
    """Return the lines of those of *jobs* that have a next run."""
    times = await next_runs(visit, jobs)
    return [lines.job_line(job, moments, at) for job, at in zip(jobs, times, strict=True) if at is not None]


def state_of(concerns: list[Concern], counts: Counts) -> tuple[Kind, str, str]:
    """Return the state in a word and a sentence: it works, it needs a look, or nothing can run."""
    kinds = {one.kind.value for one in concerns}
    if "no_scheduler" in kinds:
        return Kind.BAD, "No scheduler", "No scheduler is running on this store, so no job starts."
    if not counts.total.n:
        return Kind.OK, "Ready", "There are no jobs yet."
    if concerns:
        many = len(concerns) > MOST_CONCERNS
        number = f"More than {MOST_CONCERNS}" if many else str(len(concerns))
        things = "thing needs" if len(concerns) == 1 else "things need"
        return Kind.LATE, "Works", f"{number} {things} attention; everything else runs."
    return Kind.OK, "Works", "Nothing needs attention."


def figures_of(visit: Visit, counts: Counts) -> list[Figure]:
    """Return the numbers of the strip."""

    def jobs(status: str) -> str:
        return visit.links.to("jobs", query={"status": status})

    return [
        Figure(counts.running, "running", jobs("running"), Kind.RUNNING),
        Figure(counts.queued, "queued", jobs("queued"), None),
        Figure(counts.late, "late", jobs("late"), Kind.LATE),
        Figure(counts.failing, "failing", jobs("failing"), Kind.BAD),
        Figure(counts.paused, "paused", jobs("paused"), Kind.PAUSED),
        Figure(counts.disabled, "disabled", jobs("disabled"), None),
        Figure(
            counts.left_out, "left out in 24 h", visit.links.to("runs", query={"outcome": "skipped"}), Kind.LEFT_OUT
        ),
        Figure(counts.total, "jobs", visit.links.to("jobs"), None),
    ]
