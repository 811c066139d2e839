"""A persistent job scheduler for asyncio."""

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
from scheduler_async.schedules import At, Cron, Delay, Every, Manual, Schedule, parse_schedule

__all__ = [
    "At",
    "Cron",
    "CronParseError",
    "Delay",
    "Every",
    "IntervalParseError",
    "InvalidJobError",
    "InvalidScheduleError",
    "JobAlreadyRunningError",
    "JobExistsError",
    "JobNotFoundError",
    "Manual",
    "Schedule",
    "SchedulerError",
    "SchedulerShutdownError",
    "StoreError",
    "UnknownZoneError",
    "parse_schedule",
]
