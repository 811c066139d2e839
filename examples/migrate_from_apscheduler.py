"""Migrate stored jobs from APScheduler 3: dump them to a plain table, then add them to scheduler_async.

1. In the old program, after `scheduler.start(paused=True)`, call `dump(scheduler.get_jobs(), connection)`. APScheduler
   reads its pickled jobs, and `dump` writes them as plain rows.
2. In the new program, call `migrate(connection, scheduler)`. You may repeat it: jobs that exist are kept.

Neither step needs both packages. Here, step 2 runs on a table with the rows that step 1 would write.

python examples/migrate_from_apscheduler.py

It prints:

    daily -> at 09:00 on Monday to Friday (Europe/Stockholm)
    month-end -> at 18:30:15 on the last day of the month (UTC)
    second-friday -> at 08:00 on the second Friday of the month (UTC)
    friday-13th -> at 00:00 on the 13th of the month (UTC), only on Friday
    poll -> every 5 minutes, counted from 2030-01-07 08:03 UTC, up to 10 seconds later
    launch -> once at 2030-06-15 07:00 UTC
    paused -> every hour
    not migrated: this-year: A cron expression has no year. Use start and end, or write a schedule of your own.
    not migrated: cleanup: no handler is known for myapp.jobs:cleanup
    daily gets {'to': 'ops', 'copies': 2}
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from scheduler_async import At, Every, Schedule, Scheduler, SchedulerError
from scheduler_async.migrating import cron_from_fields

TABLE = """
CREATE TABLE IF NOT EXISTS old_jobs (
    id TEXT PRIMARY KEY, func TEXT, trigger TEXT, args TEXT, kwargs TEXT, name TEXT, next_run_time TEXT
)
"""
INSERT = "INSERT INTO old_jobs VALUES (?, ?, ?, ?, ?, ?, ?)"

# For each function of the old jobs: the handler that replaces it, and the names of its positional arguments.
HANDLERS = {"myapp.jobs:send_report": ("send-report", ("to", "copies")), "myapp.jobs:fetch": ("fetch", ("url",))}


# ---------------------------------------------------------------- step 1, beside APScheduler


def dump(jobs: Iterable[Any], connection: sqlite3.Connection) -> None:
    """Write APScheduler's *jobs* as plain rows."""
    connection.execute(TABLE)
    for job in jobs:
        trigger = job.trigger
        parts: dict[str, Any] = {"kind": type(trigger).__name__, "jitter": getattr(trigger, "jitter", None)}
        if parts["kind"] == "CronTrigger":
            fields = {field.name: str(field) for field in trigger.fields}
            parts |= {"fields": fields, "timezone": str(trigger.timezone), "start": _text(trigger.start_date)}
        elif parts["kind"] == "IntervalTrigger":
            parts |= {"seconds": trigger.interval.total_seconds()}
        elif parts["kind"] == "DateTrigger":
            parts |= {"at": trigger.run_date.isoformat()}
        parts["end"] = _text(getattr(trigger, "end_date", None))
        texts = (json.dumps(parts), json.dumps(job.args), json.dumps(job.kwargs))
        connection.execute(INSERT, (job.id, job.func_ref, *texts, job.name, _text(job.next_run_time)))
    connection.commit()


def _text(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat()


# ---------------------------------------------------------------- step 2, beside scheduler_async


@dataclass
class NotMigratedError(Exception):
    """A job that has no equivalent."""

    reason: str


async def migrate(connection: sqlite3.Connection, scheduler: Scheduler) -> None:
    """Add the jobs of the table, and print the result for each."""
    refused = []
    for job_id, func, trigger, args, kwargs, name, next_run in connection.execute("SELECT * FROM old_jobs"):
        try:
            if func not in HANDLERS:
                raise NotMigratedError(f"no handler is known for {func}")
            handler, names = HANDLERS[func]
            job = await scheduler.add_job(
                schedule_of(json.loads(trigger), next_run),
                handler=handler,
                id=job_id,
                name=name,
                payload={**dict(zip(names, json.loads(args), strict=False)), **json.loads(kwargs)},
                enabled=next_run is not None,  # a paused job has no next run
                on_conflict="keep",
            )
            print(f"{job.id} -> {job.schedule.describe()}")
        except NotMigratedError as error:
            refused.append(f"{job_id}: {error.reason}")
        except SchedulerError as error:  # its schedule or its payload was refused
            refused.append(f"{job_id}: {error}")
    for line in refused:
        print(f"not migrated: {line}")


def schedule_of(trigger: dict[str, Any], next_run: str | None) -> Schedule:
    """Return the schedule that means the same as a *trigger*."""
    jitter = None if trigger.get("jitter") is None else timedelta(seconds=trigger["jitter"])
    end = trigger.get("end")
    match trigger["kind"]:
        case "DateTrigger":
            return At(trigger["at"])
        case "IntervalTrigger":
            return Every(timedelta(seconds=trigger["seconds"]), anchor=next_run, jitter=jitter, end=end)
        case "CronTrigger":
            return cron_from_fields(
                **trigger["fields"],
                timezone=trigger["timezone"],
                start_date=trigger.get("start"),
                end_date=end,
                jitter=trigger.get("jitter"),
            )
    raise NotMigratedError(f"a {trigger['kind']} has no equivalent")


# ---------------------------------------------------------------- an example

EVERY = {
    "year": "*",
    "month": "*",
    "day": "*",
    "week": "*",
    "day_of_week": "*",
    "hour": "0",
    "minute": "0",
    "second": "0",
}


def example_rows() -> Iterable[tuple[object, ...]]:
    """Rows as `dump` writes them."""

    def cron(zone: str, **fields: str) -> str:
        return json.dumps({"kind": "CronTrigger", "jitter": None, "fields": {**EVERY, **fields}, "timezone": zone})

    def interval(seconds: float, jitter: int | None = None) -> str:
        return json.dumps({"kind": "IntervalTrigger", "jitter": jitter, "seconds": seconds})

    report, fetch, url = "myapp.jobs:send_report", "myapp.jobs:fetch", '["https://example.com"]'
    soon = "2030-01-07T09:03:00+01:00"
    stockholm = cron("Europe/Stockholm", day_of_week="0-4", hour="9")
    yield "daily", report, stockholm, '["ops"]', '{"copies": 2}', "Daily report", soon
    yield "month-end", report, cron("UTC", day="last", hour="18", minute="30", second="15"), '["cfo"]', "{}", None, soon
    yield "second-friday", report, cron("UTC", day="2nd fri", hour="8"), '["ops"]', "{}", None, soon
    yield "friday-13th", report, cron("UTC", day="13", day_of_week="fri"), '["ops"]', "{}", None, soon
    yield "this-year", report, cron("UTC", year="2030", hour="8"), '["ops"]', "{}", None, soon
    yield "poll", fetch, interval(300, 10), url, "{}", None, soon
    launch = json.dumps({"kind": "DateTrigger", "at": "2030-06-15T09:00:00+02:00"})
    yield "launch", report, launch, '["all"]', "{}", None, "2030-06-15T09:00:00+02:00"
    yield "paused", fetch, interval(3600), url, "{}", None, None
    yield "cleanup", "myapp.jobs:cleanup", interval(60), "[]", "{}", None, soon


async def main() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        connection.executemany(INSERT, example_rows())
        scheduler = Scheduler(":memory:")
        await migrate(connection, scheduler)
        daily = await scheduler.get_job("daily")
        assert daily is not None
        print(f"daily gets {daily.payload}")
        await scheduler.stop()


if __name__ == "__main__":
    asyncio.run(main())
