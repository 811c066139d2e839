"""Cron around changes of the clock: a table to read, a sample of awkward zones, and, on request, every zone there is.

`pytest -m exhaustive -n auto` runs the last; the oracle that all are held against is in `daylight_oracle`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest

from scheduler_async import Cron, CronParseError
from scheduler_async.schedules.cron_line import parse_cron
from scheduler_async.timekeeping.zones import find_zone
from tests.daylight_oracle import DAY, HOUR, MINUTE, Change, changes, offset, read_line, walk

pytestmark = pytest.mark.once  # the version of Python does not matter

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def instant(at: int) -> datetime:
    return EPOCH + timedelta(seconds=at)


def seconds(moment: datetime) -> int:
    return round((moment - EPOCH).total_seconds())


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


Y1970, Y1980, Y2000, Y2038 = (seconds(datetime(year, 1, 1, tzinfo=UTC)) for year in (1970, 1980, 2000, 2038))


# --- A table to read ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Asked in *zone* after the instant *start*, *expression* runs at *runs*: ISO 8601, in the zone's own time."""

    zone: str
    expression: str
    start: str
    runs: tuple[str, ...]

    def expected(self) -> list[datetime]:
        return [datetime.fromisoformat(run).astimezone(UTC) for run in self.runs]

    def asked_at(self) -> datetime:
        return datetime.fromisoformat(self.start)


def case(says: str, zone: str, expression: str, start: str, *runs: str) -> object:
    return pytest.param(Case(zone, expression, start, runs), id=says)


STOCKHOLM = [  # 02:00 becomes 03:00 on 31 March 2024, and 03:00 becomes 02:00 on 27 October
    case(
        "Stockholm: a fixed time in the gap runs right after it",
        *("Europe/Stockholm", "30 2 * * *", "2024-03-30T00:00+01:00"),
        *("2024-03-30T02:30+01:00", "2024-03-31T03:00+02:00", "2024-04-01T02:30+02:00"),
    ),
    case(
        "Stockholm: sixty fixed times in the gap are one run",
        *("Europe/Stockholm", "0-59 2 * * *", "2024-03-30T02:58+01:00"),
        *("2024-03-30T02:59+01:00", "2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00"),
    ),
    case(
        "Stockholm: a swallowed time and one at the end of the gap are one run",
        *("Europe/Stockholm", "0 2,3 * * *", "2024-03-31T00:00+01:00"),
        *("2024-03-31T03:00+02:00", "2024-04-01T02:00+02:00", "2024-04-01T03:00+02:00"),
    ),
    case(
        "Stockholm: a swallowed time does not replace a later one",
        *("Europe/Stockholm", "30 2,3 * * *", "2024-03-31T00:00+01:00"),
        *("2024-03-31T03:00+02:00", "2024-03-31T03:30+02:00", "2024-04-01T02:30+02:00"),
    ),
    case(
        "Stockholm: the first minute after the gap is an ordinary one",
        *("Europe/Stockholm", "0 3 * * *", "2024-03-30T12:00+01:00"),
        *("2024-03-31T03:00+02:00", "2024-04-01T03:00+02:00"),
    ),
    case(
        "Stockholm: the last minute before the gap is an ordinary one",
        *("Europe/Stockholm", "59 1 * * *", "2024-03-30T12:00+01:00"),
        *("2024-03-31T01:59+01:00", "2024-04-01T01:59+02:00"),
    ),
    case(
        "Stockholm: every fifteen minutes leaps over the gap",
        *("Europe/Stockholm", "*/15 * * * *", "2024-03-31T01:30+01:00"),
        *("2024-03-31T01:45+01:00", "2024-03-31T03:00+02:00", "2024-03-31T03:15+02:00"),
    ),
    case(
        "Stockholm: a wildcard confined to the gap does not run that day",
        *("Europe/Stockholm", "* 2 * * *", "2024-03-30T02:58+01:00"),
        *("2024-03-30T02:59+01:00", "2024-04-01T02:00+02:00", "2024-04-01T02:01+02:00"),
    ),
    case(
        "Stockholm: a Sunday job in the gap runs on that Sunday",
        *("Europe/Stockholm", "30 2 * * SUN", "2024-03-25T00:00+01:00"),
        *("2024-03-31T03:00+02:00", "2024-04-07T02:30+02:00"),
    ),
    case(
        "Stockholm: a Monday job does not care about a gap on Sunday",
        *("Europe/Stockholm", "30 2 * * MON", "2024-03-30T00:00+01:00"),
        *("2024-04-01T02:30+02:00", "2024-04-08T02:30+02:00"),
    ),
    case(
        "Stockholm: a monthly job in the gap runs on that day",
        *("Europe/Stockholm", "30 2 31 * *", "2024-03-30T00:00+01:00"),
        *("2024-03-31T03:00+02:00",),
    ),
    case(
        "Stockholm: asked in the last second before the gap, a swallowed time is next",
        *("Europe/Stockholm", "30 2 * * *", "2024-03-31T01:59:59.999999+01:00"),
        *("2024-03-31T03:00+02:00",),
    ),
    case(
        "Stockholm: a fixed time in the repeated hour runs the first time round",
        *("Europe/Stockholm", "30 2 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"),
    ),
    case(
        "Stockholm: the start of the repeated hour runs the first time round",
        *("Europe/Stockholm", "0 2 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T02:00+02:00", "2024-10-28T02:00+01:00"),
    ),
    case(
        "Stockholm: the end of the repeated hour comes once",
        *("Europe/Stockholm", "0 3 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T03:00+01:00", "2024-10-28T03:00+01:00"),
    ),
    case(
        "Stockholm: asked during the second pass, a fixed time is due tomorrow",
        *("Europe/Stockholm", "30 2 * * *", "2024-10-27T02:10+01:00"),
        *("2024-10-28T02:30+01:00",),
    ),
    case(
        "Stockholm: every minute of two o'clock is a fixed line, so sixty runs and not more",
        *("Europe/Stockholm", "0-59 2 * * *", "2024-10-27T02:57+02:00"),
        *("2024-10-27T02:58+02:00", "2024-10-27T02:59+02:00", "2024-10-28T02:00+01:00"),
    ),
    case(
        "Stockholm: every fifteen minutes keeps its cadence through the repeated hour",
        *("Europe/Stockholm", "*/15 * * * *", "2024-10-27T02:30+02:00"),
        *("2024-10-27T02:45+02:00", "2024-10-27T02:00+01:00", "2024-10-27T02:15+01:00", "2024-10-27T02:30+01:00"),
        *("2024-10-27T02:45+01:00", "2024-10-27T03:00+01:00"),
    ),
    case(
        "Stockholm: @hourly comes every hour, also when the hour is shown twice",
        *("Europe/Stockholm", "@hourly", "2024-10-27T00:30+02:00"),
        *("2024-10-27T01:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-27T03:00+01:00"),
    ),
    case(
        "Stockholm: all hours written out are a fixed line",
        *("Europe/Stockholm", "0 0-23 * * *", "2024-10-27T00:30+02:00"),
        *("2024-10-27T01:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T03:00+01:00"),
    ),
    case(
        "Stockholm: a star in the hour field alone makes a wildcard line",
        *("Europe/Stockholm", "0 */2 * * *", "2024-10-26T23:00+02:00"),
        *("2024-10-27T00:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00", "2024-10-27T04:00+01:00"),
    ),
    case(
        "Stockholm: a star in a day field does not make a wildcard line",
        *("Europe/Stockholm", "30 2 */1 * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"),
    ),
    case(
        "Stockholm: a list that begins with a number is fixed, whatever follows",
        *("Europe/Stockholm", "5,*/30 2 * * *", "2024-10-27T01:00+02:00"),
        *("2024-10-27T02:00+02:00", "2024-10-27T02:05+02:00", "2024-10-27T02:30+02:00", "2024-10-28T02:00+01:00"),
    ),
]

SIX_FIELDS = [
    case(
        "six fields: a fixed second in the gap runs at the first second after it",
        *("Europe/Stockholm", "45 30 2 * * *", "2024-03-30T12:00+01:00"),
        *("2024-03-31T03:00:00+02:00", "2024-04-01T02:30:45+02:00"),
    ),
    case(
        "six fields: after the made-up run the seconds go on as written",
        *("Europe/Stockholm", "15,45 0 2,3 * * *", "2024-03-30T12:00+01:00"),
        *("2024-03-31T03:00:00+02:00", "2024-03-31T03:00:15+02:00", "2024-03-31T03:00:45+02:00"),
        *("2024-04-01T02:00:15+02:00",),
    ),
    case(
        "six fields: a star for seconds makes a wildcard line, whose match in the gap does not happen",
        *("Europe/Stockholm", "*/30 30 2 * * *", "2024-03-30T12:00+01:00"),
        *("2024-04-01T02:30:00+02:00", "2024-04-01T02:30:30+02:00"),
    ),
    case(
        "six fields: a star for seconds runs in both passes",
        *("Europe/Stockholm", "*/30 30 2 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T02:30:00+02:00", "2024-10-27T02:30:30+02:00", "2024-10-27T02:30:00+01:00"),
        *("2024-10-27T02:30:30+01:00", "2024-10-28T02:30:00+01:00"),
    ),
    case(
        "six fields: fixed seconds run in the first pass only",
        *("Europe/Stockholm", "0,30 30 2 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T02:30:00+02:00", "2024-10-27T02:30:30+02:00", "2024-10-28T02:30:00+01:00"),
    ),
    case(
        "six fields: every second goes on through the gap",
        *("Europe/Stockholm", "* * * * * *", "2024-03-31T01:59:58+01:00"),
        *("2024-03-31T01:59:59+01:00", "2024-03-31T03:00:00+02:00", "2024-03-31T03:00:01+02:00"),
    ),
    case(
        "six fields: every second goes on through the repeated hour",
        *("Europe/Stockholm", "* * * * * *", "2024-10-27T02:59:58+02:00"),
        *("2024-10-27T02:59:59+02:00", "2024-10-27T02:00:00+01:00", "2024-10-27T02:00:01+01:00"),
    ),
]

HALF_HOURS = [  # Lord Howe changes by half an hour, Pyongyang changed by half an hour once, for good
    case(
        "Lord Howe: a fixed time in the half-hour gap runs right after it",
        *("Australia/Lord_Howe", "15 2 * * *", "2024-10-05T12:00+10:30"),
        *("2024-10-06T02:30+11:00", "2024-10-07T02:15+11:00"),
    ),
    case(
        "Lord Howe: a time after the half-hour gap is left alone",
        *("Australia/Lord_Howe", "45 2 * * *", "2024-10-05T12:00+10:30"),
        *("2024-10-06T02:45+11:00", "2024-10-07T02:45+11:00"),
    ),
    case(
        "Lord Howe: a fixed time in the repeated half hour runs once",
        *("Australia/Lord_Howe", "45 1 * * *", "2024-04-06T12:00+11:00"),
        *("2024-04-07T01:45+11:00", "2024-04-08T01:45+10:30"),
    ),
    case(
        "Lord Howe: a time before the repeated half hour runs once",
        *("Australia/Lord_Howe", "15 1 * * *", "2024-04-06T12:00+11:00"),
        *("2024-04-07T01:15+11:00", "2024-04-08T01:15+10:30"),
    ),
    case(
        "Lord Howe: every fifteen minutes stays every fifteen minutes",
        *("Australia/Lord_Howe", "*/15 * * * *", "2024-04-07T01:30+11:00"),
        *("2024-04-07T01:45+11:00", "2024-04-07T01:30+10:30", "2024-04-07T01:45+10:30", "2024-04-07T02:00+10:30"),
    ),
    case(
        "Lord Howe: @hourly shows its hours, half an hour late for good",
        *("Australia/Lord_Howe", "@hourly", "2024-04-07T00:30+11:00"),
        *("2024-04-07T01:00+11:00", "2024-04-07T02:00+10:30", "2024-04-07T03:00+10:30"),
    ),
    case(
        "Pyongyang: a change that is not daylight saving counts as well",
        *("Asia/Pyongyang", "45 23 * * *", "2018-05-03T12:00+08:30"),
        *("2018-05-03T23:45+08:30", "2018-05-05T00:00+09:00", "2018-05-05T23:45+09:00"),
    ),
    case(
        "Kathmandu: fifteen minutes that never were, on New Year's Day 1986",
        *("Asia/Kathmandu", "5 0 * * *", "1985-12-31T12:00+05:30"),
        *("1986-01-01T00:15+05:45", "1986-01-02T00:05+05:45"),
    ),
    case(
        "Kathmandu: every five minutes leaps over them",
        *("Asia/Kathmandu", "*/5 * * * *", "1985-12-31T23:50+05:30"),
        *("1985-12-31T23:55+05:30", "1986-01-01T00:15+05:45", "1986-01-01T00:20+05:45"),
    ),
    case(
        "Kathmandu: no daylight saving, and an odd offset",
        *("Asia/Kathmandu", "30 2 * * *", "2024-03-30T12:00+05:45"),
        *("2024-03-31T02:30+05:45", "2024-04-01T02:30+05:45"),
    ),
]

MISSING_DAYS = [  # west to east over the date line: a correction of the calendar, and no daylight saving
    case(
        "Apia: the day that never was is not made up for",
        *("Pacific/Apia", "0 12 * * *", "2011-12-28T18:00-10:00"),
        *("2011-12-29T12:00-10:00", "2011-12-31T12:00+14:00", "2012-01-01T12:00+14:00"),
    ),
    case(
        "Apia: midnight after the missing day is an ordinary midnight",
        *("Pacific/Apia", "0 0 * * *", "2011-12-28T18:00-10:00"),
        *("2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00", "2012-01-01T00:00+14:00"),
    ),
    case(
        "Apia: every hour goes on",
        *("Pacific/Apia", "0 * * * *", "2011-12-29T22:30-10:00"),
        *("2011-12-29T23:00-10:00", "2011-12-31T00:00+14:00", "2011-12-31T01:00+14:00"),
    ),
    case(
        "Apia: a Friday job misses the Friday that never was",
        *("Pacific/Apia", "0 9 * * FRI", "2011-12-27T00:00-10:00"),
        *("2012-01-06T09:00+14:00",),
    ),
    case(
        "Kwajalein: the day that never was is not made up for",
        *("Pacific/Kwajalein", "0 12 * * *", "1993-08-20T00:00-12:00"),
        *("1993-08-20T12:00-12:00", "1993-08-22T12:00+12:00", "1993-08-23T12:00+12:00"),
    ),
    case(
        "Kwajalein: every fifteen minutes goes on",
        *("Pacific/Kwajalein", "*/15 * * * *", "1993-08-20T23:30-12:00"),
        *("1993-08-20T23:45-12:00", "1993-08-22T00:00+12:00", "1993-08-22T00:15+12:00"),
    ),
]

MIDNIGHTS = [  # clocks that change at midnight: the day begins at 01:00, or ends twice
    case(
        "Sao Paulo: a day without a midnight runs its daily job at 01:00",
        *("America/Sao_Paulo", "0 0 * * *", "2018-11-02T12:00-03:00"),
        *("2018-11-03T00:00-03:00", "2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"),
    ),
    case(
        "Sao Paulo: a yearly job in the midnight gap runs on its day",
        *("America/Sao_Paulo", "30 0 4 11 *", "2018-11-02T12:00-03:00"),
        *("2018-11-04T01:00-02:00",),
    ),
    case(
        "Sao Paulo: the job of the day before knows nothing of the gap",
        *("America/Sao_Paulo", "30 0 3 11 *", "2018-11-02T12:00-03:00"),
        *("2018-11-03T00:30-03:00",),
    ),
    case(
        "Sao Paulo: the last hour of the day comes twice, its job once",
        *("America/Sao_Paulo", "30 23 * * *", "2018-02-17T12:00-02:00"),
        *("2018-02-17T23:30-02:00", "2018-02-18T23:30-03:00"),
    ),
    case(
        "Sao Paulo: midnight comes once, after the second eleven o'clock",
        *("America/Sao_Paulo", "0 0 * * *", "2018-02-17T12:00-02:00"),
        *("2018-02-18T00:00-03:00", "2018-02-19T00:00-03:00"),
    ),
    case(
        "Sao Paulo: every half hour keeps its cadence",
        *("America/Sao_Paulo", "*/30 * * * *", "2018-02-17T23:00-02:00"),
        *("2018-02-17T23:30-02:00", "2018-02-17T23:00-03:00", "2018-02-17T23:30-03:00", "2018-02-18T00:00-03:00"),
    ),
    case(
        "Beirut: a day without a midnight runs its daily job at 01:00",
        *("Asia/Beirut", "@daily", "2024-03-29T12:00+02:00"),
        *("2024-03-30T00:00+02:00", "2024-03-31T01:00+03:00", "2024-04-01T00:00+03:00"),
    ),
    case(
        "Beirut: @weekly on a Sunday without a midnight",
        *("Asia/Beirut", "@weekly", "2024-03-29T12:00+02:00"),
        *("2024-03-31T01:00+03:00", "2024-04-07T00:00+03:00"),
    ),
    case(
        "Beirut: the last hour of the Saturday comes twice, its job once",
        *("Asia/Beirut", "15 23 * * *", "2024-10-26T12:00+03:00"),
        *("2024-10-26T23:15+03:00", "2024-10-27T23:15+02:00"),
    ),
    case(
        "Saint John's: a Sunday that begins, ends and begins again runs its midnight job once",
        *("America/St_Johns", "0 0 * * *", "2006-10-28T12:00-02:30"),
        *("2006-10-29T00:00-02:30", "2006-10-30T00:00-03:30"),
    ),
    case(
        "Saint John's: clocks that change at one past midnight leave midnight alone",
        *("America/St_Johns", "0,1 0 * * *", "2006-04-01T12:00-03:30"),
        *("2006-04-02T00:00-03:30", "2006-04-02T01:01-02:30", "2006-04-03T00:00-02:30", "2006-04-03T00:01-02:30"),
    ),
]

OTHER_ODDITIES = [
    case(
        "Casablanca: the clock goes back for Ramadan, and a fixed time runs once",
        *("Africa/Casablanca", "30 2 * * *", "2024-03-09T12:00+01:00"),
        *("2024-03-10T02:30+01:00", "2024-03-11T02:30+00:00"),
    ),
    case(
        "Casablanca: the clock goes forward after Ramadan, and a swallowed time is made up for",
        *("Africa/Casablanca", "30 2 * * *", "2024-04-13T12:00+00:00"),
        *("2024-04-14T03:00+01:00", "2024-04-15T02:30+01:00"),
    ),
    case(
        "Dublin: winter is the exception by law, and the gap is in spring all the same",
        *("Europe/Dublin", "30 1 * * *", "2024-03-30T12:00+00:00"),
        *("2024-03-31T02:00+01:00", "2024-04-01T01:30+01:00"),
    ),
    case(
        "Dublin: a fixed time in the repeated hour runs once",
        *("Europe/Dublin", "30 1 * * *", "2024-10-26T12:00+01:00"),
        *("2024-10-27T01:30+01:00", "2024-10-28T01:30+00:00"),
    ),
    case(
        "Dublin: @hourly comes every hour",
        *("Europe/Dublin", "@hourly", "2024-10-27T00:30+01:00"),
        *("2024-10-27T01:00+01:00", "2024-10-27T01:00+00:00", "2024-10-27T02:00+00:00"),
    ),
    case(
        "Troll: two hours in the gap are one run",
        *("Antarctica/Troll", "30 1,2 * * *", "2024-03-30T12:00+00:00"),
        *("2024-03-31T03:00+02:00", "2024-04-01T01:30+02:00", "2024-04-01T02:30+02:00"),
    ),
    case(
        "Troll: two repeated hours run once each",
        *("Antarctica/Troll", "30 1,2 * * *", "2024-10-26T12:00+02:00"),
        *("2024-10-27T01:30+02:00", "2024-10-27T02:30+02:00", "2024-10-28T01:30+00:00"),
    ),
    case(
        "Troll: @hourly comes every hour, through both passes of two hours",
        *("Antarctica/Troll", "@hourly", "2024-10-27T00:30+02:00"),
        *("2024-10-27T01:00+02:00", "2024-10-27T02:00+02:00", "2024-10-27T01:00+00:00", "2024-10-27T02:00+00:00"),
        *("2024-10-27T03:00+00:00",),
    ),
    case(
        "Chatham: a gap from 02:45 to 03:45",
        *("Pacific/Chatham", "0 3 * * *", "2024-09-28T12:00+12:45"),
        *("2024-09-29T03:45+13:45", "2024-09-30T03:00+13:45"),
    ),
    case(
        "Chatham: the first swallowed minute and the one before it",
        *("Pacific/Chatham", "44,45 2 * * *", "2024-09-28T12:00+12:45"),
        *("2024-09-29T02:44+12:45", "2024-09-29T03:45+13:45", "2024-09-30T02:44+13:45", "2024-09-30T02:45+13:45"),
    ),
    case(
        "Chatham: a repeated time from 02:45 to 03:45",
        *("Pacific/Chatham", "0 3 * * *", "2024-04-06T12:00+13:45"),
        *("2024-04-07T03:00+13:45", "2024-04-08T03:00+12:45"),
    ),
    case(
        "Chatham: every fifteen minutes keeps its cadence",
        *("Pacific/Chatham", "*/15 * * * *", "2024-04-07T03:15+13:45"),
        *("2024-04-07T03:30+13:45", "2024-04-07T02:45+12:45", "2024-04-07T03:00+12:45"),
    ),
    case(
        "Casey: a gap of exactly three hours is still made up for",
        *("Antarctica/Casey", "30 3 * * *", "2009-10-17T12:00+08:00"),
        *("2009-10-18T05:00+11:00", "2009-10-19T03:30+11:00"),
    ),
    case(
        "Casey: three repeated hours, over midnight, run once each",
        *("Antarctica/Casey", "30 23,0,1 * * *", "2010-03-04T12:00+11:00"),
        *("2010-03-04T23:30+11:00", "2010-03-05T00:30+11:00", "2010-03-05T01:30+11:00", "2010-03-05T23:30+08:00"),
    ),
    case(
        "UTC: nothing ever happens to the clock",
        *("UTC", "30 2 * * *", "2024-03-30T12:00+00:00"),
        *("2024-03-31T02:30+00:00", "2024-04-01T02:30+00:00"),
    ),
]

TABLE = [*STOCKHOLM, *SIX_FIELDS, *HALF_HOURS, *MISSING_DAYS, *MIDNIGHTS, *OTHER_ODDITIES]


@pytest.mark.parametrize("known", TABLE)
def test_a_line_runs_at_exactly_these_instants(known: Case) -> None:
    """What people know from twenty-five years of cron: once a day, and every minute stays every minute."""
    cron = Cron(known.expression, tz=known.zone)

    found = ahead(cron, known.asked_at(), known.expected()[-1])

    assert found == known.expected()


@pytest.mark.parametrize("known", TABLE)
def test_looking_back_finds_the_same_instants(known: Case) -> None:
    """What was missed while the scheduler was down is found from the other side, and must be the same."""
    cron = Cron(known.expression, tz=known.zone)

    found = back(cron, known.asked_at(), known.expected()[-1])

    assert found == known.expected()


@pytest.mark.parametrize("known", TABLE)
def test_the_oracle_agrees_with_the_table(known: Case) -> None:
    """The oracle judges where no person wrote the answers down, so it is judged here."""
    # An instant between two seconds lies in the first of them.
    start = (known.asked_at() - EPOCH) // timedelta(seconds=1)

    stretch = walk(ZoneInfo(known.zone), start, seconds(known.expected()[-1]))

    assert [instant(at) for at in stretch.instants(read_line(known.expression))] == known.expected()


def test_a_yearly_job_on_a_day_that_never_was_waits_for_the_next_year() -> None:
    """A correction of the calendar takes the day away; making up for it on another date would surprise more."""
    cron = Cron("0 12 30 12 *", tz="Pacific/Apia")

    found = cron.next_after(datetime.fromisoformat("2011-12-01T00:00-10:00"))

    assert found == datetime.fromisoformat("2012-12-30T12:00+14:00")


def test_results_are_in_utc() -> None:
    """All instants of the library are aware and in UTC, so that nobody adds hours to a wall clock by mistake."""
    cron = Cron("30 2 * * *", tz="Europe/Stockholm")
    asked_at = datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))

    found = cron.next_after(asked_at)

    assert found is not None
    assert found.tzinfo is UTC
    assert found == datetime(2024, 7, 2, 0, 30, tzinfo=UTC)


# --- Every change of many zones, against the oracle -----------------------------------------------------------------

# Fixed and wildcard, in and around the gaps that zones have: at midnight, at one, two or three, and just before.
LINES = {
    expression: read_line(expression)
    for expression in (
        "30 2 * * *",
        "@daily",
        "0,45 3 * * *",
        "30 0,1,4,23 * * *",
        "0-59 2 * * *",
        "0 30 0-23 * * *",
        "10,50 15 2 * * *",
        "0 3 * * SUN",
        "30 1 1-7 * MON",
        "*/15 * * * *",
        "@hourly",
        "*/20 0-3 * * *",
        "*/30 59 1-3 * * *",
    )
}

# Each is awkward in its own way: half hours, midnights, missing days, Ramadan, quarters, one past midnight, three
# hours, dates that move every year, and one that is not awkward at all.
AWKWARD_ZONES = (
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Casey",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Stockholm",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
)

# Around a change, and a microsecond to either side of it: where "strictly after" and "at or before" differ.
PROBES = (
    *(timedelta(hours=hours) for hours in (-2, -1, -0.5, 0, 0.5, 1, 2)),
    MICROSECOND,
    -MICROSECOND,
)


@pytest.mark.parametrize("zone", AWKWARD_ZONES)
@pytest.mark.deep
def test_every_change_of_an_awkward_zone_is_handled_as_the_rules_demand(zone: str) -> None:
    """Each of these zones has broken a scheduler somewhere; the answers are counted out minute by minute."""
    found = changes_of(zone)

    for change in found:
        assert_as_the_rules_demand(zone, change.at, reach=18 * HOUR)


CHUNKS = 48


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_change_of_every_zone_is_handled_as_the_rules_demand(chunk: int) -> None:
    """The promise is made for all zones, so it is kept for all zones: every change from 2000 to 2037."""
    work = [(zone, change) for zone, found in distinct_zones() for change in found]

    for zone, change in work[chunk::CHUNKS]:
        assert_as_the_rules_demand(zone, change.at, reach=2 * DAY)


def test_every_zone_is_known_to_the_library() -> None:
    """A zone that the machine has and the library refuses would be a job that cannot be added."""
    refused = []
    for zone in sorted(available_timezones()):
        found = Cron("0 12 * * *", tz=zone).next_after(instant(Y2000))
        if found is None or found.astimezone(ZoneInfo(zone)).hour != 12:
            refused.append(zone)

    assert refused == []


def changes_of(zone: str) -> list[Change]:
    """Every change from 2000 to 2037; a zone without any is asked about those since 1980."""
    info = ZoneInfo(zone)
    # A look a day finds them all: see the test of the distance between two changes.
    return changes(info, Y2000, Y2038, step=DAY) or changes(info, Y1980, Y2000, step=DAY)


@cache
def distinct_zones() -> list[tuple[str, list[Change]]]:
    """One zone for each history of offsets from 2000 to 2037, with its changes.

    Most zones are other names of another, or have differed from it only in the years before: these are grouped, so
    that nothing is computed twice. They are grouped by what their clocks did and not by what they are called.
    """
    histories: dict[tuple[int, tuple[Change, ...]], str] = {}
    for zone in sorted(available_timezones()):
        found = changes(ZoneInfo(zone), Y2000, Y2038, step=DAY)
        histories.setdefault((offset(ZoneInfo(zone), Y2000), tuple(found)), zone)
    return [(zone, list(found)) for (_, found), zone in histories.items()]


def assert_as_the_rules_demand(zone: str, changed_at: int, reach: int) -> None:
    """Hold every line against the oracle, forwards and backwards, *reach* seconds to both sides of a change."""
    stretch = walk(ZoneInfo(zone), changed_at - reach, changed_at + reach)
    start, end, change = instant(stretch.start), instant(stretch.end), instant(changed_at)
    for expression, line in LINES.items():
        cron = Cron(expression, tz=zone)
        expected = [instant(at) for at in stretch.instants(line)]
        what = f"{expression!r} in {zone} around {change:%Y-%m-%d %H:%M}Z"

        assert ahead(cron, start, end) == expected, f"{what}, looking ahead"
        assert back(cron, start, end) == expected, f"{what}, looking back"
        for after, until in ((start, end), (start, change), (change, end)):
            counted = cron.count_micros(micros(after), micros(until), None, 10**9)
            assert counted == between(expected, after, until), f"{what}, counting from {after} to {until}"
        for probe in (change + shift for shift in PROBES):
            place = bisect_right(expected, probe)
            if place < len(expected):
                assert cron.next_after(probe) == expected[place], f"{what}, after {probe}"
            if place > 0:
                assert cron.previous(probe) == expected[place - 1], f"{what}, before {probe}"


def ahead(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    """Every run later than *start* and not later than *end*, each asked for from the one before."""
    found = []
    moment = start
    while (following := cron.next_after(moment)) is not None and following <= end:
        assert following > moment, f"{cron} went from {moment} to {following}"
        found.append(following)
        moment = following
    return found


def back(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    """The same, found from the end; in order of time."""
    found = []
    moment = end
    while (latest := cron.previous(moment)) is not None and latest > start:
        assert latest <= moment, f"{cron} went back from {moment} to {latest}"
        found.append(latest)
        moment = latest - MICROSECOND
    return found[::-1]


def between(moments: list[datetime], after: datetime, until: datetime) -> int:
    return bisect_right(moments, until) - bisect_right(moments, after)


# --- Every second of the days on which clocks change ----------------------------------------------------------------

SECOND_BY_SECOND_ZONES = (
    "Africa/Casablanca",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Pacific/Apia",
    "Pacific/Chatham",
    "Pacific/Kwajalein",
)


@pytest.mark.parametrize("zone", SECOND_BY_SECOND_ZONES)
@pytest.mark.deep
def test_the_next_run_is_always_later_around_a_change(zone: str) -> None:
    """An answer that is not later than the question would be a loop that runs a job as fast as it can."""
    # The latest change in which the clock leapt, since leaping is what leads others astray.
    change = next(change for change in reversed(changes_of(zone)) if change.after > change.before)

    for expression in ("30 0-3,23 * * *", "*/15 * * * *", "* * * * * *"):
        assert_always_later(zone, expression, change.at - 3 * HOUR, change.at + 3 * HOUR)


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", SECOND_BY_SECOND_ZONES)
@pytest.mark.parametrize("years", [range(1970, 2010), range(2010, 2024), range(2024, 2038)], ids=str)
def test_the_next_run_is_always_later_in_every_second_of_a_day_with_a_change(zone: str, years: range) -> None:
    """As above, for whole days, and for every change of the zone."""
    for change in changes_of(zone):
        if instant(change.at).year in years:
            assert_always_later(zone, "30 0-3,23 * * *", change.at - DAY // 2, change.at + DAY // 2)
            # A wildcard line sees nothing but the change itself, so the hours around it are enough.
            assert_always_later(zone, "*/15 * * * *", change.at - 3 * HOUR, change.at + 3 * HOUR)


def assert_always_later(zone: str, expression: str, start: int, end: int) -> None:
    """Ask for the next run in every second from *start* to *end*: it is later, and the one that the oracle has."""
    cron = Cron(expression, tz=zone)
    coming = iter([instant(at) for at in walk(ZoneInfo(zone), start, end).instants(read_line(expression))])
    expected = next(coming, None)
    for at in range(start, end):
        asked_at = instant(at)
        if expected is not None and expected <= asked_at:
            expected = next(coming, None)
        found = cron.next_after(asked_at)
        assert found is not None
        assert found > asked_at, f"{expression!r} in {zone}"
        assert expected is None or found == expected, f"{expression!r} in {zone}, asked at {asked_at}"


# --- What the library takes for granted -----------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_two_changes_of_a_zone_are_closer_than_two_days(chunk: int) -> None:
    """The library looks for changes every second day: two within two days could cancel out and be overlooked."""
    too_close = [
        (zone, earlier, later)
        for zone in sorted(available_timezones())[chunk::CHUNKS]
        for earlier, later in pairwise(changes(ZoneInfo(zone), Y1970, Y2038, step=3 * HOUR))
        if later.at - earlier.at < 2 * DAY
    ]

    assert too_close == []


@pytest.mark.parametrize("zone", ["Asia/Gaza", "Africa/Casablanca"])
def test_even_the_most_restless_zones_keep_their_offset_for_two_days(zone: str) -> None:
    """The zones that change most often, four times a year, stand for all the others in the daily tests."""
    found = changes(ZoneInfo(zone), Y2000, Y2038, step=3 * HOUR)

    assert all(later.at - earlier.at >= 2 * DAY for earlier, later in pairwise(found))
    assert all(change.at % MINUTE == 0 for change in found)


@pytest.mark.timeout(20)  # looking for it until the year 9999 takes a minute
def test_a_pace_that_lies_in_gaps_alone_has_no_next_run() -> None:
    """Its hour is left out whenever it comes, and a pace is not made up for."""
    line, stockholm = parse_cron("* 2 * 3 SUNL"), find_zone("Europe/Stockholm")

    assert line.next_after(seconds(datetime(2026, 1, 5, tzinfo=UTC)), stockholm) is None
    assert line.previous(seconds(datetime(2100, 1, 5, tzinfo=UTC)), stockholm) is None


def test_a_pace_that_lies_in_gaps_alone_is_refused_at_once() -> None:
    with pytest.raises(CronParseError, match="never matches in Europe/Stockholm, where the clocks always skip"):
        Cron("* 2 * 3 SUNL", tz="Europe/Stockholm")


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("* 2 * 3 SUNL", "UTC"),  # has no gaps
        ("* 2 * 3 SUNL", "America/New_York"),  # has them on another Sunday
        ("* 1-3 * 3 SUNL", "Europe/Stockholm"),  # one of the hours is there
        ("30 2 * 3 SUNL", "Europe/Stockholm"),  # a fixed time is made up for
        ("* 2 * 3 SUN", "Europe/Stockholm"),  # most of the Sundays have the hour
        ("* 2 * 10 SUNL", "Europe/Stockholm"),  # shown twice instead
    ],
)
def test_a_pace_that_is_shown_at_least_sometimes_is_accepted(expression: str, zone: str) -> None:
    assert Cron(expression, tz=zone).next_after(datetime(2026, 1, 5, tzinfo=UTC)) is not None
