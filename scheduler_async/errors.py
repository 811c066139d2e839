"""Everything the scheduler raises on purpose.

    SchedulerError
    ├── InvalidScheduleError       (ValueError)    a schedule that makes no sense
    │   ├── IntervalParseError                     "5x", "0m", "-5m"           .interval
    │   ├── CronParseError                         "61 * * * *"                .expression .field
    │   └── UnknownZoneError                       "Europe/Stokholm"           .zone
    ├── InvalidJobError            (ValueError)    a bad id, payload, priority .field
    │   ├── JobEndedError                          nothing to resume           .job_id .namespace
    │   └── PayloadError                           not what the handler takes  .problem
    ├── JobExistsError             (ValueError)                                .job_id .namespace
    ├── JobNotFoundError           (LookupError)                               .job_id .namespace
    ├── HandlerNotFoundError       (LookupError)                               .handler
    ├── JobAlreadyRunningError     (RuntimeError)                              .job_id .namespace
    ├── SchedulerStoppingError     (RuntimeError)  no new run starts
    ├── SchedulerShutdownError     (TimeoutError)  stop() ran out of time      .timed_out .running
    └── StoreError                 (OSError)       the store cannot be used
        └── StoreOutdatedError                     a newer version upgraded it    .store .version .known

Each is raised before anything has changed, and its message says what was wrong and what would be right. Where that
is a call, it stands apart: `.sentence` says what was wrong, `.remedy` what to call, and whoever shows it to people
that call nothing writes a remedy of its own.
"""

from __future__ import annotations

# Long enough to recognise what one typed, short enough for one line of a log.
_QUOTED_LENGTH = 60


def quoted(value: object) -> str:
    """*value* as it goes into a message: in double quotes, and cut when it is long."""
    if isinstance(value, str):
        text, closing = value, '"'
        # repr() of ten megabytes would be slow; what is cut off needs no escaping.
        if len(text) > _QUOTED_LENGTH:
            text, closing = text[:_QUOTED_LENGTH], f'…" ({len(value):,} characters)'
        return f'"{text.encode("unicode_escape").decode("ascii")}{closing}'
    return "None" if value is None else f"a value of type {type(value).__name__}"


class SchedulerError(Exception):
    """The root of everything the scheduler raises on purpose."""


class InvalidScheduleError(SchedulerError, ValueError):
    """A schedule was described in a way that makes no sense."""


class IntervalParseError(InvalidScheduleError):
    """A duration such as "5m" could not be read; *interval* is what was given."""

    def __init__(self, message: str, interval: object) -> None:
        super().__init__(message)
        self.interval = interval

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.interval)


class CronParseError(InvalidScheduleError):
    """A cron expression was refused; *field* names the part that is wrong, if it is one part."""

    def __init__(self, message: str, expression: object, field: str | None = None) -> None:
        super().__init__(message)
        self.expression = expression
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.expression, self.field)


class UnknownZoneError(InvalidScheduleError):
    """A time zone that the zone database does not have, or that cannot be stored."""

    def __init__(self, zone: object, suggestion: str | None = None, problem: str | None = None) -> None:
        hint = f" Did you mean {quoted(suggestion)}?" if suggestion else ""
        super().__init__(
            f'{problem} Use ZoneInfo("Europe/Stockholm"), the name of a zone, or an offset such as "+05:30".'
            if problem
            else f"Unknown time zone {quoted(zone)}.{hint} Zones have IANA names, such as "
            '"Europe/Stockholm" or "UTC", or are offsets such as "+05:30".'
        )
        self.zone = zone
        self.suggestion = suggestion
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.zone, self.suggestion, self.problem)


class InvalidJobError(SchedulerError, ValueError):
    """A job was described in a way that makes no sense; *field* names the argument."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.field)


def _named(job_id: str, namespace: str) -> str:
    return quoted(job_id) + ("" if namespace == "default" else f" in namespace {quoted(namespace)}")


class JobEndedError(InvalidJobError):
    """Nothing is left of the job's schedule, so that it cannot go on."""

    remedy = "Give it a new one with update_job(), or run it once more with trigger_job()."

    def __init__(self, job_id: str, namespace: str = "default") -> None:
        self.sentence = f"Job {_named(job_id, namespace)} has ended: nothing is left of its schedule."
        super().__init__(f"{self.sentence} {self.remedy}", "schedule")
        self.job_id = job_id
        self.namespace = namespace

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.job_id, self.namespace)


class _JobError(SchedulerError):
    """An error about one job that the caller named."""

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
    """A payload does not fit what its handler takes; *problem* says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The payload does not fit the handler: {problem}.", "payload")
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem,)


class JobExistsError(_JobError, ValueError):
    """A job with this id is there already."""

    pattern = "There is a job {job} already."
    remedy = 'Choose another id, or pass on_conflict="replace" to change it or on_conflict="keep" to leave it as it is.'


class JobNotFoundError(_JobError, LookupError):
    """No job has this id."""

    pattern = "There is no job {job}."
    remedy = "list_jobs() shows the jobs there are."


class HandlerNotFoundError(SchedulerError, LookupError):
    """No handler is registered under this name."""

    def __init__(self, handler: object) -> None:
        super().__init__(f"Handler {quoted(handler)} not found. Pass the name under which it was registered.")
        self.handler = handler

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.handler,)


class JobAlreadyRunningError(_JobError, RuntimeError):
    """The job is running, and a job runs once at a time."""

    pattern = "Job {job} is running already."
    remedy = "A job runs once at a time: try again when it is done."


class SchedulerStoppingError(SchedulerError, RuntimeError):
    """The scheduler is stopping, or was stopped while it was asked to run something."""

    def __init__(self) -> None:
        super().__init__("The scheduler is stopping and starts no new runs. Call again once it has stopped.")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), ()


class SchedulerShutdownError(SchedulerError, TimeoutError):
    """stop() gave up waiting; *running* runs were still going."""

    remedy = "Give stop() a longer timeout, or cancel=True to end them."

    def __init__(self, timeout: float | None, running: int) -> None:
        runs = "1 run" if running == 1 else f"{running} runs"
        waited = "" if timeout is None else f" after {timeout:g} s"
        self.sentence = f"Still waiting for {runs}{waited}."
        super().__init__(f"{self.sentence} {self.remedy}")
        self.timeout = timeout
        self.running = running
        self.timed_out = True

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.timeout, self.running)


class StoreError(SchedulerError, OSError):
    """The store cannot be read or written; nothing in it was changed."""


class StoreOutdatedError(StoreError):
    """A newer version has upgraded the *store* to a schema *version* beyond *known*; this one can only read it."""

    def __init__(self, store: str, version: int, known: int) -> None:
        super().__init__(
            f"The store {store} has schema version {version}, and this scheduler_async knows up to {known}. "
            "A newer version made it: upgrade scheduler_async."
        )
        self.store = store
        self.version = version
        self.known = known

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.store, self.version, self.known)
