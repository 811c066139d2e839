"""When a job runs: schedules are pure values that answer "when next, strictly after this instant?".

A schedule knows no job, no store and no clock. `base` has what all kinds share and reads their JSON forms; each kind
has a module of its own; `cron_line` and `cron_english` read and describe cron expressions; `parsing` reads what a
person types. `calendars` are sets of days and of `windows`, and `on_calendar` keeps a schedule on one: `kept_inside`
and `moved_by_day` search. `own` and `own_fields` serve schedules that users write; `unknown` stands for those of
another process. What becomes of an occurrence that has passed is decided in `rules`.
"""

from scheduler_async.schedules.after import After
from scheduler_async.schedules.any_of import AnyOf
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.calendars import BusinessDays, Calendar, Dates, Holidays, Hours, Weekdays
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.delay import Delay
from scheduler_async.schedules.every import Every
from scheduler_async.schedules.manual import Manual
from scheduler_async.schedules.on_calendar import OnCalendar
from scheduler_async.schedules.parsing import parse_schedule
from scheduler_async.schedules.unknown import UnknownSchedule

__all__ = [
    "After",
    "AnyOf",
    "At",
    "BusinessDays",
    "Calendar",
    "Cron",
    "Dates",
    "Delay",
    "Every",
    "Holidays",
    "Hours",
    "Manual",
    "OnCalendar",
    "Schedule",
    "UnknownSchedule",
    "Weekdays",
    "parse_schedule",
]
