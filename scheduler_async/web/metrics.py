"""Metrics in the text format of Prometheus, counted when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.responses import Response

from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.pages import Concern, ConcernKind, Counts, TallyRow
from scheduler_async.web.routing import Route
from scheduler_async.web.visit import Visit

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

TALLIED = timedelta(hours=24)
MOST_CONCERNS = 1_000

STATES = ("running", "queued", "late", "failing", "paused", "disabled", "idle")


async def metrics(visit: Visit) -> Response:
    """Answer with the metrics of what the visitor can see."""
    scheduler, namespaces = visit.scheduler, visit.access.namespaces
    counts = await scheduler.counts(namespaces=namespaces)
    tally = await _tally(visit)
    concerns = await scheduler.attention(namespaces=namespaces, limit=MOST_CONCERNS)
    nodes = await scheduler.nodes() if namespaces is None else None
    collected = Collected([*_of_jobs(counts), *_of_runs(tally), _of_concerns(concerns), *_of_nodes(nodes)])
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collected)
    # In a thread: a store may have thousands of namespaces, each with numbers of its own.
    return Response(await asyncio.to_thread(generate_latest, registry), media_type=CONTENT_TYPE)


async def _tally(visit: Visit) -> list[TallyRow]:
    """Return how many runs ended lately in each namespace."""
    scheduler, found = visit.scheduler, list[TallyRow]()
    since, after = scheduler.now() - TALLIED, None
    while True:
        page = await scheduler.tally(
            since=since, namespaces=visit.access.namespaces, by=("namespace", "outcome"), after=after
        )
        found += page.items
        after = page.next
        if after is None:
            return found


class Collected:
    """Metrics that were counted before, in the form that prometheus_client asks for."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._families


def _of_jobs(counts: Counts) -> Iterable[Metric]:
    jobs = GaugeMetricFamily(
        "scheduler_jobs",
        "Jobs by what they do. Counting stops at 10,000; late and failing overlap the others.",
        labels=["state"],
    )
    for state in STATES:
        jobs.add_metric([state], getattr(counts, state).n)
    yield jobs
    yield GaugeMetricFamily("scheduler_jobs_total_count", "All jobs. Counting stops at 10,000.", counts.total.n)
    if counts.next_run_at is not None:
        yield GaugeMetricFamily(
            "scheduler_next_run_timestamp_seconds", "When the next job is due.", counts.next_run_at.timestamp()
        )


def _of_runs(tally: Iterable[TallyRow]) -> Iterable[Metric]:
    found: dict[tuple[str, str], int] = {}
    for row in tally:
        key = row.namespace or "", "unknown" if row.outcome is None else row.outcome.value
        found[key] = found.get(key, 0) + row.n
    runs = GaugeMetricFamily(
        "scheduler_runs_last_day",
        "Runs that ended, and occurrences left out, in the last 24 hours.",
        labels=["namespace", "outcome"],
    )
    for labels, number in sorted(found.items()):
        runs.add_metric(labels, number)
    yield runs


def _of_concerns(concerns: Iterable[Concern]) -> Metric:
    found = {kind.value: 0 for kind in ConcernKind}
    for concern in concerns:
        found[concern.kind.value] += 1
    family = GaugeMetricFamily("scheduler_concerns", "What needs attention.", labels=["kind"])
    for kind, number in found.items():
        family.add_metric([kind], number)
    return family


def _of_nodes(nodes: list[Node] | None) -> Iterable[Metric]:
    if nodes is None:  # figures of all namespaces together
        return
    yield GaugeMetricFamily("scheduler_nodes", "Schedulers that share the store.", len(nodes))
    running = GaugeMetricFamily("scheduler_node_runs", "Runs that a scheduler has claimed.", labels=["node"])
    skew = GaugeMetricFamily(
        "scheduler_node_clock_skew_seconds", "How far its clock is ahead of that of the store.", labels=["node"]
    )
    for node in nodes:
        running.add_metric([node.id], node.running)
        skew.add_metric([node.id], node.clock_skew.total_seconds())
    yield running
    yield skew


ROUTES = [Route(method="GET", path="metrics", handler=metrics)]
