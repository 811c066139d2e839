"""A persistent job scheduler for asyncio."""

from scheduler_async.clock import Clock, SystemClock
from scheduler_async.errors import (
    CronParseError,
    IntervalParseError,
    InvalidJobError,
    InvalidScheduleError,
    JobAlreadyRunningError,
    JobExistsError,
    JobNotFoundError,
    SchedulerError,
    SchedulerShutdownError,
    StoreError,
    UnknownZoneError,
)
from scheduler_async.events import Event, EventKind
from scheduler_async.handlers import current_run
from scheduler_async.models import (
    Explanation,
    Job,
    JobSpec,
    Misfire,
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
from scheduler_async.retries import Retry
from scheduler_async.scheduler import Scheduler, SchedulerState
from scheduler_async.schedules import At, Cron, Delay, Every, Manual, Schedule, parse_schedule
from scheduler_async.sqlite import SQLiteStore
from scheduler_async.stats import RunStats
from scheduler_async.store import Store

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
    "IntervalParseError",
    "InvalidJobError",
    "InvalidScheduleError",
    "Job",
    "JobAlreadyRunningError",
    "JobExistsError",
    "JobNotFoundError",
    "JobSpec",
    "Manual",
    "Misfire",
    "Namespace",
    "OnConflict",
    "OnInterrupt",
    "Outcome",
    "PassSummary",
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
    "SkipReason",
    "Status",
    "Store",
    "StoreError",
    "SystemClock",
    "Trigger",
    "UnknownZoneError",
    "Upcoming",
    "current_run",
    "parse_schedule",
]
