"""A persistent job scheduler for asyncio."""

from importlib import import_module

# Type checkers know this name. Importing `typing` takes a while, during which Ctrl-C would show a traceback.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from scheduler_async.calls.from_thread import FromThread
    from scheduler_async.calls.namespace import Namespace
    from scheduler_async.engine.health import Health
    from scheduler_async.errors import (
        BackfillNotFoundError,
        CronParseError,
        HandlerNotFoundError,
        IntervalParseError,
        InvalidJobError,
        InvalidScheduleError,
        JobAlreadyRunningError,
        JobChangedError,
        JobDisabledError,
        JobEndedError,
        JobExistsError,
        JobNotFoundError,
        PayloadError,
        QuotaError,
        RunEndedError,
        RunNotFoundError,
        RunsNotSettledError,
        RunTimeoutError,
        SchedulerError,
        SchedulerShutdownError,
        SchedulerStoppingError,
        StoreBusyError,
        StoreError,
        StoreOutdatedError,
        UnknownScheduleError,
        UnknownZoneError,
    )
    from scheduler_async.jobs.answers import Explanation, Node, PassSummary, SchedulerState, Upcoming
    from scheduler_async.jobs.backfill import Backfill, BackfillState
    from scheduler_async.jobs.enums import (
        Misfire,
        OnConflict,
        OnInterrupt,
        Outcome,
        Overlap,
        Priority,
        SkipReason,
        Status,
        Trigger,
    )
    from scheduler_async.jobs.events import Event, EventKind
    from scheduler_async.jobs.history import Action, ChangeRow, NodeFate, NodeSpan, acting_as
    from scheduler_async.jobs.job import Job
    from scheduler_async.jobs.pages import Concern, ConcernKind, Count, Counts, Page, Planned, TallyRow
    from scheduler_async.jobs.result import Result
    from scheduler_async.jobs.retries import Retry
    from scheduler_async.jobs.run import Run, RunRow
    from scheduler_async.jobs.spec import JobSpec
    from scheduler_async.jobs.statistics import RunStats
    from scheduler_async.options import JobChanges, JobFilters, JobOptions
    from scheduler_async.running.handlers import current_run
    from scheduler_async.scheduler import Scheduler
    from scheduler_async.schedules.after import After
    from scheduler_async.schedules.any_of import AnyOf
    from scheduler_async.schedules.at import At
    from scheduler_async.schedules.base import Schedule
    from scheduler_async.schedules.calendars import BusinessDays, Calendar, Dates, Holidays, Hours, Weekdays
    from scheduler_async.schedules.cron import Cron
    from scheduler_async.schedules.delay import Delay
    from scheduler_async.schedules.every import Every
    from scheduler_async.schedules.manual import Manual
    from scheduler_async.schedules.next_runs import Occurrence
    from scheduler_async.schedules.parsing import parse_schedule
    from scheduler_async.stores.memory.store import MemoryStore
    from scheduler_async.stores.postgres.store import PostgresStore
    from scheduler_async.stores.protocol import Store
    from scheduler_async.stores.sqlite.store import SQLiteStore
    from scheduler_async.timekeeping.clock import Clock, SystemClock

__version__ = "0.1.0"

__all__ = [
    "Action",
    "After",
    "AnyOf",
    "At",
    "Backfill",
    "BackfillNotFoundError",
    "BackfillState",
    "BusinessDays",
    "Calendar",
    "ChangeRow",
    "Clock",
    "Concern",
    "ConcernKind",
    "Count",
    "Counts",
    "Cron",
    "CronParseError",
    "Dates",
    "Delay",
    "Event",
    "EventKind",
    "Every",
    "Explanation",
    "FromThread",
    "HandlerNotFoundError",
    "Health",
    "Holidays",
    "Hours",
    "IntervalParseError",
    "InvalidJobError",
    "InvalidScheduleError",
    "Job",
    "JobAlreadyRunningError",
    "JobChangedError",
    "JobChanges",
    "JobDisabledError",
    "JobEndedError",
    "JobExistsError",
    "JobFilters",
    "JobNotFoundError",
    "JobOptions",
    "JobSpec",
    "Manual",
    "MemoryStore",
    "Misfire",
    "Namespace",
    "Node",
    "NodeFate",
    "NodeSpan",
    "Occurrence",
    "OnConflict",
    "OnInterrupt",
    "Outcome",
    "Overlap",
    "Page",
    "PassSummary",
    "PayloadError",
    "Planned",
    "PostgresStore",
    "Priority",
    "QuotaError",
    "Result",
    "Retry",
    "Run",
    "RunEndedError",
    "RunNotFoundError",
    "RunRow",
    "RunStats",
    "RunTimeoutError",
    "RunsNotSettledError",
    "SQLiteStore",
    "Schedule",
    "Scheduler",
    "SchedulerError",
    "SchedulerShutdownError",
    "SchedulerState",
    "SchedulerStoppingError",
    "SkipReason",
    "Status",
    "Store",
    "StoreBusyError",
    "StoreError",
    "StoreOutdatedError",
    "SystemClock",
    "TallyRow",
    "Trigger",
    "UnknownScheduleError",
    "UnknownZoneError",
    "Upcoming",
    "Weekdays",
    "acting_as",
    "current_run",
    "parse_schedule",
]

# Names are imported when they are first used: importing all takes ten times as long as `scheduler-async --help`.
_NAMES = {
    "engine.health": ("Health",),
    "errors": (
        "CronParseError",
        "HandlerNotFoundError",
        "IntervalParseError",
        "InvalidJobError",
        "InvalidScheduleError",
        "JobAlreadyRunningError",
        "JobChangedError",
        "JobDisabledError",
        "JobEndedError",
        "JobExistsError",
        "JobNotFoundError",
        "PayloadError",
        "QuotaError",
        "BackfillNotFoundError",
        "RunEndedError",
        "RunNotFoundError",
        "RunsNotSettledError",
        "RunTimeoutError",
        "SchedulerError",
        "SchedulerShutdownError",
        "SchedulerStoppingError",
        "StoreBusyError",
        "StoreError",
        "StoreOutdatedError",
        "UnknownScheduleError",
        "UnknownZoneError",
    ),
    "jobs.answers": (
        "Explanation",
        "Node",
        "PassSummary",
        "SchedulerState",
        "Upcoming",
    ),
    "jobs.backfill": (
        "Backfill",
        "BackfillState",
    ),
    "jobs.enums": (
        "Misfire",
        "OnConflict",
        "OnInterrupt",
        "Outcome",
        "Overlap",
        "Priority",
        "SkipReason",
        "Status",
        "Trigger",
    ),
    "jobs.events": (
        "Event",
        "EventKind",
    ),
    "jobs.history": (
        "Action",
        "ChangeRow",
        "NodeFate",
        "NodeSpan",
        "acting_as",
    ),
    "jobs.job": ("Job",),
    "jobs.pages": (
        "Concern",
        "ConcernKind",
        "Count",
        "Counts",
        "Page",
        "Planned",
        "TallyRow",
    ),
    "jobs.result": ("Result",),
    "jobs.retries": ("Retry",),
    "jobs.run": (
        "Run",
        "RunRow",
    ),
    "jobs.spec": ("JobSpec",),
    "jobs.statistics": ("RunStats",),
    "calls.from_thread": ("FromThread",),
    "calls.namespace": ("Namespace",),
    "options": (
        "JobChanges",
        "JobFilters",
        "JobOptions",
    ),
    "running.handlers": ("current_run",),
    "scheduler": ("Scheduler",),
    "schedules.after": ("After",),
    "schedules.any_of": ("AnyOf",),
    "schedules.at": ("At",),
    "schedules.base": ("Schedule",),
    "schedules.calendars": (
        "BusinessDays",
        "Calendar",
        "Dates",
        "Holidays",
        "Hours",
        "Weekdays",
    ),
    "schedules.cron": ("Cron",),
    "schedules.delay": ("Delay",),
    "schedules.every": ("Every",),
    "schedules.manual": ("Manual",),
    "schedules.next_runs": ("Occurrence",),
    "schedules.parsing": ("parse_schedule",),
    "stores.memory.store": ("MemoryStore",),
    "stores.postgres.store": ("PostgresStore",),
    "stores.protocol": ("Store",),
    "stores.sqlite.store": ("SQLiteStore",),
    "timekeeping.clock": (
        "Clock",
        "SystemClock",
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
