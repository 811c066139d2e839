"""When a job runs: schedules are pure values that answer "when next, strictly after this instant?".

A schedule knows no job, no store and no clock. `base` has what all kinds share and reads their JSON forms; each kind
has a module of its own; `cron_line` and `cron_english` read and describe cron expressions; `parsing` reads what a
person types. What becomes of an occurrence that has passed is decided in `rules`.
"""

from scheduler_async.schedules.after import After
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.schedules.cron import Cron
from scheduler_async.schedules.delay import Delay
from scheduler_async.schedules.every import Every
from scheduler_async.schedules.manual import Manual
from scheduler_async.schedules.parsing import parse_schedule

__all__ = ["After", "At", "Cron", "Delay", "Every", "Manual", "Schedule", "parse_schedule"]
