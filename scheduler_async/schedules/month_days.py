"""The days of `15W`, `LW` and `L-3` in cron expressions, month by month. Pure."""

from __future__ import annotations

import calendar
from datetime import date

from msgspec import Struct

_EPOCH = date(1970, 1, 1).toordinal()
# The longest wait is for 29 February: eight years, around 2100.
MOST_MONTHS = 50 * 12


class MonthDays(Struct, frozen=True, kw_only=True):
    """Days that depend on the length of a month and on its weekdays, which croniter does not find."""

    months: tuple[int, ...]
    nearest_weekdays: tuple[int, ...]
    """15 is the weekday nearest to the 15th (`15W`)."""
    last_weekday: bool
    """Whether the last weekday of the month matches (`LW`)."""
    before_last: tuple[int, ...]
    """3 is three days before the last day of the month (`L-3`)."""

    def nearest(self, day: int, direction: int) -> int | None:
        """Return the nearest matching day, from *day* on in *direction*."""
        if not 1 <= day + _EPOCH <= date.max.toordinal():
            return None
        there = date.fromordinal(day + _EPOCH)
        year, month = there.year, there.month
        for _ in range(MOST_MONTHS):
            if not 1 <= year <= 9999:
                return None
            if month in self.months:
                first = date(year, month, 1).toordinal() - _EPOCH - 1
                days = [first + number for number in self.days_of(year, month)]
                found = [one for one in days if one >= day] if direction > 0 else [one for one in days if one <= day]
                if found:
                    return min(found) if direction > 0 else max(found)
            month += direction
            if not 1 <= month <= 12:
                year, month = year + direction, 1 if direction > 0 else 12
        return None

    def days_of(self, year: int, month: int) -> set[int]:
        """Return the days of the month that match. A month that lacks such a day has none."""
        first_weekday, length = calendar.monthrange(year, month)

        def weekday_near(day: int) -> int:
            weekday = (first_weekday + day - 1) % 7
            if weekday == calendar.SATURDAY:
                return day - 1 if day > 1 else day + 2
            if weekday == calendar.SUNDAY:
                return day + 1 if day < length else day - 2
            return day

        found = {weekday_near(day) for day in self.nearest_weekdays if day <= length}
        found |= {length - before for before in self.before_last if before < length}
        if self.last_weekday:
            found.add(length - max((first_weekday + length - 1) % 7 - 4, 0))
        return found
