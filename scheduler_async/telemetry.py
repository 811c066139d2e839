"""What OpenTelemetry is told of a scheduler: a span for each run, counts, durations, and what is going on right now.

It needs the package `opentelemetry-api`, which the extra `otel` brings. Where the data goes is for providers to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from logging import ERROR
from threading import Lock
from typing import ParamSpec, TypeAlias, TypeVar
from weakref import WeakSet

from scheduler_async import __version__
from scheduler_async.engine.engine import Engine
from scheduler_async.errors import SchedulerError, quoted
from scheduler_async.jobs.enums import Outcome, Trigger
from scheduler_async.jobs.events import Event, EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import Ending, Run
from scheduler_async.logs import say
from scheduler_async.scheduler import Scheduler
from scheduler_async.texts import message_of, traceback_of

try:
    from opentelemetry.context import Context, attach
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter, get_meter_provider
    from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider, get_tracer, set_span_in_context
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"Telemetry needs the package {missing.name}: pip install 'scheduler-async[otel]'", name=missing.name
    ) from missing

P = ParamSpec("P")
T = TypeVar("T")
Value: TypeAlias = str | bool | int | float

# In seconds. Most runs take from milliseconds to minutes, and some take hours.
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
# A run is late by milliseconds, unless there was no room for it, or nobody to run it.
LATENESSES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600, 86400)

# Metrics are counted where no span of theirs is current: they must not be shown as examples of another.
NOWHERE = Context()

# Whose handler has no name of its own, so that any number of names may come.
OTHER = "_OTHER"

SPLITS: Mapping[str, tuple[str, Callable[[Job], str]]] = {
    "namespace": ("scheduler_async.job.namespace", lambda job: job.namespace),
    "job": ("scheduler_async.job.id", lambda job: job.id),
    "group": ("scheduler_async.job.group", lambda job: job.group or ""),
}


def instrument(
    scheduler: Scheduler,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    attributes: Mapping[str, Value] | None = None,
    split_by: Collection[str] = (),
) -> None:
    """Tell OpenTelemetry what *scheduler* does, from now on: the global providers, or those that are given.

    *attributes* are put on all spans and metrics, and tell several schedulers apart. Metrics know handlers and
    outcomes; to *split_by* "namespace", "job" or "group" as well makes a series for each of them.
    """
    if not isinstance(scheduler, Scheduler):
        raise SchedulerError(f"instrument() takes a Scheduler, not {quoted(scheduler)}.")
    unknown = [word for word in ([split_by] if isinstance(split_by, str) else split_by) if word not in SPLITS]
    if unknown or isinstance(split_by, str):
        wrong = split_by if isinstance(split_by, str) else unknown[0]
        raise SchedulerError(f"split_by is a list of {', '.join(map(quoted, SPLITS))}, not {quoted(wrong)}.")
    if _telemetry_of(scheduler) is not None:
        raise SchedulerError("This scheduler is instrumented already. uninstrument() it first.")
    telemetry = _Telemetry(
        scheduler._engine,
        get_tracer("scheduler_async", __version__, tracer_provider),
        get_meter("scheduler_async", __version__, meter_provider),
        meter_provider,
        dict(attributes or {}),
        [SPLITS[word] for word in split_by],
    )
    with _lock:
        _instrumented.add(telemetry)
    scheduler._engine.events.observers.append(telemetry)


def uninstrument(scheduler: Scheduler) -> None:
    """Tell OpenTelemetry nothing more of *scheduler*; the spans of runs in progress still end."""
    telemetry = _telemetry_of(scheduler)
    if telemetry is not None:
        scheduler._engine.events.observers.remove(telemetry)
        with _lock:
            _instrumented.discard(telemetry)


class _Telemetry:
    """What is told of one scheduler. Its engine holds it, and nobody else."""

    def __init__(
        self,
        engine: Engine,
        tracer: Tracer,
        meter: Meter,
        meter_provider: MeterProvider | None,
        attributes: dict[str, Value],
        splits: Collection[tuple[str, Callable[[Job], str]]],
    ) -> None:
        self.engine, self.meter_provider, self.attributes = engine, meter_provider, attributes
        self._tracer, self._splits = tracer, splits
        self._failing: set[object] = set()
        self._runs = meter.create_counter("scheduler_async.runs", "{run}", "Runs that ended, by outcome.")
        self._skips = meter.create_counter(
            "scheduler_async.skips", "{occurrence}", "Occurrences that were deliberately not run, by reason."
        )
        self._duration = meter.create_histogram(
            "scheduler_async.run.duration",
            "s",
            "How long runs took.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._lateness = meter.create_histogram(
            "scheduler_async.run.lateness",
            "s",
            "How long after their time scheduled runs began; retries and runs by hand do not count.",
            explicit_bucket_boundaries_advisory=LATENESSES,
        )
        # They add up over processes, as up-down counters do and gauges do not.
        meter.create_observable_up_down_counter(
            "scheduler_async.running",
            [_sums(meter_provider, lambda engine: engine.session.runner.running)],
            "{run}",
            "Runs that are in progress.",
        )
        meter.create_observable_up_down_counter(
            "scheduler_async.queued",
            [_sums(meter_provider, lambda engine: engine.session.runner.queued)],
            "{run}",
            "Runs that are due, claimed, and wait for a slot.",
        )
        # The same jobs, whoever counts them: a gauge.
        meter.create_observable_gauge(
            "scheduler_async.due",
            [_sums(meter_provider, lambda engine: engine.session.checkup.due)],
            "{job}",
            "Jobs that are due and that nobody has begun, in the whole store.",
        )

    # ============================================================ spans

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        """Begin the span of *run*, and let the handler work below it."""
        span = self._harmlessly("spans", self._begin_span, run)
        if span is None:
            return lambda _ending, _error: None
        return lambda ending, error: self._harmlessly("spans", _end_span, span, ending, error)

    def _begin_span(self, run: Run) -> Span:
        # In an empty context: whoever started the scheduler or triggered the run is not its parent.
        span = self._tracer.start_span(
            f"run {self._handler(run.job)}",
            Context(),
            attributes={
                **self.attributes,
                "scheduler_async.job.id": run.job.id,
                "scheduler_async.job.namespace": run.job.namespace,
                "scheduler_async.job.handler": run.job.handler,
                "scheduler_async.run.id": run.id,
                "scheduler_async.run.attempt": run.attempt,
                "scheduler_async.run.trigger": run.trigger.value,
                "scheduler_async.run.scheduled_for": run.scheduled_for.isoformat().replace("+00:00", "Z"),
            },
        )
        attach(set_span_in_context(span, Context()))  # to the run's own context, which ends with it
        return span

    # ============================================================ metrics

    def heard(self, event: Event) -> None:
        """Count what is on record."""
        if event.kind is EventKind.RUN_FINISHED:
            self._harmlessly("metrics", self._count_run, event)
        elif event.kind is EventKind.RUN_SKIPPED:
            self._harmlessly("metrics", self._count_skip, event)

    def _count_run(self, event: Event) -> None:
        row, attributes = event.run, self._attributes(event.job)
        assert row is not None
        assert row.outcome is not None
        ended = {**attributes, "scheduler_async.run.outcome": row.outcome.value}
        self._runs.add(1, ended, NOWHERE)
        if row.outcome is Outcome.INTERRUPTED:
            return  # nobody knows when it ended, and who found it may not be who ran it
        if row.duration_ms is not None:
            self._duration.record(row.duration_ms / 1000, ended, NOWHERE)
        if row.delay_ms is not None and row.trigger in (Trigger.SCHEDULE, Trigger.CATCH_UP):
            self._lateness.record(row.delay_ms / 1000, attributes, NOWHERE)

    def _count_skip(self, event: Event) -> None:
        row, attributes = event.run, self._attributes(event.job)
        assert row is not None
        attributes["scheduler_async.skip.reason"] = str(event.reason)
        self._skips.add(row.missed, attributes, NOWHERE)

    def _attributes(self, job: Job | None) -> dict[str, Value]:
        assert job is not None
        attributes = {**self.attributes, "scheduler_async.job.handler": self._handler(job)}
        for name, value_of in self._splits:
            attributes[name] = value_of(job)
        return attributes

    def _handler(self, job: Job) -> str:
        """The handler's name; if one handler serves all names there are, they are too many to tell apart."""
        handlers = self.engine.handlers
        return job.handler if handlers.has(job.handler) or handlers.names is not None else OTHER

    def _harmlessly(self, what: str, do: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """What *do* returns. Whatever a provider does, runs go on; it is told once, until it works again."""
        try:
            result = do(*arguments, **options)
        except Exception:
            if do not in self._failing:
                self._failing.add(do)
                say(ERROR, "OpenTelemetry takes no %s; runs go on without", what, exc_info=True)
            return None
        self._failing.discard(do)
        return result


def _end_span(span: Span, ending: Ending | None, error: BaseException | None) -> None:
    try:
        _describe(span, ending, error)
    finally:
        span.end()


def _describe(span: Span, ending: Ending | None, error: BaseException | None) -> None:
    """Note on *span* how its run ended."""
    if ending is None:
        words = "The job was removed, or others have taken the run over; its result was dropped."
        span.set_status(Status(StatusCode.ERROR, words))
        return
    span.set_attribute("scheduler_async.run.outcome", ending.outcome.value)
    if ending.outcome.is_failure:
        span.set_attribute("error.type", _type_of(ending, error))
        span.set_status(Status(StatusCode.ERROR, ending.error))
        if error is not None:
            # As `Span.record_exception` does it, which puts no bound to what an exception has to say.
            said = {
                "exception.type": _name_of(type(error)),
                "exception.message": message_of(error),
                "exception.stacktrace": traceback_of(error),
            }
            span.add_event("exception", said)


def _type_of(ending: Ending, error: BaseException | None) -> str:
    if error is None or ending.outcome is Outcome.TIMEOUT:
        return ending.outcome.value
    return _name_of(type(error))


def _name_of(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Who is observed when metrics are collected, which happens in other threads.
_instrumented: WeakSet[_Telemetry] = WeakSet()
_lock = Lock()


def _telemetry_of(scheduler: Scheduler) -> _Telemetry | None:
    with _lock:
        return next((telemetry for telemetry in _instrumented if telemetry.engine is scheduler._engine), None)


def _sums(
    meter_provider: MeterProvider | None, count: Callable[[Engine], int]
) -> Callable[[CallbackOptions], list[Observation]]:
    """What to observe: the sum of *count* over all schedulers with equal attributes.

    A provider calls only the first callback that it is given under a name, and keeps it for good: that one answers
    for all schedulers with this provider, now and later.
    """

    def observe(_options: CallbackOptions) -> list[Observation]:
        with _lock:
            telemetries = list(_instrumented)
        sums: dict[frozenset[tuple[str, Value]], int] = {}
        for telemetry in telemetries:
            if _actual(telemetry.meter_provider) is _actual(meter_provider):
                key = frozenset(telemetry.attributes.items())
                sums[key] = sums.get(key, 0) + count(telemetry.engine)
        return [Observation(total, dict(key)) for key, total in sums.items()]

    return observe


def _actual(meter_provider: MeterProvider | None) -> MeterProvider:
    return get_meter_provider() if meter_provider is None else meter_provider
