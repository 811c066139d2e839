"""The errors that the scheduler raises.

    SchedulerError
    ├── InvalidScheduleError       (ValueError)    a schedule that is not valid
    │   ├── IntervalParseError                     "5x", "0m", "-5m"           .interval
    │   ├── CronParseError                         "61 * * * *"                .expression .field
    │   ├── UnknownZoneError                       "Europe/Stokholm"           .zone
    │   └── UnknownScheduleError                   a kind of another program   .kind
    ├── InvalidJobError            (ValueError)    a bad id, payload, priority .field
    │   ├── JobEndedError                          nothing to resume           .job_id .namespace
    │   └── PayloadError                           not what the handler takes  .problem
    ├── JobExistsError             (ValueError)                                .job_id .namespace
    ├── QuotaError                 (ValueError)    a tenant may not do this    .namespace .limit
    ├── JobNotFoundError           (LookupError)                               .job_id .namespace
    ├── HandlerNotFoundError       (LookupError)                               .handler
    ├── RunNotFoundError           (LookupError)                               .run_id
    ├── BackfillNotFoundError      (LookupError)                               .number
    ├── RunEndedError              (RuntimeError)  nothing to cancel           .run_id
    ├── RunTimeoutError            (TimeoutError)  the wait was too short      .run_id .timeout .has_begun
    ├── JobAlreadyRunningError     (RuntimeError)                              .job_id .namespace .requested_run
    ├── JobDisabledError           (RuntimeError)  nothing to pause            .job_id .namespace
    ├── JobChangedError            (RuntimeError)  edited in the meantime      .job_id .namespace .revision
    ├── SchedulerStoppingError     (RuntimeError)  no new run starts
    ├── SchedulerShutdownError     (TimeoutError)  stop() ran out of time      .timed_out .running
    ├── RunsNotSettledError        (TimeoutError)  advance() ran out of time   .jobs .timeout
    └── StoreError                 (OSError)       the store cannot be used
        ├── StoreBusyError                         the answer took too long    .store .limit
        └── StoreOutdatedError                     a newer version upgraded it    .store .version .known

Each is raised before anything has changed. Its message says what is wrong and how to fix it. If the fix is a call,
the message has two parts: `.sentence` says what is wrong, and `.remedy` which call helps. The command line shows the
sentence, with a remedy of its own.
"""

from __future__ import annotations

from datetime import timedelta

# Long enough to recognise the input, short enough for one line of a log.
_QUOTED_LENGTH = 60

# An error about many jobs names only the first of them.
_NAMED_JOBS = 5
# A message shows values of these types, but not of their subclasses: their str() may do anything.
_SHOWN = frozenset({type(None), bool, int, float, timedelta})
_SHOWN_BITS = 64


def quoted(value: object) -> str:
    """Return *value* for a message: a string in double quotes, cut if it is long, a number, or the name of its type.

    What is not printable is escaped, so that a message has one line and controls no terminal.
    """
    if isinstance(value, str):
        text, closing = value, '"'
        # repr() of ten megabytes would be slow. The part that is cut off needs no escaping.
        if len(text) > _QUOTED_LENGTH:
            text, closing = text[:_QUOTED_LENGTH], f'…" ({len(value):,} characters)'
        return f'"{"".join(map(_printable, text))}{closing}'
    # str() refuses an integer with thousands of digits.
    if type(value) not in _SHOWN or (isinstance(value, int) and value.bit_length() > _SHOWN_BITS):
        return f"a value of type {type(value).__name__}"
    return str(value)


def _printable(char: str) -> str:
    return char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode("ascii")


class SchedulerError(Exception):
    """The base class of all errors that the scheduler raises."""


class InvalidScheduleError(SchedulerError, ValueError):
    """A schedule is not valid."""


class IntervalParseError(InvalidScheduleError):
    """A duration such as "5m" cannot be read; *interval* is the value that was given."""

    def __init__(self, message: str, interval: object) -> None:
        super().__init__(message)
        self.interval = interval

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.interval)


class CronParseError(InvalidScheduleError):
    """A cron expression is not valid; *field* names the field that is wrong, if it is a single one."""

    def __init__(self, message: str, expression: object, field: str | None = None) -> None:
        super().__init__(message)
        self.expression = expression
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.expression, self.field)


class UnknownZoneError(InvalidScheduleError):
    """A time zone is not in the zone database, or cannot be stored."""

    def __init__(self, zone: object, suggestion: str | None = None, problem: str | None = None) -> None:
        hint = f" Did you mean {quoted(suggestion)}?" if suggestion else ""
        super().__init__(
            f'{problem} Use ZoneInfo("Europe/Stockholm"), the name of a zone, or an offset such as "+05:30".'
            if problem
            else f"Unknown time zone {quoted(zone)}.{hint} Use an IANA name such as "
            '"Europe/Stockholm" or "UTC", or an offset such as "+05:30".'
        )
        self.zone = zone
        self.suggestion = suggestion
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.zone, self.suggestion, self.problem)


class UnknownScheduleError(InvalidScheduleError):
    """A stored schedule is of a *kind* that this process does not know, or needs a library that it does not have."""

    def __init__(self, message: str, kind: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.kind)


class InvalidJobError(SchedulerError, ValueError):
    """An argument is not valid; *field* names it."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.field)


def _named(job_id: str, namespace: str) -> str:
    return quoted(job_id) + ("" if namespace == "default" else f" in namespace {quoted(namespace)}")


class JobEndedError(InvalidJobError):
    """The schedule of the job has no occurrences left, so it cannot be resumed."""

    remedy = "Give it a new schedule with update_job(), or run it once more with trigger_job()."

    def __init__(self, job_id: str, namespace: str = "default") -> None:
        self.sentence = f"Job {_named(job_id, namespace)} has ended: its schedule has no occurrences left."
        super().__init__(f"{self.sentence} {self.remedy}", "schedule")
        self.job_id = job_id
        self.namespace = namespace

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job_id, self.namespace)


class _JobError(SchedulerError):
    """An error about the job that the caller named."""

    pattern: str
    remedy: str

    def __init__(self, job_id: str, namespace: str = "default") -> None:
        self.sentence = self.pattern.format(job=_named(job_id, namespace))
        super().__init__(f"{self.sentence} {self.remedy}")
        self.job_id = job_id
        self.namespace = namespace

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job_id, self.namespace)


class PayloadError(InvalidJobError):
    """The handler does not take this payload; *problem* says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The payload does not fit the handler: {problem}.", "payload")
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem,)


class JobExistsError(_JobError, ValueError):
    """A job with this id already exists."""

    pattern = "Job {job} already exists."
    remedy = 'Choose another id, or pass on_conflict="replace" to change it or on_conflict="keep" to leave it as it is.'


class JobDisabledError(_JobError, RuntimeError):
    """The job is disabled, so it cannot be paused."""

    pattern = "Job {job} is disabled, so it cannot be paused."
    remedy = "It does not start until you call resume_job()."


class JobChangedError(_JobError, RuntimeError):
    """The job was edited since the caller read it: it has another *revision*."""

    pattern = "Job {job} was edited in the meantime."
    remedy = "Read it again with get_job(), then edit it."

    def __init__(self, job_id: str, namespace: str = "default", revision: int = 0) -> None:
        self.pattern = f"Job {{job}} was edited in the meantime: its revision is {revision}."
        super().__init__(job_id, namespace)
        self.revision = revision

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job_id, self.namespace, self.revision)


class JobNotFoundError(_JobError, LookupError):
    """No job has this id in the namespace."""

    pattern = "Job {job} not found."
    remedy = "list_jobs() shows the jobs that exist."


class QuotaError(SchedulerError, ValueError):
    """A tenant may not do this: a *limit* of its *namespace*, "handlers", "max_jobs", "max_payload" or "schedule"."""

    def __init__(self, message: str, namespace: str, limit: str) -> None:
        super().__init__(message)
        self.namespace = namespace
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.namespace, self.limit)


class HandlerNotFoundError(SchedulerError, LookupError):
    """No handler is registered under this name."""

    def __init__(self, handler: object) -> None:
        super().__init__(f"Handler {quoted(handler)} not found. Pass the name under which it is registered.")
        self.handler = handler

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.handler,)


class RunNotFoundError(SchedulerError, LookupError):
    """The store has no run with this id."""

    remedy = "run_log() shows the runs that are kept."

    def __init__(self, run_id: int) -> None:
        self.sentence = f"Run {run_id} not found."
        super().__init__(f"{self.sentence} {self.remedy}")
        self.run_id = run_id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.run_id,)


class RunEndedError(SchedulerError, RuntimeError):
    """The run has ended, so it cannot be cancelled."""

    remedy = "get_run() shows how."

    def __init__(self, run_id: int) -> None:
        self.sentence = f"Run {run_id} has already ended."
        super().__init__(f"{self.sentence} {self.remedy}")
        self.run_id = run_id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.run_id,)


class BackfillNotFoundError(SchedulerError, LookupError):
    """The store has no backfill with this number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Backfill {number} not found. backfill_job() returns the number of a backfill.")
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.number,)


class RunTimeoutError(SchedulerError, TimeoutError):
    """The run has not ended within the *timeout* of the call that waits for it. It stays in progress."""

    remedy = "Wait again with wait_for_run(), or end it with cancel_run()."

    def __init__(self, run_id: int, timeout: float, has_begun: bool = True) -> None:
        """*has_begun* is False for a requested run that no scheduler has taken up."""
        self.sentence = (
            f"Run {run_id} has not ended within {timeout:g} s, and continues."
            if has_begun
            else f"Run {run_id} has not begun within {timeout:g} s. It waits for a scheduler that has its handler."
        )
        super().__init__(f"{self.sentence} {self.remedy}")
        self.run_id = run_id
        self.timeout = timeout
        self.has_begun = has_begun

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.run_id, self.timeout, self.has_begun)


class JobAlreadyRunningError(_JobError, RuntimeError):
    """The job is already running, and only one run of a job may be in progress."""

    pattern = "Job {job} is already running."
    remedy = "Only one run of a job may be in progress. Try again when it has ended."

    def __init__(self, job_id: str, namespace: str = "default", requested_run: int | None = None) -> None:
        """*requested_run* is the id of a run that another call has requested, and that has not begun yet."""
        if requested_run is not None:
            self.pattern = f"A run of job {{job}} is already requested (run {requested_run})."
            self.remedy = f"cancel_run({requested_run}) withdraws it."
        super().__init__(job_id, namespace)
        self.requested_run = requested_run

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job_id, self.namespace, self.requested_run)


class SchedulerStoppingError(SchedulerError, RuntimeError):
    """The scheduler is stopping, or stopped during the call, and cannot start a run."""

    def __init__(self) -> None:
        super().__init__("The scheduler is stopping and starts no new runs. Call again once it has stopped.")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()


class SchedulerShutdownError(SchedulerError, TimeoutError):
    """stop() reached its timeout; *running* runs were still in progress."""

    remedy = "Call stop() with a longer timeout, or with cancel=True to cancel them."

    def __init__(self, timeout: float | None, running: int) -> None:
        runs = "1 run is" if running == 1 else f"{running} runs are"
        waited = "" if timeout is None else f" after {timeout:g} s"
        self.sentence = f"{runs} still in progress{waited}."
        super().__init__(f"{self.sentence} {self.remedy}")
        self.timeout = timeout
        self.running = running
        self.timed_out = True

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.timeout, self.running)


class RunsNotSettledError(SchedulerError, TimeoutError):
    """`VirtualClock.advance` reached its real *timeout* in seconds: runs of *jobs* still wait for something real."""

    def __init__(self, timeout: float, jobs: tuple[str, ...]) -> None:
        shown = ", ".join(quoted(job) for job in jobs[:_NAMED_JOBS])
        if len(jobs) > _NAMED_JOBS:
            shown += f" and {len(jobs) - _NAMED_JOBS:,} more"
        subject, verb = ("the run of job", "waits") if len(jobs) == 1 else ("the runs of jobs", "wait")
        super().__init__(
            f"After {timeout:g} s of real time, {subject} {shown} still {verb} for something real: a thread, a socket "
            "or a sleep. Let the handler await clock.sleep() instead, or pass advance() a longer real_timeout or "
            "wait_for_runs=False."
        )
        self.timeout = timeout
        self.jobs = jobs

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.timeout, self.jobs)


class StoreError(SchedulerError, OSError):
    """The store cannot be read or written. Nothing in it was changed."""


class StoreBusyError(StoreError):
    """The answer took too long, and was cut off so that others do not wait for it. Ask for less, or later."""

    def __init__(self, store: str, limit: float) -> None:
        super().__init__(f"The store {store} did not answer within {limit:g} s. Narrow the search, or try again later.")
        self.store = store
        self.limit = limit

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.store, self.limit)


class StoreOutdatedError(StoreError):
    """A newer scheduler_async has upgraded the *store* to schema *version*; this one supports up to *known*."""

    def __init__(self, store: str, version: int, known: int) -> None:
        super().__init__(
            f"The store {store} has schema version {version}; this version of scheduler_async supports up to {known}. "
            "A newer version has upgraded the store: upgrade scheduler_async here too."
        )
        self.store = store
        self.version = version
        self.known = known

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.store, self.version, self.known)
