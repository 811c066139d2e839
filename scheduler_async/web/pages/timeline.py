"""The timeline: a day back and a day ahead, a lane for each job, and one for each node."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from anyio.lowlevel import checkpoint
from markupsafe import Markup
from starlette.responses import Response

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import Page
from scheduler_async.jobs.run import RunRow
from scheduler_async.schedules.clock_shifts import changes, seconds_of
from scheduler_async.timekeeping.instants import SECOND, from_micros
from scheduler_async.timekeeping.zones import find_zone
from scheduler_async.web.pages import lanes, lines
from scheduler_async.web.pages.moments import MINE, Moments
from scheduler_async.web.pages.parameters import checked, whole
from scheduler_async.web.pages.room import fitting, weight_of
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

LANES, MOST_LANES = 25, 50
ROWS = 120  # of each job
MOST_NODES = 30
LONGEST_NAME = 26  # characters, which fit beside a lane


class JobLane(NamedTuple):
    """A lane of a job."""

    job: Job
    name: str
    drawing: Markup
    has_more: bool
    """Whether it has more runs in this time than are shown."""


class NodeLane(NamedTuple):
    """A lane of a node."""

    name: str
    drawing: Markup


async def timeline(visit: Visit) -> Response:
    """Show the day before and the day after now."""
    query = checked(visit, "text", "status", "order", "after", "limit")
    namespaces = visit.access.namespaces
    moments = moments_of(visit)
    zone, window = moments.zone(), lanes.Window.around(moments.now)
    mark = await visit.scheduler.mark(namespaces=namespaces)
    page = await _jobs(visit, query, whole(query, "limit", LANES, most=MOST_LANES))
    recent = await visit.scheduler.recent_runs([(job.namespace, job.id) for job in page.items], n=ROWS)
    coming = await visit.scheduler.coming_runs(page.items, until=window.last, n=lanes.MOST_PLANNED)
    found = []
    for job, rows, times in zip(page.items, recent, coming, strict=True):
        found.append(_lane(job, rows, times, window, moments))
        await checkpoint()  # the scheduler goes on between two lanes
    count = fitting(_weight(visit, lane) for lane in found)
    if count < len(found):
        page, found = await _jobs(visit, query, count), found[:count]
    return show(
        visit,
        "timeline.html",
        moments,
        tab="timeline",
        mark=mark,
        page=page,
        query=query,
        jobs=found,
        has_unread=any(lane.has_more for lane in found),
        nodes=await _nodes(visit, window, moments),
        scale=lanes.ticks(window, zone),
        labels=lanes.labels(window, zone),
        shifts=_shifts(page.items, moments, window),
        zone_name=f"{moments.now.astimezone(zone):%Z}",
    )


async def _jobs(visit: Visit, query: Mapping[str, str], limit: int) -> Page[Job]:
    return await visit.scheduler.jobs_page(
        order=query.get("order", "next"),
        text=query.get("text"),
        status=query.get("status"),
        namespaces=visit.access.namespaces,
        after=query.get("after"),
        limit=limit,
    )


def _weight(visit: Visit, lane: JobLane) -> int:
    """Return how many bytes a lane takes."""
    link = visit.links.to("jobs", lane.job.namespace, lane.job.id)
    return 180 + weight_of(link, lane.name) + len(lane.drawing.encode())


def _lane(
    job: Job, rows: tuple[RunRow, ...], times: tuple[datetime, ...], window: lanes.Window, moments: Moments
) -> JobLane:
    lane = lanes.lane_of(rows, times, window, moments.now, are_all=len(rows) < ROWS)
    name = lines.name_of(job.namespace, job.id)
    label = f"{name}: {lanes.summary_of(lane)}"
    shown = lines.name_of(job.namespace, job.id, LONGEST_NAME)
    return JobLane(job, shown, lanes.drawing_of(lane, window, label), bool(lane.unread))


async def _nodes(visit: Visit, window: lanes.Window, moments: Moments) -> list[NodeLane]:
    """Return the lanes of nodes, and first the one that shows when none was there. Tenants do not see nodes."""
    if visit.access.namespaces is not None:
        return []
    spans = await visit.scheduler.node_history(since=window.first, limit=MOST_NODES)
    by_node, gaps = lanes.presence(spans, window, moments.now)
    found = []
    if gaps:
        label = f"No scheduler was running in {len(gaps)} stretches of the last day"
        found.append(NodeLane("no scheduler", lanes.presence_drawing(gaps, window, label, is_gap=True)))
    return found + [
        NodeLane(name, lanes.presence_drawing(bars, window, f"When {name} was running"))
        for name, bars in by_node.items()
    ]


def _shifts(jobs: tuple[Job, ...], moments: Moments, window: lanes.Window) -> list[str]:
    """Return the clock changes in these two days, in words: of the visitor's zone, or of the zones of *jobs*."""
    names = [moments.choice.mine] if moments.choice.name == MINE else [job.schedule.zone_name() for job in jobs]
    found = []
    for name in dict.fromkeys(name for name in names if name is not None):
        for change in changes(find_zone(name), seconds_of(window.first), seconds_of(window.last)):
            day = from_micros(change.at * SECOND).astimezone(moments.zone())
            found.append(f"{name}: {change.words} on {day:%a %d %b}.")
    return found
