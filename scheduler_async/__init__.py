"""A persistent job scheduler for asyncio."""

from importlib import import_module

# As type checkers know it. To load `typing` takes a while, in which the command line cannot be interrupted in style.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from scheduler_async.clock import Clock, SystemClock
    from scheduler_async.errors import (
        CronParseError,
        HandlerNotFoundError,
        IntervalParseError,
        InvalidJobError,
        InvalidScheduleError,
        JobAlreadyRunningError,
        JobEndedError,
        JobExistsError,
        JobNotFoundError,
        PayloadError,
        SchedulerError,
        SchedulerShutdownError,
        SchedulerStoppingError,
        StoreError,
        StoreOutdatedError,
        UnknownZoneError,
    )
    from scheduler_async.events import Event, EventKind
    from scheduler_async.handlers import current_run
    from scheduler_async.health import Health
    from scheduler_async.models import (
        Explanation,
        Job,
        JobSpec,
        Misfire,
        Node,
        OnConflict,
        OnInterrupt,
        Outcome,
        PassSummary,
        Priority,
        Result,
        Run,
        RunRow,
        SkipReason,
        Status,
        Trigger,
        Upcoming,
    )
    from scheduler_async.namespace import Namespace
    from scheduler_async.postgres import PostgresStore
    from scheduler_async.retries import Retry
    from scheduler_async.scheduler import Scheduler, SchedulerState
    from scheduler_async.schedules import At, Cron, Delay, Every, Manual, Schedule, parse_schedule
    from scheduler_async.sqlite import SQLiteStore
    from scheduler_async.stats import RunStats
    from scheduler_async.store import Store

__version__ = "0.1.0"

__all__ = [
    "At",
    "Clock",
    "Cron",
    "CronParseError",
    "Delay",
    "Event",
    "EventKind",
    "Every",
    "Explanation",
    "HandlerNotFoundError",
    "Health",
    "IntervalParseError",
    "InvalidJobError",
    "InvalidScheduleError",
    "Job",
    "JobAlreadyRunningError",
    "JobEndedError",
    "JobExistsError",
    "JobNotFoundError",
    "JobSpec",
    "Manual",
    "Misfire",
    "Namespace",
    "Node",
    "OnConflict",
    "OnInterrupt",
    "Outcome",
    "PassSummary",
    "PayloadError",
    "PostgresStore",
    "Priority",
    "Result",
    "Retry",
    "Run",
    "RunRow",
    "RunStats",
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
    "StoreError",
    "StoreOutdatedError",
    "SystemClock",
    "Trigger",
    "UnknownZoneError",
    "Upcoming",
    "current_run",
    "parse_schedule",
]

# Names are fetched when they are first asked for: all of it takes ten times as long as `scheduler-async --help`.
_NAMES = {
    "clock": (
        "Clock",
        "SystemClock",
    ),
    "errors": (
        "CronParseError",
        "HandlerNotFoundError",
        "IntervalParseError",
        "InvalidJobError",
        "InvalidScheduleError",
        "JobAlreadyRunningError",
        "JobEndedError",
        "JobExistsError",
        "JobNotFoundError",
        "PayloadError",
        "SchedulerError",
        "SchedulerShutdownError",
        "SchedulerStoppingError",
        "StoreError",
        "StoreOutdatedError",
        "UnknownZoneError",
    ),
    "events": (
        "Event",
        "EventKind",
    ),
    "handlers": ("current_run",),
    "health": ("Health",),
    "models": (
        "Explanation",
        "Job",
        "JobSpec",
        "Misfire",
        "Node",
        "OnConflict",
        "OnInterrupt",
        "Outcome",
        "PassSummary",
        "Priority",
        "Result",
        "Run",
        "RunRow",
        "SkipReason",
        "Status",
        "Trigger",
        "Upcoming",
    ),
    "namespace": ("Namespace",),
    "postgres": ("PostgresStore",),
    "retries": ("Retry",),
    "scheduler": (
        "Scheduler",
        "SchedulerState",
    ),
    "schedules": (
        "At",
        "Cron",
        "Delay",
        "Every",
        "Manual",
        "Schedule",
        "parse_schedule",
    ),
    "sqlite": ("SQLiteStore",),
    "stats": ("RunStats",),
    "store": ("Store",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
