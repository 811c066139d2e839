"""What OpenTelemetry is told: a span for each run, and counts that agree with the run log."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from opentelemetry import baggage, context
from opentelemetry.metrics import NoOpCounter, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, get_current_span

from scheduler_async import At, Every, JobSpec, Manual, Outcome, Result, Retry, Run, RunRow, Scheduler, SchedulerError
from scheduler_async.telemetry import instrument, uninstrument
from scheduler_async.testing import VirtualClock
from scheduler_async.texts import LONGEST
from tests.cast import HOUR, MINUTE, NOON, NewScheduler, Worker


class Collector:
    """Takes what a scheduler tells of itself, in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.tracer = self.tracer_provider.get_tracer("a program")

    def instrument(self, scheduler: Scheduler, **options: Any) -> None:
        instrument(scheduler, tracer_provider=self.tracer_provider, meter_provider=self.meter_provider, **options)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All spans that have ended, in that order."""
        return self.exporter.get_finished_spans()

    def points(self, name: str) -> list[tuple[dict[str, object], Any]]:
        """What is known of the metric called *name*: a count, or the sum of a histogram, for each set of attributes."""
        data = self.reader.get_metrics_data()
        metrics = [
            metric
            for of_resource in (data.resource_metrics if data is not None else [])
            for of_scope in of_resource.scope_metrics
            for metric in of_scope.metrics
            if metric.name == f"scheduler_async.{name}"
        ]
        assert len(metrics) <= 1
        return [(short(point.attributes), value_of(point)) for metric in metrics for point in metric.data.data_points]


def value_of(point: object) -> Any:
    if isinstance(point, HistogramDataPoint):
        return (point.count, point.sum)
    assert isinstance(point, NumberDataPoint)
    return point.value


def short(attributes: Mapping[str, object] | None) -> dict[str, object]:
    """Attributes without what all their names begin with."""
    return {name.rpartition(".")[2]: value for name, value in (attributes or {}).items()}


@pytest.fixture
def collector() -> Collector:
    return Collector()


@pytest.fixture
def watched(scheduler: Scheduler, collector: Collector) -> Scheduler:
    """A running scheduler that tells of itself."""
    collector.instrument(scheduler)
    return scheduler


def outcome_of(span: ReadableSpan) -> object:
    return (span.attributes or {}).get("scheduler_async.run.outcome")


# ============================================================ spans


async def test_a_run_is_a_span_with_all_that_is_known_of_it(
    watched: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    await watched.add_job(At(NOON + MINUTE), handler="work", id="report", namespace="tenant")
    await clock.advance("5m")

    (row,) = await watched.run_log()
    (span,) = collector.spans
    assert span.name == "run work"
    assert dict(span.attributes or {}) == {
        "scheduler_async.job.id": "report",
        "scheduler_async.job.namespace": "tenant",
        "scheduler_async.job.handler": "work",
        "scheduler_async.run.id": row.id,
        "scheduler_async.run.attempt": 1,
        "scheduler_async.run.trigger": "schedule",
        "scheduler_async.run.scheduled_for": "2026-01-05T12:01:00Z",
        "scheduler_async.run.outcome": "success",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert not span.events


async def test_a_span_has_no_parent_wherever_the_scheduler_was_started(
    idle: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    """A service starts it in the span of its start-up; a request triggers a run. Neither of them waits for it."""
    seen: list[object] = []

    @idle.handler("look")
    async def look() -> None:
        seen.append(baggage.get_baggage("tenant"))

    collector.instrument(idle)
    with collector.tracer.start_as_current_span("start-up"):
        token = context.attach(baggage.set_baggage("tenant", "whoever started it"))
        await idle.start()
        await idle.add_job(Every("1m"), handler="look", id="a")
        await idle.trigger_job("a")
        await clock.advance("1m")
        context.detach(token)

    runs = [span for span in collector.spans if span.name == "run look"]
    assert [(span.parent, list(span.links)) for span in runs] == [(None, []), (None, [])]
    assert len({span.context.trace_id for span in collector.spans}) == 3
    assert seen == [None, None]


async def test_what_a_handler_traces_is_below_its_run(
    watched: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    """In the handler, in the tasks it starts, and also when many run at the same time."""

    async def child(name: str) -> None:
        with collector.tracer.start_as_current_span(f"child of {name}"):
            await clock.sleep("1s")

    @watched.handler("parent")
    async def parent(run: Run) -> None:
        with collector.tracer.start_as_current_span(f"first of {run.job_id}"):
            await clock.sleep("10s")
        async with asyncio.TaskGroup() as group:
            group.create_task(child(run.job_id))

    for name in "abc":
        await watched.add_job(At(NOON + MINUTE), handler="parent", id=name)
    await clock.advance("5m")

    by_name = {span.name: span for span in collector.spans if span.name != "run parent"}
    runs = {short(span.attributes)["id"]: span for span in collector.spans if span.name == "run parent"}
    rows = {row.id: row.job_id for row in await watched.run_log()}
    assert len(runs) == len(rows) == 3
    for number, name in rows.items():
        for span in (by_name[f"first of {name}"], by_name[f"child of {name}"]):
            assert span.parent is not None
            assert span.parent.span_id == runs[number].context.span_id


async def test_a_plain_function_in_its_thread_is_in_the_span_of_its_run(
    watched: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    threads: list[int] = []

    @watched.handler("plain")
    def plain() -> None:
        threads.append(threading.get_ident())
        with collector.tracer.start_as_current_span("in the thread"):
            pass

    await watched.add_job(Manual(), handler="plain", id="a")
    await watched.wait_for_run(await watched.trigger_job("a"))

    below, run = collector.spans
    assert threads != [threading.get_ident()]
    assert (below.name, run.name) == ("in the thread", "run plain")
    assert below.parent is not None
    assert below.parent.span_id == run.context.span_id


async def test_after_a_run_no_span_is_current(watched: Scheduler, clock: VirtualClock) -> None:
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    assert not get_current_span().get_span_context().is_valid


async def test_an_exception_is_on_the_span(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.answer = SchedulerError("no paper")
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    (span,) = collector.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "SchedulerError: no paper"
    assert (span.attributes or {})["error.type"] == "scheduler_async.errors.SchedulerError"
    (event,) = span.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.message"] == "no paper"
    assert "tests/cast.py" in str((event.attributes or {})["exception.stacktrace"])
    assert outcome_of(span) == "error"


@pytest.mark.parametrize(
    "message", [ValueError("no"), SystemExit(3), "x" * 3_000_000], ids=lambda it: type(it).__name__
)
async def test_an_exception_is_on_the_span_whatever_it_does_when_it_is_asked(
    message: BaseException | str, watched: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    class Odd(Exception):  # noqa: N818
        def __str__(self) -> str:
            if isinstance(message, str):
                return message
            raise message

    @watched.handler("odd")
    async def odd() -> None:
        raise Odd

    await watched.add_job(At(NOON), handler="odd", id="a")
    await clock.advance()

    (span,) = collector.spans
    (event,) = span.events
    texts = [str(span.status.description), *map(str, (event.attributes or {}).values())]
    assert max(map(len, texts)) <= LONGEST
    assert [row.outcome for row in await watched.run_log()] == [Outcome.ERROR]


async def test_a_failure_without_an_exception_is_an_error_too(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.answer = Result("error", message="three are missing")
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    (span,) = collector.spans
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "three are missing")
    assert (span.attributes or {})["error.type"] == "error"
    assert not span.events


async def test_a_timeout_is_an_error(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.takes = "1h"
    await watched.add_job(At(NOON), handler="work", id="a", timeout="5m")
    await clock.advance("10m")

    (span,) = collector.spans
    assert outcome_of(span) == (span.attributes or {})["error.type"] == "timeout"
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "It ran longer than 5 minutes, and was cancelled."
    assert collector.points("run.duration") == [({"handler": "work", "outcome": "timeout"}, (1, 300.0))]


async def test_a_run_that_a_stop_cancels_is_no_error(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.blocks = True
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    await watched.stop(cancel=True)

    (span,) = collector.spans
    assert outcome_of(span) == "cancelled"
    assert span.status.status_code is StatusCode.UNSET
    assert collector.points("runs") == [({"handler": "work", "outcome": "cancelled"}, 1)]


async def test_a_run_whose_job_is_removed_ends_its_span(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.blocks = True
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    await watched.remove_job("a")
    await clock.advance()

    (span,) = collector.spans
    assert outcome_of(span) is None
    assert span.status.status_code is StatusCode.ERROR
    assert "removed" in str(span.status.description)
    assert collector.points("runs") == []


async def test_a_run_that_never_began_has_no_span(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    scheduler = new_scheduler(":memory:", max_concurrent=1, queue_size=5)
    collector.instrument(scheduler)
    await scheduler.start()
    worker.blocks = True
    for name in "abc":
        await scheduler.add_job(At(NOON), handler="work", id=name)
    await clock.advance()
    assert collector.points("running") == [({}, 1)]
    assert collector.points("queued") == [({}, 2)]

    await scheduler.stop(cancel=True)

    assert [outcome_of(span) for span in collector.spans] == ["cancelled"]
    assert collector.points("running") == collector.points("queued") == [({}, 0)]


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_what_is_due_is_counted_while_there_is_no_room_for_it(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    scheduler = new_scheduler(":memory:", max_concurrent=1)
    collector.instrument(scheduler)
    await scheduler.start()
    worker.blocks = True
    await scheduler.add_jobs([JobSpec(At(NOON), handler="work", id=name) for name in "abc"])
    await scheduler.add_job(At(NOON + HOUR), handler="work", id="later")
    await scheduler.add_job(At(NOON), handler="nobody's", id="d")
    await clock.advance("1s")
    assert collector.points("due") == [({}, 3)]
    await clock.advance("1h")
    assert collector.points("due") == [({}, 4)]


async def test_every_attempt_is_a_span_of_its_own(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.answer = ValueError("no")
    await watched.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window(2, delay="1m"))
    await clock.advance("65m")

    told = [short(span.attributes) for span in collector.spans]
    assert [(span["attempt"], span["trigger"]) for span in told] == [(1, "schedule"), (2, "retry"), (3, "retry")]
    assert {span["scheduled_for"] for span in told} == {"2026-01-05T13:00:00Z"}
    assert collector.points("runs") == [({"handler": "work", "outcome": "error"}, 3)]


# ============================================================ metrics


async def test_runs_are_counted_by_outcome(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    answers: list[object] = [None, None, Outcome.NOOP, Outcome.SKIPPED, ValueError("no")]
    await watched.add_job(Every("1h"), handler="work", id="a")
    for answer in answers:
        worker.answer = answer
        await clock.advance("1h")

    counts = {point["outcome"]: count for point, count in collector.points("runs")}
    assert counts == {"success": 2, "noop": 1, "skipped": 1, "error": 1}
    assert counts == (await watched.run_stats("a")).counts


async def test_duration_and_lateness_are_in_seconds(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    """The second has to wait for the first, which takes ninety seconds."""
    scheduler = new_scheduler(":memory:", max_concurrent=1)
    collector.instrument(scheduler)
    await scheduler.start()
    worker.takes = "90s"
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="a")
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="b")
    await clock.advance("10m")

    assert collector.points("run.duration") == [({"handler": "work", "outcome": "success"}, (2, 180.0))]
    assert collector.points("run.lateness") == [({"handler": "work"}, (2, 90.0))]


async def test_only_what_was_scheduled_can_be_late(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    """A retry comes later on purpose, and what is triggered by hand has no time to be late for."""
    worker.answer = ValueError("no")
    await watched.add_job(Every("1h"), handler="work", id="a", retry=Retry.in_window(1, delay="10m"))
    await clock.advance("75m")
    await watched.trigger_job("a")
    await clock.advance()

    assert len(worker.runs) == 3
    assert collector.points("run.lateness") == [({"handler": "work"}, (1, 0.0))]


async def test_the_buckets_suit_jobs(watched: Scheduler, clock: VirtualClock, collector: Collector) -> None:
    """Those that OpenTelemetry has for want of better ones are for milliseconds."""
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    data = collector.reader.get_metrics_data()
    assert data is not None
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    for name in ("scheduler_async.run.duration", "scheduler_async.run.lateness"):
        assert metrics[name].unit == "s"
        (point,) = metrics[name].data.data_points
        assert isinstance(point, HistogramDataPoint)
        assert point.explicit_bounds[0] <= 0.005
        assert point.explicit_bounds[-1] >= 3600


async def test_skips_are_counted_by_reason(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    """As many as were skipped, however few rows tell of them."""
    worker.takes = "10m"
    await watched.add_job(Every("1m"), handler="work", id="slow")
    await clock.advance("15m")

    rows = await watched.run_log(outcome="skipped")
    (point,) = collector.points("skips")
    assert point == ({"handler": "work", "reason": "already_running"}, sum(row.missed for row in rows))
    assert point[1] >= 9


async def test_a_catch_up_is_one_late_run(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock, collector: Collector
) -> None:
    first = new_scheduler(path)
    await first.add_job(Every("1h"), handler="work", id="made up")
    await first.add_job(Every("1h"), handler="work", id="left out", misfire="skip")
    await first.stop()
    clock.set(NOON + 10 * HOUR + 30 * MINUTE)

    second = new_scheduler(path)
    collector.instrument(second)
    await second.start()
    await clock.advance()

    (span,) = collector.spans
    assert short(span.attributes)["trigger"] == "catch_up"
    assert len(collector.points("run.lateness")) == 1
    rows = await second.run_log(outcome="skipped")
    assert collector.points("skips") == [
        ({"handler": "work", "reason": "misfire"}, sum(row.missed for row in rows)),
    ]


async def test_a_run_whose_process_died_is_counted_by_who_finds_it(
    path: Path, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    """Once, and without a duration, which nobody knows."""
    code = f"""
import asyncio, os
from scheduler_async import At, Scheduler
from scheduler_async.testing import VirtualClock
clock = VirtualClock("2026-01-05T12:00:00Z")
scheduler = Scheduler({str(path)!r}, clock=clock)
@scheduler.handler("work")
async def work():
    os._exit(1)
async def main():
    async with scheduler:
        await scheduler.add_job(At(clock.now()), handler="work", id="a", on_interrupt="skip")
        await clock.advance()
asyncio.run(main())
"""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=False, timeout=60)
    scheduler = new_scheduler(path)
    collector.instrument(scheduler)

    await scheduler.start()

    assert collector.points("runs") == [({"handler": "work", "outcome": "interrupted"}, 1)]
    assert collector.points("run.duration") == []
    assert collector.spans == ()


async def test_metrics_do_not_grow_with_jobs_and_tenants(
    watched: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    for number in range(20):
        await watched.add_job(At(NOON), handler="work", id=f"job-{number}", namespace=f"tenant-{number % 5}")
    await clock.advance()

    assert collector.points("runs") == [({"handler": "work", "outcome": "success"}, 20)]


async def test_metrics_are_split_if_so_asked(scheduler: Scheduler, clock: VirtualClock, collector: Collector) -> None:
    collector.instrument(scheduler, split_by=["namespace", "job", "group"])
    await scheduler.add_job(At(NOON), handler="work", id="a", namespace="x", group="mail")
    await scheduler.add_job(At(NOON), handler="work", id="b", namespace="y")
    await clock.advance()

    told = sorted((point["namespace"], point["id"], point["group"]) for point, _ in collector.points("runs"))
    assert told == [("x", "a", "mail"), ("y", "b", "")]


async def test_names_that_one_handler_serves_are_not_told_apart(
    new_scheduler: NewScheduler, clock: VirtualClock, collector: Collector
) -> None:
    """They may come from anywhere, and be as many as there are jobs. Spans know them all the same."""
    scheduler = new_scheduler(":memory:")
    scheduler.on_job_due(lambda: None)
    collector.instrument(scheduler)
    await scheduler.start()
    for name in ("work", "x", "y"):
        await scheduler.add_job(At(NOON), handler=name, id=name)
    await clock.advance()

    assert {str(point["handler"]): count for point, count in collector.points("runs")} == {"work": 1, "_OTHER": 2}
    assert sorted(span.name for span in collector.spans) == ["run _OTHER", "run _OTHER", "run work"]
    assert {short(span.attributes)["handler"] for span in collector.spans} == {"work", "x", "y"}


async def test_collecting_from_another_thread_while_runs_come_and_go(
    new_scheduler: NewScheduler, clock: VirtualClock, collector: Collector
) -> None:
    scheduler = new_scheduler(":memory:")
    collector.instrument(scheduler)
    await scheduler.start()
    for number in range(50):
        await scheduler.add_job(Every("1s"), handler="work", id=str(number))
    over = threading.Event()

    def collect() -> int:
        times = 0
        while not over.is_set():
            ((_, running),) = collector.points("running")
            assert 0 <= running <= 50
            times += 1
        return times

    collecting = asyncio.create_task(asyncio.to_thread(collect))
    await clock.advance("20s")
    over.set()

    assert await collecting > 0
    assert sum(count for _, count in collector.points("runs")) == 1000


# ============================================================ several, on and off


async def test_several_schedulers_add_up(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.blocks = True
    schedulers = [new_scheduler(":memory:") for _ in range(3)]
    for scheduler in schedulers:
        collector.instrument(scheduler)
        await scheduler.start()
        await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    assert collector.points("running") == [({}, 3)]

    worker.go.set()
    await clock.advance()

    assert collector.points("runs") == [({"handler": "work", "outcome": "success"}, 3)]
    assert collector.points("running") == [({}, 0)]
    assert len(collector.spans) == 3


async def test_attributes_tell_schedulers_apart(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.blocks = True
    for name, count in (("mail", 1), ("reports", 2)):
        scheduler = new_scheduler(":memory:")
        collector.instrument(scheduler, attributes={"scheduler": name})
        await scheduler.start()
        for number in range(count):
            await scheduler.add_job(At(NOON), handler="work", id=str(number))
    await clock.advance()

    told = {str(point["scheduler"]): count for point, count in collector.points("running")}
    assert told == {"mail": 1, "reports": 2}
    worker.go.set()
    await clock.advance()
    assert {str(point["scheduler"]): count for point, count in collector.points("runs")} == told
    assert sorted(str(short(span.attributes)["scheduler"]) for span in collector.spans) == [
        "mail",
        "reports",
        "reports",
    ]


async def test_two_providers_are_told_of_their_own_scheduler_only(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.blocks = True
    collectors = [Collector(), Collector()]
    for number, collector in enumerate(collectors):
        scheduler = new_scheduler(":memory:")
        collector.instrument(scheduler)
        await scheduler.start()
        for job in range(number):
            await scheduler.add_job(At(NOON), handler="work", id=str(job))
    await clock.advance()

    assert [collector.points("running") for collector in collectors] == [[({}, 0)], [({}, 1)]]


async def test_it_lasts_through_stop_and_start(
    new_scheduler: NewScheduler, store: str, clock: VirtualClock, collector: Collector
) -> None:
    scheduler = new_scheduler(store)
    collector.instrument(scheduler)
    for number in range(3):
        async with scheduler:
            await scheduler.add_job(At(NOON), handler="work", id=str(number))
            await clock.advance()

    assert len(collector.spans) == 3
    assert collector.points("runs") == [({"handler": "work", "outcome": "success"}, 3)]
    assert collector.points("running") == [({}, 0)]


async def test_a_pass_without_the_loop_is_told_too(idle: Scheduler, clock: VirtualClock, collector: Collector) -> None:
    collector.instrument(idle)
    await idle.add_job(At(NOON), handler="work", id="a")

    await idle.run_pending()

    assert [outcome_of(span) for span in collector.spans] == ["success"]
    assert collector.points("runs") == [({"handler": "work", "outcome": "success"}, 1)]


async def test_nothing_more_is_told_when_it_is_taken_off(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    """Except how the runs in progress ended: a span that began must end."""
    worker.blocks = True
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    uninstrument(watched)
    uninstrument(watched)
    worker.go.set()
    await watched.add_job(At(NOON), handler="work", id="b")
    await clock.advance()

    assert [outcome_of(span) for span in collector.spans] == ["success"]
    assert collector.points("runs") == []
    assert collector.points("running") == []
    assert not watched._engine.events.has_listeners


async def test_it_can_be_put_on_again(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    uninstrument(watched)
    collector.instrument(watched)
    worker.blocks = True
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    assert collector.points("running") == [({}, 1)]


async def test_once_is_enough(watched: Scheduler, collector: Collector) -> None:
    with pytest.raises(SchedulerError, match="This scheduler is already instrumented"):
        collector.instrument(watched)


@pytest.mark.parametrize(
    ("split_by", "named"), [(["user"], '"user"'), ("namespace", '"namespace"'), (["job", "x"], '"x"')]
)
def test_an_unknown_split_is_refused(split_by: Any, named: str) -> None:
    scheduler = Scheduler(":memory:")
    with pytest.raises(SchedulerError, match=f'split_by must be a list of "namespace", "job", "group", not {named}'):
        instrument(scheduler, split_by=split_by)
    assert scheduler._engine.events.observers == []


def test_only_schedulers_are_instrumented() -> None:
    with pytest.raises(SchedulerError, match='must be a Scheduler, not "jobs'):
        instrument("jobs.db")  # type: ignore[arg-type]


def test_a_scheduler_that_nobody_needs_any_more_is_let_go(collector: Collector) -> None:
    scheduler = Scheduler(":memory:", clock=VirtualClock(NOON))
    collector.instrument(scheduler)
    gone = ref(scheduler)
    assert collector.points("running") == [({}, 0)]

    del scheduler
    gc.collect()

    assert gone() is None
    assert collector.points("running") == []


# ============================================================ no harm


class Broken(SpanExporter, SpanProcessor):
    """Fails at whatever it is asked to do, until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise OSError("the collector is gone")

    def on_start(self, span: SdkSpan, parent_context: context.Context | None = None) -> None:
        if not self.mended:
            raise OSError("the collector is gone")

    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("the collector is gone")

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return False


async def test_an_exporter_that_fails_costs_no_run(
    scheduler: Scheduler, clock: VirtualClock, collector: Collector
) -> None:
    collector.tracer_provider.add_span_processor(SimpleSpanProcessor(Broken()))
    collector.instrument(scheduler)
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("3m")

    assert [row.outcome for row in await scheduler.run_log()] == [Outcome.SUCCESS] * 3
    assert len(collector.spans) == 3


@pytest.mark.parametrize("mended", [pytest.param(False, id="at the beginning"), pytest.param(True, id="at the end")])
async def test_a_provider_that_fails_costs_no_run_and_is_told_of_once(
    scheduler: Scheduler,
    worker: Worker,
    clock: VirtualClock,
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    mended: bool,
) -> None:
    broken = Broken()
    broken.mended = mended
    collector.tracer_provider.add_span_processor(broken)
    collector.instrument(scheduler)
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    await clock.advance("3m")

    assert [row.outcome for row in await scheduler.run_log()] == [Outcome.SUCCESS] * 3
    complaints = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in complaints] == [
        "Cannot send spans to OpenTelemetry; runs continue without them"
    ]
    assert collector.points("runs") == [({"handler": "work", "outcome": "success"}, 3)]


async def test_a_provider_that_fails_again_is_told_of_again(
    scheduler: Scheduler, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Moody()
    instrument(scheduler, meter_provider=metrics)
    await scheduler.add_job(Every("1m"), handler="work", id="a")

    for metrics.fails in (True, True, False, True, True):
        await clock.advance("1m")

    assert [row.outcome for row in await scheduler.run_log()] == [Outcome.SUCCESS] * 5
    complaints = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert complaints == ["Cannot send metrics to OpenTelemetry; runs continue without them"] * 2


class Moody(NoOpMeterProvider):
    """Its counters fail now and then."""

    fails = False

    def get_meter(self, name: str, *_args: Any, **_kwargs: Any) -> NoOpMeter:
        provider = self

        class MoodyCounter(NoOpCounter):
            def add(self, *_args: Any, **_kwargs: Any) -> None:
                if provider.fails:
                    raise OSError("the collector is gone")

        class MoodyMeter(NoOpMeter):
            def create_counter(self, name: str, *_args: Any, **_kwargs: Any) -> NoOpCounter:
                return MoodyCounter(name)

        return MoodyMeter(name)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_exception_that_cannot_be_put_into_words_ends_its_span(
    watched: Scheduler, worker: Worker, clock: VirtualClock, collector: Collector
) -> None:
    worker.answer = UnspeakableError()
    await watched.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    (span,) = collector.spans
    assert (outcome_of(span), span.status.status_code) == ("error", StatusCode.ERROR)


async def life(scheduler: Scheduler, clock: VirtualClock) -> list[RunRow]:
    """A few hours with every kind of ending, and what they leave in the run log."""
    runs = 0

    @scheduler.handler("varied")
    async def varied() -> object:
        nonlocal runs
        runs += 1
        if runs % 5 == 0:
            raise ValueError("every fifth")
        await clock.sleep("100s")
        return [None, Outcome.NOOP, Outcome.SKIPPED, Result(message="fine")][runs % 4]

    @scheduler.handler("plain")
    def plain() -> None: ...

    await scheduler.add_job(Every("1m"), handler="varied", id="merged", retry=Retry.in_window(2))
    await scheduler.add_job(Every("10m"), handler="varied", id="backs off")
    await scheduler.add_job(Every("30m"), handler="varied", id="times out", timeout="50s")
    await scheduler.add_job(Every("1h"), handler="plain", id="in a thread")
    await scheduler.add_job(Every("20m"), handler="varied", id="misfires", misfire="skip")
    await clock.advance("2h")
    clock.set(clock.now() + HOUR)
    await clock.advance("1h")
    await scheduler.stop(cancel=True)
    rows = await scheduler.run_log(limit=None)
    await scheduler.stop()
    return rows


async def test_the_run_log_is_the_same_with_and_without(tmp_path: Path, collector: Collector) -> None:
    """To be watched changes nothing."""
    logs = []
    for is_watched in (False, True):
        clock = VirtualClock(NOON)
        scheduler = Scheduler(tmp_path / f"{is_watched}.db", clock=clock)
        if is_watched:
            collector.instrument(scheduler)
        await scheduler.start()
        rows = await life(scheduler, clock)
        logs.append([{**vars(row), "node": None} for row in rows])

    assert logs[0] == logs[1]
    assert len(logs[0]) > 50
    assert {row["outcome"] for row in logs[0]} >= {"success", "noop", "skipped", "error", "timeout", "cancelled"}
    assert sum(count for _, count in collector.points("runs")) == sum(row["started_at"] is not None for row in logs[1])


# ============================================================ providers of the whole program, and none

GLOBAL = """
import asyncio
from opentelemetry import metrics, trace
from opentelemetry.metrics import NoOpCounter, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scheduler_async import At, Scheduler
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

clock = VirtualClock("2026-01-05T12:00:00Z")
exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
early, late = Scheduler(":memory:", clock=clock), Scheduler(":memory:", clock=clock)
go = asyncio.Event()

instrument(early)
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))
instrument(late)

def points():
    return {
        metric.name.removeprefix("scheduler_async."): [point.value for point in metric.data.data_points]
        for metric in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        if "." not in metric.name.removeprefix("scheduler_async.")
        and metric.name != "scheduler_async.due"  # counted once a second of real time
    }

async def main():
    for scheduler in (early, late):
        scheduler.handler("wait")(go.wait)
        await scheduler.start()
        await scheduler.add_job(At(clock.now()), handler="wait", id="a")
    await clock.advance()
    print(sorted(points().items()))
    go.set()
    await clock.advance()
    await early.stop()
    await late.stop()
    print(sorted(points().items()), [span.name for span in exporter.get_finished_spans()])

asyncio.run(main())
"""


def test_the_providers_of_the_program_may_come_later() -> None:
    """Which line comes first in a program should not matter."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", GLOBAL], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[('queued', [0]), ('running', [2])]",
        "[('queued', [0]), ('running', [0]), ('runs', [2])] ['run wait', 'run wait']",
    ]


def test_without_a_provider_nothing_happens() -> None:
    code = """
import asyncio
from scheduler_async import At, Scheduler
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

async def main():
    clock = VirtualClock("2026-01-05T12:00:00Z")
    scheduler = Scheduler(":memory:", clock=clock)
    scheduler.handler("work")(lambda: print("done"))
    instrument(scheduler)
    async with scheduler:
        await scheduler.add_job(At(clock.now()), handler="work", id="a")
        await clock.advance()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("done\n", "")


def test_without_the_package_it_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
import scheduler_async.scheduler
try:
    import scheduler_async.telemetry
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Telemetry needs the package opentelemetry")
    assert "pip install 'scheduler-async[otel]'" in done.stdout
