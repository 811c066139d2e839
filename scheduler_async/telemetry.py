"""OpenTelemetry: a span for each run, and metrics of runs, skips, durations and the current load.

It needs the package `opentelemetry-api`, which the extra `otel` installs. Your providers decide where the data goes.
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
from scheduler_async.timekeeping.instants import iso_text

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
# A run is late by milliseconds, unless a limit was reached or no scheduler was running.
LATENESSES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600, 86400)

# Metrics are recorded in an empty context, so that they do not become exemplars of an unrelated span.
NOWHERE = Context()

# The name in metrics of handlers that are not registered by name: there may be any number of them.
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
    """Send spans and metrics of *scheduler* to OpenTelemetry from now on.

    tracer_provider=None, meter_provider=None
        The providers to use. None is the global provider.
    attributes=None
        Attributes for all spans and metrics, to tell several schedulers apart.
    split_by=()
        Metrics have a series for each handler and outcome. A list of "namespace", "job" or "group" splits them further.
    """
    if not isinstance(scheduler, Scheduler):
        raise SchedulerError(f"scheduler must be a Scheduler, not {quoted(scheduler)}.")
    unknown = [word for word in ([split_by] if isinstance(split_by, str) else split_by) if word not in SPLITS]
    if unknown or isinstance(split_by, str):
        wrong = split_by if isinstance(split_by, str) else unknown[0]
        raise SchedulerError(f"split_by must be a list of {', '.join(map(quoted, SPLITS))}, not {quoted(wrong)}.")
    if _telemetry_of(scheduler) is not None:
        raise SchedulerError("This scheduler is already instrumented. Call uninstrument() first.")
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
    """Send nothing more about *scheduler* to OpenTelemetry. The spans of runs in progress still end."""
    telemetry = _telemetry_of(scheduler)
    if telemetry is not None:
        scheduler._engine.events.observers.remove(telemetry)
        with _lock:
            _instrumented.discard(telemetry)


class _Telemetry:
    """The instruments of one scheduler. Only its engine holds a reference."""

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
            "scheduler_async.skips", "{occurrence}", "Occurrences that were skipped, by reason."
        )
        self._duration = meter.create_histogram(
            "scheduler_async.run.duration",
            "s",
            "Durations of runs.",
            explicit_bucket_boundaries_advisory=DURATIONS,
        )
        self._lateness = meter.create_histogram(
            "scheduler_async.run.lateness",
            "s",
            "How late scheduled runs started. Retries and manual runs do not count.",
            explicit_bucket_boundaries_advisory=LATENESSES,
        )
        # Up-down counters, since the sum over all processes makes sense.
        meter.create_observable_up_down_counter(
            "scheduler_async.running",
            [_sums(meter_provider, lambda engine: engine.session.runner.running)],
            "{run}",
            "Runs in progress.",
        )
        meter.create_observable_up_down_counter(
            "scheduler_async.queued",
            [_sums(meter_provider, lambda engine: engine.session.runner.queued)],
            "{run}",
            "Claimed runs that wait for a slot.",
        )
        # A gauge, since every process counts the same jobs.
        meter.create_observable_gauge(
            "scheduler_async.due",
            [_sums(meter_provider, lambda engine: engine.session.checkup.due)],
            "{job}",
            "Jobs in the store that are due and have not started.",
        )

    # ============================================================ spans

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        """Begin the span of *run*, and make it current for the handler."""
        span = self._harmlessly("spans", self._begin_span, run)
        if span is None:
            return lambda _ending, _error: None
        return lambda ending, error: self._harmlessly("spans", _end_span, span, ending, error)

    def _begin_span(self, run: Run) -> Span:
        # In an empty context: the span that started the scheduler or triggered the run is not its parent.
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
                "scheduler_async.run.scheduled_for": iso_text(run.scheduled_for),
            },
        )
        attach(set_span_in_context(span, Context()))  # in the context of the run, which ends with it
        return span

    # ============================================================ metrics

    def heard(self, event: Event) -> None:
        """Count a run that has ended, or skipped occurrences."""
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
            return  # its end is unknown, and another process may have run it
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
        """Return the name of the handler, or OTHER for names that only the fallback serves: there may be too many."""
        handlers = self.engine.handlers
        return job.handler if handlers.has(job.handler) or handlers.names is not None else OTHER

    def _harmlessly(self, what: str, do: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """Call *do*, and return its result. If a provider raises, log it once until it works again, and go on."""
        try:
            result = do(*arguments, **options)
        except Exception:
            if do not in self._failing:
                self._failing.add(do)
                say(ERROR, "Cannot send %s to OpenTelemetry; runs continue without them", what, exc_info=True)
            return None
        self._failing.discard(do)
        return result


def _end_span(span: Span, ending: Ending | None, error: BaseException | None) -> None:
    try:
        _describe(span, ending, error)
    finally:
        span.end()


def _describe(span: Span, ending: Ending | None, error: BaseException | None) -> None:
    """Record on *span* how its run ended."""
    if ending is None:
        words = "The result was discarded: the job was removed, or another node has taken over the run."
        span.set_status(Status(StatusCode.ERROR, words))
        return
    span.set_attribute("scheduler_async.run.outcome", ending.outcome.value)
    if ending.outcome.is_failure:
        span.set_attribute("error.type", _type_of(ending, error))
        span.set_status(Status(StatusCode.ERROR, ending.error))
        if error is not None:
            # As `Span.record_exception` does, which does not limit the length of the message.
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


# The instrumented schedulers. Providers collect metrics in other threads.
_instrumented: WeakSet[_Telemetry] = WeakSet()
_lock = Lock()


def _telemetry_of(scheduler: Scheduler) -> _Telemetry | None:
    with _lock:
        return next((telemetry for telemetry in _instrumented if telemetry.engine is scheduler._engine), None)


def _sums(
    meter_provider: MeterProvider | None, count: Callable[[Engine], int]
) -> Callable[[CallbackOptions], list[Observation]]:
    """Return a callback that observes the sum of *count* over all schedulers with equal attributes.

    A provider calls only the first callback that is registered under a name, and keeps it forever. So that callback
    answers for all schedulers with this provider, also for later ones.
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
