"""Print the next occurrences of five kinds of schedules, and what daylight saving does to them.

python examples/schedules.py
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from scheduler_async import At, Cron, CronParseError, Delay, Every, Manual, Schedule, parse_schedule

STOCKHOLM = ZoneInfo("Europe/Stockholm")


def show(schedule: Schedule, now: datetime, count: int = 3) -> None:
    """Print the description of a schedule and its next occurrences, in Stockholm time."""
    print(f"\n{schedule.describe()}")
    moment = schedule.next_after(now)
    for _ in range(count):
        if moment is None:
            break
        print(f"    {moment.astimezone(STOCKHOLM):%a %d %b %H:%M %Z}")
        moment = schedule.next_after(moment)


def main() -> None:
    noon = datetime(2026, 3, 28, 12, tzinfo=UTC)  # the day before the clocks go forward
    print(f"It is {noon:%A, %d %B %Y, %H:%M} UTC.")

    show(Every("8h", anchor=noon), noon)
    show(Delay("5m"), noon, count=1)
    show(At("2026-06-15T09:00:00Z"), noon)
    show(Manual(), noon)

    print("\n-- Tonight the clocks skip from 02:00 to 03:00. A fixed time still runs once; a cadence keeps its pace.")
    show(Cron("30 2 * * *", tz="Europe/Stockholm"), noon)
    show(Cron("*/20 1-3 * * *", tz="Europe/Stockholm"), noon, count=7)

    print("\n-- In October the hour from 02:00 to 03:00 comes twice.")
    october = datetime(2026, 10, 24, 12, tzinfo=UTC)
    show(Cron("30 2 * * *", tz="Europe/Stockholm"), october)
    show(Cron("*/30 2 * * *", tz="Europe/Stockholm"), october, count=5)

    print("\n-- Schedules as people type them, and the answer to a mistake.")
    for text in ("every 5m", "@daily", "2026-06-15T09:00:00Z", "0 9 * * 1-5"):
        print(f"{text:>22} -> {parse_schedule(text).describe()}")
    try:
        parse_schedule("0 25 * * *")
    except CronParseError as error:
        print(f"{'0 25 * * *':>22} -> {error}")


if __name__ == "__main__":
    main()
