"""What `next` tells: occurrences in two zones, what daylight saving does to them, and traps."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_async import AnyOf, At, Cron, Delay, Every, Hours, Manual, Schedule, Weekdays
from scheduler_async.cli.cron_traps import traps
from scheduler_async.schedules.next_runs import CLOSE, Occurrence, following
from scheduler_async.timekeeping.durations import describe_duration
from tests.cast import DAY, HOUR, MINUTE, NOON, SECOND
from tests.daylight_oracle import Change, Line, Stretch, changes, read_line, walk
from tests.schedules.test_daylight_saving import AWKWARD_ZONES, Y2000, Y2038, instant

STOCKHOLM = ZoneInfo("Europe/Stockholm")


def notes(schedule: str | Schedule, zone: str, start: str, count: int) -> list[tuple[str, str | None]]:
    """When it runs there, and what is said about it."""
    asked = Cron(schedule, zone) if isinstance(schedule, str) else schedule
    found = following(asked, datetime.fromisoformat(start), count, ZoneInfo(zone))
    return [(f"{occurrence.there:%d %H:%M}", occurrence.note) for occurrence in found]


# --- Occurrences ----------------------------------------------------------------------------------------------------


def test_an_occurrence_is_shown_in_both_zones() -> None:
    found = following(Cron("0 9 * * 1-5", "Asia/Tokyo"), NOON, 2, ZoneInfo("America/New_York"))

    assert [occurrence.at for occurrence in found] == [NOON + 12 * HOUR, NOON + 36 * HOUR]
    assert [occurrence.there.isoformat() for occurrence in found] == [
        "2026-01-06T09:00:00+09:00",
        "2026-01-07T09:00:00+09:00",
    ]
    assert [occurrence.here.isoformat() for occurrence in found] == [
        "2026-01-05T19:00:00-05:00",
        "2026-01-06T19:00:00-05:00",
    ]
    assert [occurrence.note for occurrence in found] == [None, None]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(Every("20m"), [20 * MINUTE, 40 * MINUTE, 60 * MINUTE], id="an interval counts from now"),
        pytest.param(Every("1h", NOON - MINUTE), [59 * MINUTE, 119 * MINUTE, 179 * MINUTE], id="or from its anchor"),
        pytest.param(At(NOON + HOUR), [HOUR], id="a moment comes once"),
        pytest.param(At(NOON), [], id="a moment that is now has passed"),
        pytest.param(Delay("5m"), [], id="a delay depends on what runs"),
        pytest.param(Manual(), [], id="nobody knows when one is triggered"),
        pytest.param(Cron("0 13 * * *", "UTC", end=NOON + DAY), [HOUR], id="an end is respected"),
    ],
)
def test_every_kind_of_schedule_can_be_asked(schedule: Schedule, expected: list[timedelta]) -> None:
    found = following(schedule, NOON, 3, UTC)

    assert [occurrence.at - NOON for occurrence in found] == expected
    assert all(occurrence.there == occurrence.here == occurrence.at for occurrence in found)


@pytest.mark.parametrize("count", [0, -1])
def test_nobody_asked_for_any(count: int) -> None:
    assert following(Every("5m"), NOON, count, UTC) == []


def test_without_a_zone_the_clocks_of_the_system_count() -> None:
    (found,) = following(Cron("0 9 * * *"), NOON, 1, UTC)

    assert f"{found.there:%H:%M}" == "09:00"


def test_the_last_hours_of_the_calendar_are_shown_in_utc() -> None:
    """Elsewhere they belong to the year 10000, which no datetime can hold."""
    (found,) = following(At("9999-12-31T23:30:00Z"), NOON, 1, STOCKHOLM)

    assert found.here.isoformat() == "9999-12-31T23:30:00+00:00"


# --- Notes: a table to read -----------------------------------------------------------------------------------------

FORWARD = "clocks go forward from 02:00 to 03:00"
BACK = "clocks go back from 03:00 to 02:00"


def cron(expression: str) -> Cron:
    return Cron(expression, "Europe/Stockholm")


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            "2026-03-28T00:00Z",
            [
                ("28 02:30", None),
                ("29 03:00", f"02:30 does not exist that day: {FORWARD}, so it runs at 03:00"),
                ("30 02:30", None),
            ],
            id="a fixed time in the gap",
        ),
        pytest.param(
            "0,30 2 * * *",
            "2026-03-29T00:00Z",
            [("29 03:00", f"02:00 and 02:30 do not exist that day: {FORWARD}, so they are one run at 03:00")],
            id="two fixed times in the gap",
        ),
        pytest.param(
            "0-59 2,3 * * *",
            "2026-03-29T00:00Z",
            [
                ("29 03:00", f"02:00 to 02:59 do not exist that day: {FORWARD}, so they and 03:00 are one run"),
                ("29 03:01", None),
            ],
            id="many fixed times in the gap and one at its end",
        ),
        pytest.param(
            "30 2 * * *",
            "2026-10-25T00:00Z",
            [
                ("25 02:30", f"02:30 comes twice that day, as {BACK}: it runs the first time only"),
                ("26 02:30", f"{BACK} on 2026-10-25, so it comes 1 day 1 hour after the one before"),
                ("27 02:30", None),
            ],
            id="a fixed time in the repeated hour",
        ),
        pytest.param(
            "*/30 * * * *",
            "2026-03-29T00:00Z",
            [
                ("29 01:30", None),
                ("29 03:00", f"02:00 and 02:30 do not exist that day: {FORWARD}"),
                ("29 03:30", None),
            ],
            id="a pace is kept through the gap",
        ),
        pytest.param(
            "*/30 * * * *",
            "2026-10-24T23:50Z",
            [
                ("25 02:00", f"02:00 comes twice that day, as {BACK}: this is the first time"),
                ("25 02:30", f"02:30 comes twice that day, as {BACK}: this is the first time"),
                ("25 02:00", f"02:00 comes twice that day, as {BACK}: this is the second time"),
                ("25 02:30", f"02:30 comes twice that day, as {BACK}: this is the second time"),
                ("25 03:00", None),
            ],
            id="a pace is kept through the repeated hour",
        ),
        pytest.param(
            "0 */2 * * *",
            "2026-03-28T22:30Z",
            [
                ("29 00:00", None),
                ("29 04:00", f"02:00 does not exist that day: {FORWARD}, and it is not made up for"),
                ("29 06:00", None),
            ],
            id="a run of a pace is left out",
        ),
        pytest.param(
            "* 2 * * *",
            "2026-03-28T22:30Z",
            [
                ("30 02:00", f"02:00 to 02:59 do not exist on 2026-03-29: {FORWARD}, and they are not made up for"),
                ("30 02:01", None),
            ],
            id="the first occurrence tells of those that were left out before it",
        ),
        pytest.param("* 2 * * *", "2026-03-29T01:00Z", [("30 02:00", None)], id="but not of those in the past"),
        pytest.param(
            "0 9 * * *",
            "2026-03-28T00:00Z",
            [
                ("28 09:00", None),
                ("29 09:00", f"{FORWARD} that day, so it comes 23 hours after the one before"),
                ("30 09:00", None),
            ],
            id="a day of 23 hours",
        ),
        pytest.param(
            "0 9 * * 1", "2026-03-22T00:00Z", [("23 09:00", None), ("30 09:00", None)], id="nobody counts 167 hours"
        ),
        pytest.param(
            cron("0,30 2 * * *").on(Weekdays("SUN")).on(Hours("02:15-02:45")),
            "2026-03-28T00:00Z",
            [
                ("29 03:00", f"02:30 does not exist that day: {FORWARD}, so it runs at 03:00"),
                ("05 02:30", None),
            ],
            id="a time in the gap, and another one outside the calendar",
        ),
        pytest.param(
            cron("* 2 * * *").on(Weekdays("MON")),
            "2026-03-28T22:30Z",
            [("30 02:00", None)],
            id="nobody misses what is outside the calendar",
        ),
        pytest.param(
            cron("*/30 * * * *").on(Hours("02:00-02:45"), "after"),
            "2026-03-28T22:30Z",
            [
                ("30 02:00", f"02:00 and 02:30 do not exist on 2026-03-29: {FORWARD}"),
                ("30 02:30", None),
            ],
            id="times on a calendar that are left out",
        ),
        pytest.param(
            AnyOf(cron("30 2 * * *"), cron("* 2 * * *").on(Hours("02:58-03:00")), Every("12h"), cron("0 9 * * *")),
            "2026-03-28T23:30Z",
            [
                ("29 03:00", f"02:30 does not exist that day: {FORWARD}, so it runs at 03:00"),
                ("29 09:00", None),
                ("29 13:30", None),
                ("30 01:30", None),
                ("30 02:30", None),
                ("30 02:58", f"02:58 and 02:59 do not exist on 2026-03-29: {FORWARD}, and they are not made up for"),
            ],
            id="one schedule of several",
        ),
    ],
)
def test_a_note_says_what_daylight_saving_does(
    schedule: str | Schedule, start: str, expected: list[tuple[str, str | None]]
) -> None:
    assert notes(schedule, "Europe/Stockholm", start, len(expected)) == expected


def test_a_gap_over_midnight_names_the_day_that_lost_it() -> None:
    assert notes("45 23 * * *", "Asia/Pyongyang", "2018-05-04T00:00Z", 1) == [
        (
            "05 00:00",
            "23:45 does not exist on 2018-05-04: clocks go forward from 23:30 to 00:00, so it runs at 00:00",
        )
    ]


def test_a_day_that_never_was_is_not_made_up_for() -> None:
    assert notes("0 12 * * *", "Pacific/Apia", "2011-12-30T00:00Z", 1) == [
        (
            "31 12:00",
            "12:00 does not exist on 2011-12-30: clocks go forward from 2011-12-30 00:00 to 2011-12-31 00:00",
        )
    ]


def test_seconds_are_told_where_there_are_any() -> None:
    assert notes("45 30 2 * * *", "Europe/Stockholm", "2026-03-29T00:00Z", 1) == [
        ("29 03:00", f"02:30:45 does not exist that day: {FORWARD}, so it runs at 03:00")
    ]


@pytest.mark.parametrize(
    ("schedule", "start", "note"),
    [
        pytest.param(
            Every("24h"),
            "2026-03-27T12:00Z",
            "clocks here have gone forward 1 hour since the one before",
            id="an interval knows no daylight saving, its reader does",
        ),
        pytest.param(
            Cron("0 9 * * *", "UTC"),
            "2026-03-27T12:00Z",
            "clocks here have gone forward 1 hour since the one before",
            id="clocks change here alone",
        ),
        pytest.param(
            Cron("0 9 * * 6", "America/New_York"),
            "2026-03-06T12:00Z",
            "clocks there have gone forward 1 hour since the one before, and not here",
            id="clocks change there alone",
        ),
        pytest.param(
            Cron("0 9 1 2,7 *", "Australia/Sydney"),
            "2026-01-02T12:00Z",
            "clocks have gone back 1 hour there and forward 1 hour here since the one before",
            id="clocks change in both, the other way round",
        ),
        pytest.param(Cron("0 9 * * 1", "Europe/Paris"), "2026-03-22T12:00Z", None, id="clocks change together"),
    ],
)
def test_a_note_says_when_the_clocks_of_the_reader_part_from_the_others(
    schedule: Schedule, start: str, note: str | None
) -> None:
    found = following(schedule, datetime.fromisoformat(start), 2, STOCKHOLM)

    assert [occurrence.note for occurrence in found] == [None, note]


# --- Notes: true in every zone --------------------------------------------------------------------------------------

EXPRESSIONS = (
    *("0 0 * * *", "30 2 * * *", "59 1 * * *", "15,45 0-3 * * *", "0-59 2 * * *", "0 12 * * *", "45 23 * * *"),
    *("0 3 * * SUN", "30 2 L * *", "*/15 * * * *", "@hourly", "0 */2 * * *", "*/20 2 * * *", "30 */3 * * *"),
    *("*/30 23,0-1 * * *", "45 30 2 * * *", "*/30 30 2 * * *", "0 0-23 * * *"),
)


@cache
def changes_of(zone: str) -> list[Change]:
    info = ZoneInfo(zone)
    return changes(info, Y2000, Y2038, step=86_400) or changes(info, 0, Y2000, step=86_400)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Change, str]:
    zone = draw(st.sampled_from(AWKWARD_ZONES))
    return zone, draw(st.sampled_from(changes_of(zone))), draw(st.sampled_from(EXPRESSIONS))


@settings(max_examples=60)
@given(cases())
@pytest.mark.deep
def test_notes_are_true_and_none_is_missing(case: tuple[str, Change, str]) -> None:
    """Held against a clock that is walked minute by minute, around a change of an awkward zone."""
    zone, change, expression = case
    line, info = read_line(expression), ZoneInfo(zone)
    stretch = walk(info, change.at - 2 * 86_400, change.at + 2 * 86_400)
    runs = [instant(at) for at in stretch.instants(line)]

    found = following(Cron(expression, zone), instant(stretch.start), len(runs), info)

    assert [occurrence.at for occurrence in found] == runs
    witness = Witness(line, change, stretch, found)
    for previous, occurrence in pairwise([None, *found]):
        assert occurrence is not None
        witness.check(previous, occurrence)


class Witness:
    """Knows what the clock on the wall showed, and reads the notes as a person would."""

    def __init__(self, line: Line, change: Change, stretch: Stretch, found: list[Occurrence]) -> None:
        self.line, self.change, self.stretch, self.found = line, change, stretch, found
        self.shown = Counter((minute.day, minute.hour, minute.minute) for minute in stretch.minutes)
        self.skipped = {wall for gap in stretch.gaps for wall in gap.skipped}

    def check(self, previous: Occurrence | None, occurrence: Occurrence) -> None:
        wall = occurrence.there.replace(tzinfo=None)
        note = occurrence.note or ""
        elapsed = None if previous is None else occurrence.at - previous.at
        twice = self.shown[wall.date(), wall.hour, wall.minute] == 2
        # Only what a line wants can be missed, and only between two occurrences.
        missed = [
            lost
            for lost in self.skipped
            if self.wants(lost) and self.is_between(previous, instant(self.change.at), occurrence)
        ]

        assert ("comes twice" in note) == twice
        assert ("not exist" in note) == bool(missed)
        assert ("so it runs at" in note or "one run" in note) == bool(missed and self.is_made_up_for())
        if not self.line.wants(wall):
            assert "so it runs at" in note or "are one run at" in note
        if twice:
            self.check_twice(occurrence, wall, note)
        if missed:
            self.check_missing(sorted(missed), wall, note)
        if "after the one before" in note:
            assert elapsed is not None
            assert f"so it comes {describe_duration(elapsed)} after the one before" in note
        if not note and previous is not None:
            is_close = occurrence.at - previous.at <= CLOSE * SECOND
            assert occurrence.there.utcoffset() == previous.there.utcoffset() or not is_close
        self.check_clocks(note)

    def wants(self, minute: datetime) -> bool:
        return any(self.line.wants(minute.replace(second=second)) for second in self.line.seconds)

    def is_between(self, previous: Occurrence | None, at: datetime, occurrence: Occurrence) -> bool:
        return (previous.at if previous else instant(self.stretch.start)) < at <= occurrence.at

    def is_made_up_for(self) -> bool:
        return self.line.fixed and not any(gap.is_correction for gap in self.stretch.gaps)

    def check_twice(self, occurrence: Occurrence, wall: datetime, note: str) -> None:
        same = [other.at for other in self.found if other.there.replace(tzinfo=None) == wall]
        assert note.startswith(f"{clock(wall)} comes twice that day, as ")
        if self.line.fixed:
            assert same == [occurrence.at]
            assert note.endswith(": it runs the first time only")
        else:
            assert len(same) == 2
            which = "first" if same.index(occurrence.at) == 0 else "second"
            assert note.endswith(f": this is the {which} time")

    def check_missing(self, missed: list[datetime], wall: datetime, note: str) -> None:
        first = missed[0].replace(second=min(self.line.seconds))
        last = missed[-1].replace(second=max(self.line.seconds))
        count = len(missed) * len(self.line.seconds)
        days = sorted({f"{first.date()}", f"{last.date()}"})
        day = "that day" if days == [f"{wall.date()}"] else f"on {' and '.join(days)}"
        times = {1: clock(first), 2: f"{clock(first)} and {clock(last)}"}.get(count, f"{clock(first)} to {clock(last)}")
        assert note.startswith(f"{times} {'does' if count == 1 else 'do'} not exist {day}: ")

    def check_clocks(self, note: str) -> None:
        told = re.search(r"clocks go (forward|back) from (?:\S{10} )?(\d\d:\d\d) to (?:\S{10} )?(\d\d:\d\d)", note)
        if told:
            before, after = (instant(self.change.at + offset) for offset in (self.change.before, self.change.after))
            assert told.groups() == ("forward" if after > before else "back", f"{before:%H:%M}", f"{after:%H:%M}")


def clock(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"


# --- Traps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        *("* * * * *", "*/15 * * * *", "0,30 * * * *", "0 * * * *", "*/20 * * * * *", "0 */6 * * *", "0 9 * * *"),
        *("0 9 * * 1-5", "@daily", "@weekly", "@monthly", "@yearly", "0 0 1,15 * *", "0 0 L * *", "0 0 30,L * *"),
        *("0 0 * * 5#2", "0 0 * * FRIL", "0 0 ? * MON", "0 0 1 * ?", "0 0 31 1,3 *", "0 0 30 4 *", "0 0 29 3 *"),
        pytest.param("0 0 28-31 * *", id="the end of every month"),
        pytest.param("0 0 28,29,30,31 * *", id="the same as a list"),
        pytest.param("*/7 9 * * *", id="the hour after does not begin anew"),
        pytest.param("0 0 */1 * *", id="every day is every day"),
        pytest.param("0 */5 * * MON", id="the day after does not begin anew"),
        pytest.param("0 0 */2 1 *", id="the month after does not begin anew"),
        pytest.param("5/15 * * * *", id="evenly spaced from 5"),
        pytest.param("30/15 * * * *", id="it begins late on purpose"),
        pytest.param("9-17/3 * * * *", id="a range is what it says"),
        pytest.param("0 0 1 */3 *", id="quarters"),
        pytest.param("0 0 * * */7", id="every seventh weekday is Sunday"),
    ],
)
def test_harmless_lines_raise_no_alarm(expression: str) -> None:
    assert traps(Cron(expression, "UTC"), NOON) == []


@pytest.mark.parametrize("schedule", [Every("7m"), Delay("7m"), At(NOON), Manual()], ids=lambda kind: kind.kind)
def test_other_schedules_have_no_traps(schedule: Schedule) -> None:
    assert traps(schedule, NOON) == []


EITHER = "The day of the month and the day of the week are both restricted, and a match of either is enough: it runs"


@pytest.mark.parametrize(
    ("expression", "trap"),
    [
        (
            "0 0 13 * FRI",
            (
                f"{EITHER} at 00:00 on the 13th of the month or on Friday; to ask for both, leave the day of "
                'the week "*" and name it in a calendar, as in "--on weekdays:MON".'
            ),
        ),
        (
            "0 0 8-14 * TUE",
            (
                f"{EITHER} at 00:00 on the 8th to 14th of the month or on Tuesday; to ask for both, write "
                '"TUE#2" as the day of the week and "*" as the day of the month.'
            ),
        ),
        (
            "0 0 L * MON",
            (
                f"{EITHER} at 00:00 on the last day of the month or on Monday; to ask for both, leave the day of "
                'the week "*" and name it in a calendar, as in "--on weekdays:MON".'
            ),
        ),
        (
            "*/7 * * * *",
            (
                '"*/7" in the minute field starts again every hour, so minute 56 is followed by minute 0 after '
                '4 minutes; "*/6" divides the hour evenly, and "every 7m" keeps its pace.'
            ),
        ),
        (
            "*/40 9-17 * * *",
            (
                '"*/40" in the minute field starts again every hour, so minute 40 is followed by minute 0 after '
                '20 minutes; "*/30" divides the hour evenly.'
            ),
        ),
        (
            "*/50 * * * * *",
            (
                '"*/50" in the second field starts again every minute, so second 50 is followed by second 0 after '
                '10 seconds; "*/30" divides the minute evenly, and "every 50s" keeps its pace.'
            ),
        ),
        (
            "*/7 0,59 * * * *",
            (
                '"*/7" in the second field starts again every minute, so second 56 is followed by second 0 after '
                '4 seconds; "*/6" divides the minute evenly.'
            ),
        ),
        (
            "0 */5 * * *",
            (
                '"*/5" in the hour field starts again every day, so hour 20 is followed by hour 0 after 4 hours; '
                '"*/4" divides the day evenly, and "every 5h" keeps its pace.'
            ),
        ),
        (
            "0 */5 * * 1-5",
            (
                '"*/5" in the hour field starts again every day, so hour 20 is followed by hour 0 after 4 hours; '
                '"*/4" divides the day evenly.'
            ),
        ),
        (
            "0 0 */2 * *",
            (
                '"*/2" in the day-of-month field starts again every month, so 31 JAN is followed by 1 FEB after '
                '1 day; "every 2d" keeps its pace.'
            ),
        ),
        (
            "0 0 */9 6,7 *",
            (
                '"*/9" in the day-of-month field starts again every month, so 28 JUN is followed by 1 JUL after '
                '3 days; name the days instead, such as "1,15".'
            ),
        ),
        (
            "0 0 1 */5 *",
            (
                '"*/5" in the month field starts again every year, so NOV is followed by JAN after 2 months; '
                '"*/4" divides the year evenly.'
            ),
        ),
        (
            "0 0 * * */2",
            (
                '"*/2" in the day-of-week field starts again every week, so SAT is followed by SUN after 1 day; '
                'name the days instead, such as "MON,WED,FRI".'
            ),
        ),
        ("0 0 31 * *", 'Day 31 never comes in FEB, APR, JUN, SEP and NOV; "L" is the last day of every month.'),
        ("0 0 30,31 * *", 'Day 30 never comes in FEB; "L" is the last day of every month.'),
        ("0 0 15,29 * *", 'Day 29 comes in FEB in leap years only; "L" is the last day of every month.'),
        ("0 0 29 2 *", 'Day 29 comes in FEB in leap years only; "L" is the last day of every month.'),
        ("0 0 * * MON#5", 'Not every month has a fifth MON; "MONL" is the last one of every month.'),
    ],
)
def test_a_trap_is_told_with_what_would_be_better(expression: str, trap: str) -> None:
    assert traps(Cron(expression, "UTC"), NOON) == [trap]


STEPS = [
    *(pytest.param(f"*/{n} * * * * *", 4 * MINUTE, id=f"every {n} seconds") for n in range(1, 60)),
    *(pytest.param(f"*/{n} * * * *", 4 * HOUR, id=f"every {n} minutes") for n in range(1, 60)),
    *(pytest.param(f"0 */{n} * * *", 4 * DAY, id=f"every {n} hours") for n in range(1, 24)),
    *(pytest.param(f"0 0 */{n} * *", 400 * DAY, id=f"every {n} days") for n in range(1, 32)),
    *(pytest.param(f"0 0 * * */{n}", 21 * DAY, id=f"every {n} weekdays") for n in range(1, 8)),
    *(pytest.param(f"{first}/13 * * * *", 4 * HOUR, id=f"every 13 minutes from {first}") for first in range(13)),
]


@pytest.mark.parametrize(("expression", "reach"), STEPS)
def test_steps_are_a_trap_exactly_if_their_runs_are_unevenly_spaced(expression: str, reach: timedelta) -> None:
    schedule = Cron(expression, "UTC")
    start = datetime(2026, 1, 1, tzinfo=UTC) - SECOND
    runs = [start]
    while (at := schedule.next_after(runs[-1])) is not None and at <= start + reach:
        runs.append(at)
    gaps = {later - earlier for earlier, later in pairwise(runs[1:])}

    assert bool(traps(schedule, NOON)) == (len(gaps) > 1)


SPRING = f"on 2026-03-29 in Europe/Stockholm, when {FORWARD}"
AUTUMN = f"on 2026-10-25 in Europe/Stockholm, when {BACK}"
AVOIDED = "a time outside 02:00 to 03:00, or the zone UTC, avoids that."


@pytest.mark.parametrize(
    ("expression", "zone", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            "Europe/Stockholm",
            [
                f"02:30 does not exist {SPRING}, and runs at 03:00 instead; {AVOIDED}",
                f"02:30 comes twice {AUTUMN}, and runs the first time only; {AVOIDED}",
            ],
            id="a fixed time that is left out and repeated",
        ),
        pytest.param(
            "0,30 1 * * *",
            "America/New_York",
            [
                (
                    "01:00 and 01:30 come twice on 2026-11-01 in America/New_York, when clocks go back from 02:00 to "
                    "01:00, and run the first time only; a time outside 01:00 to 02:00, or the zone UTC, avoids that."
                )
            ],
            id="fixed times that are repeated",
        ),
        pytest.param(
            "@daily",
            "Asia/Beirut",
            [
                (
                    "00:00 does not exist on 2026-03-29 in Asia/Beirut, when clocks go forward from 00:00 to 01:00, "
                    "and runs at 01:00 instead; a time outside 00:00 to 01:00, or the zone UTC, avoids that."
                )
            ],
            id="a midnight that does not exist",
        ),
        pytest.param(
            "*/15 2 * * *",
            "Europe/Stockholm",
            [
                f"02:00 to 02:45 do not exist {SPRING}, and are left out; {AVOIDED}",
                f"02:00 to 02:45 come twice {AUTUMN}, and run both times; {AVOIDED}",
            ],
            id="a pace within the hour that changes",
        ),
        pytest.param("*/15 * * * *", "Europe/Stockholm", [], id="a pace all day"),
        pytest.param("*/15 1-5 * * *", "Europe/Stockholm", [], id="a pace through the hour that changes"),
        pytest.param("@hourly", "Australia/Lord_Howe", [], id="every hour"),
        pytest.param("0 9 * * *", "Europe/Stockholm", [], id="a time that is never touched"),
        pytest.param("0 3 * * *", "Europe/Stockholm", [], id="the first time after the gap"),
        pytest.param("30 2 * * MON", "Europe/Stockholm", [], id="clocks change on Sundays"),
        pytest.param("30 2 * * *", "Asia/Tokyo", [], id="a zone without daylight saving"),
    ],
)
def test_the_coming_changes_of_the_clock_are_named_with_their_dates(
    expression: str, zone: str, expected: list[str]
) -> None:
    assert traps(Cron(expression, zone), NOON) == expected


def test_dates_of_the_same_trap_share_a_sentence() -> None:
    (first, _) = traps(Cron("30 2 * * *", "Europe/Stockholm"), datetime(2026, 3, 28, tzinfo=UTC))

    assert first.startswith("02:30 does not exist on 2026-03-29 and 2027-03-28 in Europe/Stockholm")


def test_a_change_around_midnight_belongs_to_two_days() -> None:
    (trap,) = traps(Cron("45 23,1 * * *", "Antarctica/Casey"), datetime(2010, 1, 1, tzinfo=UTC))

    assert trap.startswith("23:45 and 01:45 come twice on 2010-03-04 and 2010-03-05 in Antarctica/Casey, when ")


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [
        pytest.param("2026-04-01T00:00Z", None, 2, id="from April: autumn, and the spring after"),
        pytest.param(None, "2026-04-01T00:00Z", 1, id="until April: spring"),
        pytest.param("2026-04-01T00:00Z", "2026-10-01T00:00Z", 0, id="a summer"),
        pytest.param("2026-10-25T00:45Z", "2026-12-01T00:00Z", 0, id="from after the first 02:30 of two"),
    ],
)
def test_changes_outside_the_bounds_are_no_traps(start: str | None, end: str | None, count: int) -> None:
    assert len(traps(Cron("30 2 * * *", "Europe/Stockholm", start=start, end=end), NOON)) == count


def test_the_zone_of_the_system_is_not_named() -> None:
    for trap in traps(Cron("30 2 * * *"), NOON):
        assert "in the zone of the system" in trap


def days_of_note(occurrence: Occurrence) -> list[str]:
    """The days that a note speaks of."""
    named, *_ = (occurrence.note or "").partition(": ")
    return re.findall(r"\d{4}-\d\d-\d\d", named) or [f"{occurrence.there:%Y-%m-%d}"]


FIXED = ("0 0 * * *", "30 2 * * *", "45 1,23 * * *", "0 2,3 * * *", "15 0 * * SUN", "30 2 25-31 3,10 *")


@settings(max_examples=40)
@given(
    st.sampled_from(AWKWARD_ZONES),
    st.sampled_from(FIXED),
    st.datetimes(datetime(2000, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC)),
)
def test_traps_of_fixed_lines_are_the_notes_of_the_coming_year(zone: str, expression: str, now: datetime) -> None:
    """Whoever reads all occurrences and whoever reads the warning learn the same."""
    schedule = Cron(expression, zone, end=now + 365 * DAY)

    found = following(schedule, now, 1000, UTC)
    told = {
        (kind, day)
        for occurrence in found
        for kind in ("not exist", "comes twice")
        # A day that never was takes its runs with it, and nobody waits for them.
        if occurrence.note and kind in occurrence.note and ("run" in occurrence.note or "made up" in occurrence.note)
        for day in days_of_note(occurrence)
    }
    warned = {
        ("not exist" if "not exist" in trap else "comes twice", date)
        for trap in traps(schedule, now)
        for date in re.findall(r"\d{4}-\d\d-\d\d", trap.partition(" in ")[0])
    }

    assert warned == told
