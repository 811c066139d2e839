"""Schedules on calendars against a brute-force oracle, around the clock changes of awkward zones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from scheduler_async import Calendar, Cron, Dates, Every, Hours, InvalidScheduleError, Schedule, Weekdays
from scheduler_async.timekeeping.instants import to_micros
from tests.calendar_oracle import Inside, Written, instant_of, weeks
from tests.daylight_oracle import DAY, changes, read_line

# Gaps at 01:00, at midnight, of half an hour, across midnight and in the southern hemisphere; years with two changes.
ZONES = {
    "Europe/Stockholm": 2026,
    "America/New_York": 2026,
    "Australia/Lord_Howe": 2026,
    "America/St_Johns": 2010,
    "America/Havana": 2026,
    "Africa/Cairo": 2026,
    "Asia/Beirut": 2026,
    "America/Nuuk": 2026,
    "Pacific/Chatham": 2026,
    "America/Asuncion": 2023,
    "Atlantic/Azores": 2026,
    "Antarctica/Troll": 2026,
    "Africa/Casablanca": 2026,
    "Asia/Kolkata": 2026,
}
REACH = 12 * DAY  # around a change
MARGIN = 9 * DAY  # no calendar below is closed for longer


@cache
def moments(zone: str) -> list[int]:
    year = ZONES[zone]
    start, end = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (year, year + 1))
    return [change.at for change in changes(ZoneInfo(zone), start, end)] or [start + 100 * DAY]


class Occurrences(list[Written]):
    """Many, of which a failing test need not show each."""

    def __repr__(self) -> str:
        return f"{len(self)} occurrences"


WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")


@st.composite
def day_calendars(draw: st.DrawFn, around: date) -> tuple[Calendar, Inside]:
    days = draw(st.sets(st.sampled_from(WEEKDAYS), min_size=1, max_size=6))
    calendar: Calendar = Weekdays(",".join(days))
    inside: Inside = lambda wall: WEEKDAYS[wall.weekday()] in days  # noqa: E731
    if draw(st.booleans()):
        named = {around + timedelta(days=number) for number in draw(st.sets(st.integers(-4, 4), min_size=1))}
        if draw(st.booleans()):
            return calendar | Dates(*named), lambda wall: WEEKDAYS[wall.weekday()] in days or wall.date() in named
        if len(days) > 2 and len(named) < 3:
            return calendar & ~Dates(*named), lambda wall: WEEKDAYS[wall.weekday()] in days and wall.date() not in named
    return calendar, inside


@st.composite
def hour_calendars(draw: st.DrawFn, around: date) -> tuple[Calendar, Inside]:
    # Near the changes, most of which are between 22:00 and 04:00.
    minute = st.sampled_from([0, 1, 30, 60, 90, 119, 120, 121, 150, 179, 180, 181, 240, 540, 1080, 1320, 1380, 1410])
    start, end = draw(st.tuples(minute, minute).filter(lambda pair: pair[0] != pair[1]))
    hours = Hours(f"{start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02}")

    def open_at(wall: datetime) -> bool:
        time = wall.hour * 60 + wall.minute
        return start <= time < end if start < end else time >= start or time < end

    if draw(st.booleans()):
        return hours, open_at
    days, on_day = draw(day_calendars(around))
    match draw(st.sampled_from("&|~")):
        case "&":
            return days & hours, lambda wall: on_day(wall) and open_at(wall)
        case "|":
            return days | hours, lambda wall: on_day(wall) or open_at(wall)
    return ~hours, lambda wall: not open_at(wall)


@st.composite
def sources(draw: st.DrawFn, zone: str, changed_at: int) -> tuple[Schedule, Occurrences, str | None]:
    walk = weeks(zone, changed_at - REACH - MARGIN, changed_at + REACH + MARGIN)
    if draw(st.booleans()):
        minutes = draw(st.sampled_from([15, 45, 60, 90, 419, 720, 1440, 1441, 2880]))
        anchor = changed_at - REACH - MARGIN + 60 * draw(st.integers(0, 3000))
        return (
            Every(timedelta(minutes=minutes), anchor=instant_of(anchor)),
            Occurrences(walk.every(minutes, anchor)),
            zone,
        )
    minute = draw(st.sampled_from(["0", "30", "15,45", "*/20", "59", "0-59/30", "0"]))
    hour = draw(st.sampled_from(["0", "1", "2", "23", "0,2,3", "*", "*/2", "9", "22-23"]))
    day = draw(st.sampled_from(["* * *", "* * SUN", "* * SAT,SUN", "L * *", "*/2 * *", "1,15 * FRI"]))
    text = f"{minute} {hour} {day}"
    return Cron(text, tz=zone), Occurrences(walk.cron(read_line(text))), None


def expected_of(walk: object, written: list[Written], inside: Inside, otherwise: str, hours: bool) -> list[int]:
    from tests.calendar_oracle import Weeks

    assert isinstance(walk, Weeks)
    if otherwise == "skip":
        return walk.kept(written, inside)
    if hours:
        return walk.postponed(written, inside)
    return walk.moved_by_day(written, inside, 1 if otherwise == "after" else -1)


FEW = {"Europe/Stockholm", "Asia/Beirut", "America/Nuuk"}  # enough for the measurement of coverage
ZONES_BY_COST = [pytest.param(zone, marks=[] if zone in FEW else pytest.mark.deep) for zone in ZONES]


@pytest.mark.parametrize("zone", ZONES_BY_COST)
# Without shrinking, which would walk through these weeks for minutes.
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_a_schedule_on_a_calendar_runs_at_exactly_these_instants(zone: str, data: st.DataObject) -> None:
    changed_at = data.draw(st.sampled_from(moments(zone))) // 60 * 60
    schedule, written, tz = data.draw(sources(zone, changed_at))
    around = instant_of(changed_at).date()
    hours = data.draw(st.booleans())
    calendar, inside = data.draw(hour_calendars(around) if hours else day_calendars(around))
    otherwise = data.draw(st.sampled_from(["skip", "after"] if hours else ["skip", "before", "after"]))
    walk = weeks(zone, changed_at - REACH - MARGIN, changed_at + REACH + MARGIN)
    first, last = changed_at - REACH, changed_at + REACH
    expected = [at for at in expected_of(walk, written, inside, otherwise, hours) if first < at <= last]

    try:
        on = schedule.on(calendar, otherwise=otherwise).in_zone(tz or "UTC")
    except InvalidScheduleError:  # it would never run
        assert not expected
        return

    found, at = [], on.next_after(instant_of(first))
    while at is not None and at <= instant_of(last):
        found.append(int(at.timestamp()))
        at = on.next_after(at)
    assert shown({*found} ^ {*expected}, zone) == []
    assert found == sorted(found)
    begin, end = to_micros(instant_of(first)), to_micros(instant_of(last))
    assert on.count_micros(begin, end, begin, 10**6) == len(expected)
    back, before = [], on.previous(instant_of(last))
    while before is not None and before > instant_of(first):
        back.append(int(before.timestamp()))
        before = on.previous(before - timedelta(microseconds=1))
    assert shown({*back} ^ {*expected}, zone) == []


def shown(instants: set[int], zone: str) -> list[str]:
    """The instants on which the library and the oracle disagree."""
    return [str(instant_of(at).astimezone(ZoneInfo(zone))) for at in sorted(instants)]
