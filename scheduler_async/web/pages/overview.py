"""The overview: whether it works, what needs attention, the runs per hour, what runs and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from starlette.responses import Response

from scheduler_async.jobs.pages import Concern, ConcernKind, Count, Counts
from scheduler_async.jobs.run import RunRow
from scheduler_async.shielding import side_by_side
from scheduler_async.web.pages import hours, lines, sight
from scheduler_async.web.pages.cares import Cares, cares_of
from scheduler_async.web.pages.job_zones import zones_of
from scheduler_async.web.pages.kinds import Kind
from scheduler_async.web.pages.moments import Moments
from scheduler_async.web.pages.next_runs import next_runs
from scheduler_async.web.pages.room import page_that_fits, weight_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

MOST_CONCERNS = 500  # as many as are looked for
ROWS, NEWEST = 10, 40
STORY = 90  # characters
ROOM_FOR_NEXT = 14_000  # bytes


@dataclass(frozen=True)
class Figure:
    """A number of the strip, which leads to the list of what it counts."""

    count: Count
    word: str
    link: str
    kind: Kind | None


async def overview(visit: Visit) -> Response:
    """Show what is going on."""
    scheduler, namespaces = visit.scheduler, visit.access.namespaces
    moments = moments_of(visit)
    now = moments.now
    async with side_by_side() as ask:
        # A thread looks ahead while the store answers the other questions.
        planned = ask.create_task(scheduler.planned(until=hours.end_of(now), namespaces=namespaces))
        mark = await scheduler.mark(namespaces=namespaces)  # before all that it marks
        counts = ask.create_task(scheduler.counts(namespaces=namespaces))
        concerns = ask.create_task(scheduler.attention(namespaces=namespaces, limit=MOST_CONCERNS))
        tally = ask.create_task(
            scheduler.tally(since=now - timedelta(hours=hours.BACK), namespaces=namespaces, by=("hour", "outcome"))
        )
        running = ask.create_task(_running(visit))
        coming = ask.create_task(_coming(visit, moments))
        latest = ask.create_task(_latest(visit))
    seen = [sight.concern_for(visit, one) for one in concerns.result()]
    found = cares_of(seen, visit.links)
    rows = [*running.result(), *latest.result()]
    names = {(row.namespace, row.job_id) for row in rows} | found.jobs
    zones = await zones_of(visit, moments, names)
    by_hour = hours.hours_of(tally.result().items, planned.result(), now)
    return show(
        visit,
        "overview.html",
        moments,
        mark=mark,
        counts=counts.result(),
        state=state_of(seen, found, counts.result()),
        figures=figures_of(visit, counts.result()),
        cares=found.rows,
        zones=zones,
        hours=by_hour,
        chart=hours.chart(by_hour, now, moments.zone()),
        axis=hours.axis_of(by_hour, now, moments.zone()),
        zone_name=f"{now.astimezone(moments.zone()):%Z}",
        tallest=hours.tallest(by_hour),
        is_exact=planned.result().exact,
        coming=coming.result(),
        going=lines.runs_of(running.result(), moments, zones, STORY),
        latest=lines.runs_of(latest.result(), moments, zones, STORY),
    )


async def _running(visit: Visit) -> list[RunRow]:
    """Return the runs in progress of some jobs."""
    jobs = (await visit.scheduler.jobs_page(status="running", namespaces=visit.access.namespaces, limit=ROWS)).items
    found = await visit.scheduler.recent_runs([(job.namespace, job.id) for job in jobs], n=3) if jobs else []
    return sight.rows_for(visit, [row for rows in found for row in rows if row.outcome is None][:ROWS])


async def _latest(visit: Visit) -> list[RunRow]:
    """Return the last runs that have ended. They are among the newest ones, unless very many are in progress."""
    page = await visit.scheduler.runs_page(namespaces=visit.access.namespaces, limit=NEWEST)
    return sight.rows_for(visit, [row for row in page.items if row.outcome is not None][:ROWS])


async def _coming(visit: Visit, moments: Moments) -> list[lines.JobLine]:
    """Return the lines of the jobs that run next."""
    page = await page_that_fits(
        lambda limit: visit.scheduler.jobs_page(status="idle", namespaces=visit.access.namespaces, limit=limit),
        ROWS,
        lambda job: 700 + weight_of(visit.links.to("jobs", job.namespace, job.id)),
        ROOM_FOR_NEXT,
    )
    times = await next_runs(visit, page.items)
    return [lines.job_line(job, moments, at) for job, at in zip(page.items, times, strict=True) if at is not None]


def state_of(concerns: list[Concern], cares: Cares, counts: Counts) -> tuple[Kind, str, str]:
    """Return the state in a word and a sentence: it works, it needs a look, or nothing can run."""
    if any(one.kind is ConcernKind.NO_SCHEDULER for one in concerns):
        return Kind.BAD, "No scheduler", "No scheduler is running on this store, so no job starts."
    if concerns:
        return Kind.LATE, "Works", f"Needs attention: {cares.sentence}."
    if not counts.total.n:
        return Kind.OK, "Ready", "There are no jobs yet."
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
