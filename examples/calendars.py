"""Keep jobs on a calendar: business days, opening hours, days off, and a schedule of your own.

python examples/calendars.py

It needs the library holidays: pip install "scheduler-async[holidays]". It prints:

    payroll: at 09:00 on the last day of the month, moved to an earlier day if not on business days in SE
        Fri 29 May 09:00  moved from Sunday 31 May to Friday 29 May
        Tue 30 Jun 09:00
    sync: every 2 hours, only on business days in SE and from 08:00 to 18:00
        Thu 30 Apr 16:00
        Mon 04 May 08:00
        Mon 04 May 10:00
    digest: at 07:00, postponed if not from 09:00 to 12:00, or at 11:00 on Saturday
        Fri 01 May 09:00  moved from 07:00 to 09:00
        Sat 02 May 09:00  moved from 07:00 to 09:00
        Sat 02 May 11:00
    backup: twice as long after each run, from 2026-04-30 12:00 UTC
        Thu 30 Apr 15:00
        Thu 30 Apr 16:00
        Thu 30 Apr 18:00
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from scheduler_async import AnyOf, BusinessDays, Cron, Every, Hours, Run, Schedule, Scheduler
from scheduler_async.testing import VirtualClock

STOCKHOLM = ZoneInfo("Europe/Stockholm")
START = datetime(2026, 4, 30, 12, tzinfo=UTC)  # the day before a public holiday and a weekend


@dataclass(frozen=True)
class Doubling(Schedule):
    """Runs an hour after *since*, then after two hours, after four, and so on."""

    kind = "doubling"
    since: datetime

    def next_after(self, now: datetime) -> datetime | None:
        wait = timedelta(hours=1)
        while self.since + wait <= now:
            wait *= 2
        return self.since + wait

    def describe(self, zone: str | tzinfo = UTC) -> str:
        since = self.since.astimezone(ZoneInfo(zone) if isinstance(zone, str) else zone)
        return f"twice as long after each run, from {since:%Y-%m-%d %H:%M %Z}"


SCHEDULES: dict[str, Schedule] = {
    # Pay on the last business day of the month.
    "payroll": Cron("0 9 L * *").on(BusinessDays("SE"), otherwise="before"),
    # Talk to the office only while somebody is there.
    "sync": Every("2h").on(BusinessDays("SE") & Hours("08:00-18:00")),
    # Write to people in the morning, not at night.
    "digest": AnyOf(Cron("0 7 * * *").on(Hours("09:00-12:00"), otherwise="after"), Cron("0 11 * * SAT")),
    "backup": Doubling(START),
}


async def main() -> None:
    # Schedules without a time zone are in this one.
    scheduler = Scheduler(":memory:", clock=VirtualClock(START), timezone=STOCKHOLM)

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        print(f"{run.job_id} runs")

    for name, schedule in SCHEDULES.items():
        await scheduler.add_job(schedule, handler="work", id=name)
    upcoming = await scheduler.preview("90d")
    for name in SCHEDULES:
        job = await scheduler.get_job(name)
        assert job is not None
        print(f"{name}: {job.schedule.describe().replace(' (Europe/Stockholm)', '')}")
        for run in [one for one in upcoming if one.job.id == name][:3]:
            notes = "".join(f"  {warning}" for warning in run.warnings)
            print(f"    {run.at.astimezone(STOCKHOLM):%a %d %b %H:%M}{notes}")
    await scheduler.stop()


if __name__ == "__main__":
    asyncio.run(main())
