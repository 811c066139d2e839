"""The list of runs, and the page of a run: how its time passed, what it wrote, and how it ended."""

from __future__ import annotations

import asyncio
import shlex
from datetime import datetime

from starlette.responses import Response

from scheduler_async.errors import JobNotFoundError
from scheduler_async.jobs.enums import Outcome, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.web.errors import ParameterError
from scheduler_async.web.pages import lines, previews, sight, words
from scheduler_async.web.pages.job_zones import zone_of_filter, zones_of
from scheduler_async.web.pages.kinds import OUTCOMES, sign_of_run
from scheduler_async.web.pages.parameters import checked, local_time, whole
from scheduler_async.web.pages.room import page_that_fits, weight_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.pages.waterfall import waterfall
from scheduler_async.web.visit import Visit

PAGE, MOST = 50, 200
NEAR = 60  # runs, to find the one after this


async def runs(visit: Visit) -> Response:
    """Show a part of the run log."""
    query = checked(visit, "id", "namespace", "outcome", "trigger", "since", "until", "after", "limit")
    moments = moments_of(visit)
    zone = await zone_of_filter(visit, moments, query)
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    page = await page_that_fits(
        lambda limit: visit.scheduler.runs_page(
            id=query.get("id"),
            namespace=query.get("namespace"),
            namespaces=visit.access.namespaces,
            outcome=query.get("outcome"),
            trigger=query.get("trigger"),
            since=local_time(query, "since", zone),
            until=local_time(query, "until", zone),
            after=query.get("after"),
            limit=limit,
        ),
        whole(query, "limit", PAGE, most=MOST),
        lambda row: _weight(visit, row),
    )
    rows = sight.rows_for(visit, page.items)
    zones = await zones_of(visit, moments, {(row.namespace, row.job_id) for row in rows})
    return show(
        visit,
        "runs.html",
        moments,
        tab="runs",
        mark=mark,
        page=page,
        lines=lines.runs_of(rows, moments, zones),
        query=query,
        outcomes=[(outcome.value, OUTCOMES[outcome].word) for outcome in Outcome],
        triggers=[(trigger.value, trigger.value.replace("_", " ")) for trigger in Trigger],
        zone_name=f"{moments.now.astimezone(zone):%Z}",
        is_filtered=bool(query.keys() - {"after", "limit"}),
    )


def _weight(visit: Visit, row: RunRow) -> int:
    """Return how many bytes a row takes in the list."""
    link = visit.links.to("jobs", row.namespace, row.job_id)
    name, story = lines.name_of(row.namespace, row.job_id), row.message or row.error or row.progress_message
    return 420 + weight_of(link, name, (story or "")[: words.SHORT])


def number_of(visit: Visit) -> int:
    """Return the number of the run in the path."""
    text = visit.names["run"]
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0):
        raise ParameterError("The number of a run must be a positive whole number.", None, "run")
    return int(text)


async def run(visit: Visit) -> Response:
    """Show a run."""
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    row = await visit.run(number_of(visit))
    job = await _job_of(visit, row)
    moments = moments_of(visit)
    zone = moments.zone(None if job is None else job.schedule)
    may_see = visit.access.payloads
    output = await visit.scheduler.run_output(row.id) if may_see else None
    before, after = await _neighbours(visit, row)
    return show(
        visit,
        "run.html",
        moments,
        tab="runs",
        mark=mark,
        row=row,
        job=job,
        zone=zone,
        name=lines.name_of(row.namespace, row.job_id),
        sign=sign_of_run(row),
        cause=words.cause_of(row),
        reason=words.reason_of(row),
        falls=waterfall(row, moments.now) if row.outcome is not Outcome.SKIPPED else [],
        percent=_percent(row),
        took=lines.took_of(row, moments.now),
        texts=await asyncio.to_thread(previews.of_run, visit, row, output),
        may_see=may_see,
        before=before,
        after=after,
        command=command_for(row),
        lateness=_lateness(row, moments.now),
    )


async def _job_of(visit: Visit, row: RunRow) -> Job | None:
    """Return the job of a run, unless it was removed."""
    try:
        return await visit.job(row.namespace, row.job_id)
    except JobNotFoundError:
        return None


async def _neighbours(visit: Visit, row: RunRow) -> tuple[int | None, int | None]:
    """Return the numbers of the runs of the same job before and after *row*, as far as they are near."""
    found = await visit.scheduler.run_log(row.job_id, namespace=row.namespace, before=row.id, limit=1)
    (recent,) = await visit.scheduler.recent_runs([(row.namespace, row.job_id)], n=NEAR)
    later = [one.id for one in recent if one.id > row.id]
    return (found[0].id if found else None), (min(later) if later else None)


def _percent(row: RunRow) -> int | None:
    if row.progress is None:
        return None
    return round(100 * min(max(row.progress, 0.0), 1.0))


def _lateness(row: RunRow, now: datetime) -> str:
    begun = row.started_at or now
    late = (begun - row.scheduled_for).total_seconds()
    return lines.took_in(max(late, 0.0))


def command_for(row: RunRow) -> str:
    """Return the command line that shows the same."""
    where = () if row.namespace == "default" else ("--namespace", row.namespace)
    options = ("--before", str(row.id + 1), "--limit", "1", "--output", "--traceback")
    return shlex.join(("scheduler-async", "log", row.job_id, *where, *options))
