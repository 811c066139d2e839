"""Schedules as values: when they fire, what they say, and how they are kept."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from importlib.resources import files
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    IntervalParseError,
    InvalidScheduleError,
    Manual,
    Schedule,
    UnknownZoneError,
    parse_schedule,
)
from scheduler_async.timekeeping.instants import from_micros, to_micros

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


# ---------------------------------------------------------------- Every


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        pytest.param(Every("5m"), NOON, NOON + 5 * MINUTE, id="bare, it counts from the question"),
        pytest.param(Every("5m", anchor=NOON), NOON, NOON + 5 * MINUTE, id="exactly on a grid point, strictly after"),
        pytest.param(
            Every("5m", anchor=NOON), NOON + 5 * MINUTE - SECOND, NOON + 5 * MINUTE, id="a second before a grid point"
        ),
        pytest.param(Every("5m", anchor=NOON), NOON + 7 * MINUTE, NOON + 10 * MINUTE, id="between grid points"),
        pytest.param(Every("5m", anchor=NOON), NOON - HOUR, NOON, id="before the anchor, the anchor"),
        pytest.param(
            Every("5m", anchor=NOON), NOON - timedelta(microseconds=1), NOON, id="a microsecond before the anchor"
        ),
        pytest.param(
            Every("5m", anchor=NOON), NOON + 1000 * HOUR + SECOND, NOON + 1000 * HOUR + 5 * MINUTE, id="long offline"
        ),
        pytest.param(Every("1d", anchor=NOON), NOON + HOUR, NOON + 24 * HOUR, id="a day"),
        pytest.param(Every("5m", anchor=NOON, start=NOON + HOUR), NOON, NOON + HOUR, id="not before its start"),
        pytest.param(
            Every("7m", anchor=NOON, start=NOON + HOUR), NOON, NOON + 63 * MINUTE, id="the first on the grid from start"
        ),
        pytest.param(Every("5m", start=NOON + 12 * MINUTE), NOON, NOON + 15 * MINUTE, id="bare, with a start"),
        pytest.param(
            Every("5m", anchor=NOON, end=NOON + 5 * MINUTE), NOON, NOON + 5 * MINUTE, id="the end is included"
        ),
        pytest.param(Every("5m", anchor=NOON, end=NOON + 5 * MINUTE), NOON + 5 * MINUTE, None, id="past its end, none"),
        pytest.param(
            Every("5m", anchor=NOON + HOUR, end=NOON + 2 * HOUR), NOON, NOON + HOUR, id="the anchor in bounds"
        ),
        pytest.param(Every("1d"), datetime(9999, 12, 31, 12, tzinfo=UTC), None, id="nothing after the calendar"),
        pytest.param(Every("3652059d"), NOON, None, id="an interval longer than what is left"),
    ],
)
def test_every_fires_on_its_grid(schedule: Every, now: datetime, expected: datetime | None) -> None:
    assert schedule.next_after(now) == expected


@given(
    interval=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=400)),
    anchor=st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    now=st.datetimes(datetime(1980, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
)
def test_every_gives_the_first_grid_point_strictly_after(interval: timedelta, anchor: datetime, now: datetime) -> None:
    schedule = Every(interval, anchor=anchor)

    found = schedule.next_after(now)

    assert found is not None
    assert found > now
    assert not (found - anchor) % interval
    assert found == anchor or found - interval <= now
    assert schedule.previous(found) == found
    before = schedule.previous(now)
    assert before is None or before <= now < before + interval
    assert (before is None) == (now < anchor)


@given(
    step=st.integers(1, 50),
    anchor=st.integers(-100, 100),
    after=st.integers(-200, 200),
    until=st.integers(-200, 200),
    start=st.none() | st.integers(-200, 0),
    end=st.none() | st.integers(0, 200),
    cap=st.integers(0, 60),
)
def test_every_counts_what_lies_between(
    step: int, anchor: int, after: int, until: int, start: int | None, end: int | None, cap: int
) -> None:
    """How many occurrences a row of the run log stands for must be exact."""
    schedule = Every(
        timedelta(microseconds=step),
        anchor=from_micros(anchor),
        start=None if start is None else from_micros(start),
        end=None if end is None else from_micros(end),
    )

    counted = schedule.count_micros(after, until, None, cap)

    grid = range(anchor, 202, step)
    expected = [
        at for at in grid if after < at <= until and (start is None or at >= start) and (end is None or at <= end)
    ]
    assert counted == min(len(expected), cap)


def test_every_without_an_anchor_uses_the_one_it_is_told() -> None:
    """A job's anchor is fixed when it is added; the schedule itself stays as it was given."""
    schedule = Every("5m")
    added = to_micros(NOON)

    assert schedule.next_micros(added + 60_000_000, added) == added + 300_000_000
    assert schedule.latest_micros(added + 301_000_000, added) == added + 300_000_000
    assert schedule.count_micros(added, added + 900_000_000, added, 10) == 3
    assert Every("5m", anchor=NOON).next_micros(added, added + 1) == added + 300_000_000
    assert schedule.previous(NOON) is None


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        pytest.param(Every("5m"), NOON + 5 * MINUTE, id="after one interval"),
        pytest.param(Every("5m", anchor=NOON + HOUR), NOON + HOUR, id="at the anchor"),
        pytest.param(Every("5m", immediately=True), NOON, id="at once"),
        pytest.param(Every("5m", immediately=True, start=NOON + HOUR), NOON + HOUR, id="at once when it starts"),
        pytest.param(Every("5m", immediately=True, end=NOON - HOUR), None, id="not at all, it has ended"),
        pytest.param(Delay("5m"), NOON, id="a delay, at once"),
        pytest.param(Delay("5m", start=NOON + HOUR), NOON + HOUR, id="a delay, at its start"),
        pytest.param(Delay("5m", immediately=False), NOON + 5 * MINUTE, id="a delay, after one interval"),
        pytest.param(Cron("0 13 * * *", tz="UTC"), NOON + HOUR, id="cron, the next match"),
        pytest.param(At(NOON + HOUR), NOON + HOUR, id="at its moment"),
        pytest.param(At(NOON - HOUR), NOON - HOUR, id="at its moment, also when that has passed"),
        pytest.param(Manual(), None, id="manual, never"),
    ],
)
def test_the_first_run_of_a_job_added_at_noon(schedule: Schedule, expected: datetime | None) -> None:
    first = schedule.first_micros(to_micros(NOON))

    assert (None if first is None else from_micros(first)) == expected


# ---------------------------------------------------------------- the others


@pytest.mark.parametrize(
    ("schedule", "now", "following", "before"),
    [
        pytest.param(Delay("5m"), NOON, NOON + 5 * MINUTE, None, id="delay"),
        pytest.param(Delay("5m", start=NOON + HOUR), NOON, NOON + HOUR, None, id="delay before its start"),
        pytest.param(Delay("5m", end=NOON + 5 * MINUTE), NOON, NOON + 5 * MINUTE, None, id="delay at its end"),
        pytest.param(Delay("5m", end=NOON + 4 * MINUTE), NOON, None, None, id="delay past its end"),
        pytest.param(At(NOON), NOON - SECOND, NOON, None, id="at, before"),
        pytest.param(At(NOON), NOON, None, NOON, id="at, exactly then"),
        pytest.param(At(NOON), NOON + SECOND, None, NOON, id="at, after"),
        pytest.param(Manual(), NOON, None, None, id="manual"),
        pytest.param(Cron("0 12 * * *", tz="UTC"), NOON, NOON + 24 * HOUR, NOON, id="cron, exactly then"),
        pytest.param(
            Cron("0 12 * * *", tz="UTC"),
            NOON - timedelta(microseconds=1),
            NOON,
            NOON - 24 * HOUR,
            id="cron, a microsecond before",
        ),
        pytest.param(
            Cron("* * * * *", tz="UTC", start=NOON + timedelta(seconds=30)), NOON, NOON + MINUTE, None, id="cron, start"
        ),
        pytest.param(
            Cron("* * * * *", tz="UTC", end=NOON + timedelta(seconds=30)), NOON, None, NOON, id="cron, past its end"
        ),
        pytest.param(
            Cron("* * * * *", tz="UTC", start=NOON, end=NOON), NOON - HOUR, NOON, None, id="cron, bounds are included"
        ),
    ],
)
def test_next_and_previous(
    schedule: Schedule, now: datetime, following: datetime | None, before: datetime | None
) -> None:
    assert schedule.next_after(now) == following
    assert schedule.previous(now) == before


def test_seed_002_finds_the_latest_time_that_is_due() -> None:
    """At 10:22, a task for a quarter past each hour is overdue since 10:15."""
    schedule = Cron("15 * * * *", tz="UTC")

    assert schedule.previous(datetime(2026, 1, 5, 10, 22, tzinfo=UTC)) == datetime(2026, 1, 5, 10, 15, tzinfo=UTC)


def test_counting_occurrences_of_the_others() -> None:
    start, end = to_micros(NOON), to_micros(NOON + HOUR)

    assert Cron("*/15 * * * *", tz="UTC").count_micros(start, end, None, 100) == 4
    assert Cron("*/15 * * * *", tz="UTC").count_micros(start, end, None, 3) == 3
    assert Cron("*/15 * * * *", tz="UTC", start=NOON + HOUR).count_micros(start, end, None, 100) == 1
    assert Cron("*/15 * * * *", tz="UTC", end=NOON + 20 * MINUTE).count_micros(start, end, None, 100) == 1
    assert At(NOON).count_micros(start, end, None, 100) == 0
    assert At(NOON + SECOND).count_micros(start, end, None, 100) == 1
    assert At(NOON + SECOND).count_micros(start, end, None, 0) == 0
    assert At(NOON + HOUR).count_micros(start, end, None, 100) == 1
    assert Delay("1s").count_micros(start, end, None, 100) == 0
    assert Manual().count_micros(start, end, None, 100) == 0


def test_a_question_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidScheduleError, match="has no time zone"):
        Every("5m").next_after(datetime(2026, 1, 5))
    with pytest.raises(InvalidScheduleError, match="must be a datetime"):
        Cron("* * * * *").previous(5)  # type: ignore[arg-type]


def test_a_question_may_be_asked_in_any_zone() -> None:
    stockholm = NOON.astimezone(ZoneInfo("Europe/Stockholm"))

    assert Every("5m").next_after(stockholm) == NOON + 5 * MINUTE


# ---------------------------------------------------------------- zones


def test_an_unknown_zone_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UnknownZoneError, match='Did you mean "Europe/Stockholm"'):
        Cron("0 9 * * *", tz="Europe/Stokholm")


@pytest.mark.parametrize("zone", ["", "Europe", "../etc/passwd", "/etc/localtime", "x" * 10_000_000, 5, "a\x00b", "ä"])
def test_what_is_no_zone_is_refused(zone: Any) -> None:
    """Names of files and directories reach the zone database: none of them may leak another error."""
    with pytest.raises(UnknownZoneError):
        Cron("0 9 * * *", tz=zone)


class Fixed(tzinfo):
    """As small as such classes are."""

    def __init__(self, offset: Any) -> None:
        self.offset = offset

    def utcoffset(self, _: datetime | None) -> timedelta:
        if isinstance(self.offset, Exception):
            raise self.offset
        return self.offset  # type: ignore[no-any-return]

    def tzname(self, _: datetime | None) -> None:
        return None

    def dst(self, _: datetime | None) -> None:
        return None


class Changing(Fixed):
    """A zone as pytz makes them: with itself as the zone of a moment, it answers with its first offset."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return HOUR * 2 if moment is not None and moment.tzinfo is None and moment.month > 3 else HOUR


INDIA = 5.5 * HOUR
CALCUTTA = timedelta(hours=5, minutes=53, seconds=28)  # of its local mean time
STOCKHOLM = files("tzdata").joinpath("zoneinfo/Europe/Stockholm").read_bytes()


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        pytest.param(ZoneInfo("Europe/Stockholm"), "Europe/Stockholm", id="ZoneInfo"),
        pytest.param(ZoneInfo("UTC"), "UTC", id="ZoneInfo of UTC"),
        pytest.param(UTC, "UTC", id="UTC"),
        pytest.param(timezone(timedelta(0), "Zulu"), "UTC", id="UTC by another name"),
        pytest.param(timezone(INDIA), "UTC+05:30", id="timezone"),
        pytest.param(timezone(INDIA, "IST"), "UTC+05:30", id="timezone with a name"),
        pytest.param(timezone(-INDIA), "UTC-05:30", id="timezone in the west"),
        pytest.param(timezone(24 * HOUR - MINUTE), "UTC+23:59", id="the largest offset"),
        pytest.param(timezone(CALCUTTA), "UTC+05:53:28", id="timezone with seconds"),
        pytest.param("-055328", "UTC-05:53:28", id="seconds without colons"),
        pytest.param(Fixed(INDIA), "UTC+05:30", id="another class"),
        pytest.param("+05:30", "UTC+05:30", id="offset"),
        pytest.param("-0530", "UTC-05:30", id="offset without a colon"),
        pytest.param("+05", "UTC+05:00", id="offset without minutes"),
        pytest.param("utc+05:30", "UTC+05:30", id="offset from UTC"),
        pytest.param("-00:00", "UTC", id="no offset"),
    ],
)
def test_a_zone_has_one_name_however_it_is_given(zone: Any, name: str) -> None:
    schedule = Cron("0 9 * * *", tz=zone)

    assert schedule.tz == name
    assert schedule == Cron("0 9 * * *", tz=name) == parse_schedule("0 9 * * *", tz=zone)
    assert hash(schedule) == hash(Cron("0 9 * * *", tz=name))
    assert Schedule.from_json(schedule.json_text()) == schedule == pickle.loads(pickle.dumps(schedule))
    assert schedule.describe() == f"at 09:00 ({name})"


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("+05:30", 3.5),
        (timezone(-INDIA), 14.5),
        ("UTC+23:59", 9 - 24 + 1 / 60 + 24),
        (timezone(CALCUTTA), 9 - CALCUTTA / HOUR),
    ],
    ids=str,
)
def test_a_fixed_offset_is_the_same_all_year(zone: Any, hour: float) -> None:
    schedule = Cron("0 9 * * *", tz=zone)

    for day in (datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 13)):
        assert schedule.next_after(day) == day + hour * HOUR
        assert schedule.previous(day + 24 * HOUR) == day + hour * HOUR


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        pytest.param(Changing(HOUR), "type Changing changes its offset", id="pytz"),
        pytest.param(ZoneInfo.from_file(BytesIO(STOCKHOLM)), "ZoneInfo must have a key", id="a file"),
        pytest.param(timezone(timedelta(microseconds=1)), "must be whole seconds", id="a part of a second"),
        pytest.param(Fixed(timedelta(days=1)), "less than a day", id="a day"),
        pytest.param(Fixed(None), "has no offset", id="nothing"),
        pytest.param(Fixed(5), "has no offset", id="number"),
        pytest.param(Fixed([]), "Cannot get the offset", id="list"),
        pytest.param(Fixed(KeyError("x")), "Cannot get the offset", id="error"),
    ],
)
def test_a_zone_that_cannot_be_stored_is_refused_with_what_can(zone: tzinfo, words: str) -> None:
    with pytest.raises(UnknownZoneError, match=words) as caught:
        Cron("0 9 * * *", tz=zone)

    assert 'Use ZoneInfo("Europe/Stockholm")' in str(caught.value)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Europe/Stockholm", datetime(2026, 7, 1, 7, tzinfo=UTC)),
        ("America/New_York", datetime(2026, 7, 1, 13, tzinfo=UTC)),
        ("UTC", datetime(2026, 7, 1, 9, tzinfo=UTC)),
    ],
)
def test_without_a_zone_cron_follows_the_systems(zone: str, expected: datetime) -> None:
    """The same schedule object must follow when the process changes its zone."""
    schedule = Cron("0 9 * * *")

    with time_machine.travel(datetime(2026, 6, 30, 12, tzinfo=ZoneInfo(zone)), tick=False):
        assert schedule.next_after(datetime(2026, 7, 1, tzinfo=UTC)) == expected


# ---------------------------------------------------------------- jitter


@given(st.text(max_size=20), st.integers(0, 10_000))
def test_jitter_is_stable_never_early_and_never_reaches_the_next_occurrence(key: str, number: int) -> None:
    at = to_micros(NOON) + number * 3_600_000_000
    for jitter in ("10%", "30s", "2h"):
        schedule = Every("1h", anchor=NOON, jitter=jitter)

        delayed = schedule.jittered(at, key)

        assert delayed == schedule.jittered(at, key)
        assert at <= delayed < at + 3_600_000_000
        longest = {"10%": 360_000_000, "30s": 30_000_000, "2h": 3_600_000_000}[jitter]
        assert delayed - at <= longest


def test_jitter_spreads_jobs_and_occurrences() -> None:
    """A thousand jobs at the top of the hour should not start at once; that is what it is for."""
    schedule = Cron("0 * * * *", tz="UTC", jitter="5%")
    at = to_micros(NOON)

    delays = sorted(schedule.jittered(at, f"default/{number}") - at for number in range(1000))

    assert len(set(delays)) > 990
    assert delays[100] < 0.2 * 180_000_000
    assert delays[900] > 0.8 * 180_000_000
    assert len({schedule.jittered(at + k * 3_600_000_000, "a") - at - k * 3_600_000_000 for k in range(10)}) == 10


def test_jitter_does_not_accumulate() -> None:
    """The next occurrence is found from the grid, wherever within its jitter the last one ran."""
    schedule = Every("1h", anchor=NOON, jitter="10%")
    at = to_micros(NOON)

    for _ in range(1000):
        following = schedule.next_micros(schedule.jittered(at, "a"))
        assert following == at + 3_600_000_000
        at = following


@pytest.mark.parametrize(
    ("schedule", "longest"),
    [
        pytest.param(Cron("0 12 * * *", tz="UTC", jitter="10%"), 8_640_000_000, id="cron, a tenth of the day"),
        pytest.param(Cron("*/1 * * * *", tz="UTC", jitter="5m"), 59_999_999, id="cron, below the next match"),
        pytest.param(Every("10s", jitter="10%"), 1_000_000, id="every"),
        pytest.param(Every("1s", jitter="1h"), 999_999, id="below the next grid point"),
        pytest.param(
            Every("1h", anchor=NOON + 10 * MINUTE, immediately=True, jitter="1h"),
            599_999_999,
            id="an immediate run, below the first grid point",
        ),
        pytest.param(
            Every("1h", anchor=NOON + 10 * HOUR, immediately=True, jitter="10%"),
            360_000_000,
            id="an immediate run, a tenth of the interval",
        ),
        pytest.param(Delay("10s", jitter="10%"), 1_000_000, id="delay"),
        pytest.param(At(NOON, jitter="1m"), 60_000_000, id="at"),
        pytest.param(Every("1h", jitter="10%", end=NOON + SECOND), 1_000_000, id="not past the end"),
        pytest.param(Every("1h", jitter="10%", end=NOON), 0, id="at the end, none"),
        pytest.param(Every("1h"), 0, id="no jitter"),
        pytest.param(Manual(), 0, id="manual"),
    ],
)
def test_how_far_jitter_goes(schedule: Schedule, longest: int) -> None:
    delays = [schedule.jittered(to_micros(NOON), str(key)) - to_micros(NOON) for key in range(300)]

    assert max(delays) <= longest
    assert max(delays) >= longest * 0.9
    assert min(delays) >= 0
    assert min(delays) <= longest * 0.1


@pytest.mark.parametrize(
    "jitter", ["11%", "0%", "5 percent", "", "-5%", "%", "1e1%", "0s", 5, True, 0.5, [], "9" * 100]
)
def test_a_bad_jitter_is_refused(jitter: Any) -> None:
    with pytest.raises(InvalidScheduleError):
        Every("1h", jitter=jitter)


def test_jitter_ends_with_the_calendar() -> None:
    """A later moment could be stored, and never be read again."""
    schedule = At(datetime.max.replace(tzinfo=UTC), jitter="30s")
    at = to_micros(schedule.at)

    assert {schedule.jittered(at, f"job {number}") for number in range(20)} == {at}


def test_the_largest_jitter_is_a_tenth() -> None:
    assert Every("1h", jitter="10%").jitter == 0.1
    assert Every("1h", jitter="10.0 %").jitter == 0.1
    with pytest.raises(InvalidScheduleError, match='up to "10%"'):
        Every("1h", jitter="10.001%")


def test_a_percentage_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidScheduleError, match="no interval"):
        At(NOON, jitter="5%")


# ---------------------------------------------------------------- values

SCHEDULES = [
    Every("5m"),
    Every("1h", anchor=NOON, immediately=True, jitter="7%", start=NOON, end=NOON + HOUR),
    Every(timedelta(microseconds=1_500_001), jitter=timedelta(microseconds=3)),
    Delay("5m"),
    Delay("1d", immediately=False, jitter="2.5%"),
    Cron("0 9 * * 1-5", tz="Europe/Stockholm", jitter="30s"),
    Cron("@daily"),
    At("2026-06-15T09:00:00Z", jitter="1m"),
    At(datetime(2026, 6, 15, 9, 0, 0, 1, tzinfo=UTC), end="2027-01-01T00:00:00Z"),
    Manual(),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.describe())
def test_a_schedule_survives_json_and_pickle(schedule: Schedule) -> None:
    form = schedule.to_json()

    assert Schedule.from_json(form) == schedule
    assert Schedule.from_json(json.dumps(form)) == schedule
    assert form["version"] == 1
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert hash(Schedule.from_json(form)) == hash(schedule)
    assert schedule.json_text() == json.dumps(form, separators=(",", ":"))


@given(
    st.builds(
        Every,
        st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
        anchor=st.none() | st.datetimes(timezones=st.just(UTC)),
        immediately=st.booleans(),
        jitter=st.none()
        | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059))
        | st.integers(1, 10_000).map(lambda thousandths: f"{thousandths / 1000}%"),
    )
)
def test_every_schedule_survives_json(schedule: Every) -> None:
    assert Schedule.from_json(json.dumps(schedule.to_json())) == schedule


@given(
    st.builds(
        At,
        st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.timezones()),
        jitter=st.none() | st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
    )
)
def test_every_moment_survives_json(schedule: At) -> None:
    """Its text is written by another way than its JSON values, since many are added at once."""
    assert schedule.json_text() == json.dumps(schedule.to_json(), separators=(",", ":"))
    assert Schedule.from_json(schedule.json_text()) == schedule


def test_equality_is_by_value() -> None:
    assert Every("60s") == Every("1m") == Every(timedelta(minutes=1))
    assert Every("1m") != Every("1m", immediately=True)
    assert Every("1m") != Delay("1m")  # type: ignore[comparison-overlap]
    assert Cron(" 0  9 * * mon ") == Cron("0 9 * * MON")
    assert Cron("0 9 * * *") != Cron("0 9 * * *", tz="UTC")
    assert At("2026-01-05T13:00:00+01:00") == At(NOON)
    assert Manual() == Manual()
    assert len({Every("60s"), Every("1m"), Manual(), Manual()}) == 2


def test_schedules_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Every("5m").interval = timedelta(1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        pytest.param("{", "not the JSON form", id="broken JSON"),
        pytest.param("[]", "not the JSON form", id="a list"),
        pytest.param("5", "not the JSON form", id="a number"),
        pytest.param({}, "not the JSON form", id="empty"),
        pytest.param({"version": 2, "kind": "every"}, "Upgrade scheduler_async", id="a newer version"),
        pytest.param({"version": 1, "kind": "often"}, "does not know schedules of the kind", id="an unknown kind"),
        pytest.param({"version": 1, "kind": 10**5000}, "not the JSON form", id="a kind that cannot be shown"),
        pytest.param({"version": 10**5000, "kind": "every"}, "not the JSON form", id="a version that cannot be shown"),
        pytest.param({"version": 1, "kind": "every"}, "not the JSON form", id="no interval"),
        pytest.param({"version": 1, "kind": "every", "interval": "5m", "x": 1}, "not the JSON form", id="unknown part"),
        pytest.param({"version": 1, "kind": "every", "interval": "5x"}, "Invalid time unit", id="a bad interval"),
        pytest.param({"version": 1, "kind": "cron", "expression": "x"}, "Invalid cron", id="a bad expression"),
        pytest.param({"version": 1, "kind": "every", "interval": "1h", "jitter": 5}, "Invalid interval", id="jitter"),
        pytest.param("[" * 100_000, "not the JSON form", id="deeply nested"),
    ],
)
def test_a_bad_json_form_is_refused(form: Any, words: str) -> None:
    """One bad row in a store must be one bad job, not a crash."""
    with pytest.raises(InvalidScheduleError, match=words):
        Schedule.from_json(form)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda: Every("5m", anchor="2026-01-05"), "anchor .* has no time zone", id="naive anchor"),
        pytest.param(lambda: Every("5m", start="soon"), "as the start", id="bad start"),
        pytest.param(
            lambda: Every("5m", start=NOON, end=NOON - SECOND), "end .* must not be before start", id="end first"
        ),
        pytest.param(lambda: Every("5m", immediately="yes"), "immediately must be True or False", id="not a flag"),  # type: ignore[arg-type]
        pytest.param(lambda: At(NOON, end=NOON - SECOND), "must lie between start and end", id="at past its end"),
        pytest.param(lambda: At(NOON, start=NOON + SECOND), "must lie between start and end", id="at before its start"),
        pytest.param(lambda: At(datetime(2026, 1, 5)), "has no time zone", id="naive at"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        make()


def test_bounds_that_meet_are_fine() -> None:
    assert At(NOON, start=NOON, end=NOON).next_after(NOON - SECOND) == NOON
    assert Every("5m", start=NOON, end=NOON).start == NOON


def test_an_interval_is_raised_to_the_minimum() -> None:
    assert Every("1s", immediately=True).raised_to(10 * SECOND) == Every("10s", immediately=True)
    assert Delay("1s", immediately=False).raised_to(10 * SECOND) == Delay("10s", immediately=False)
    assert Every("10s").raised_to(10 * SECOND) == Every("10s")
    assert Delay("10s").raised_to(10 * SECOND) == Delay("10s")
    assert Cron("* * * * * *").raised_to(10 * SECOND) == Cron("* * * * * *")


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Every("5m"), "every 5 minutes"),
        (Every("1h"), "every hour"),
        (Every("90s"), "every 1 minute 30 seconds"),
        (Every("5m", anchor=NOON), "every 5 minutes, counted from 2026-01-05 12:00 UTC"),
        (Every("1d", jitter="5%"), "every day, up to 5% of the interval later"),
        (Delay("5m"), "5 minutes after the previous run finished"),
        (
            Cron("0 9 * * 1-5", tz="Europe/Stockholm", jitter="30s"),
            "at 09:00 on Monday to Friday (Europe/Stockholm), up to 30 seconds later",
        ),
        (At(NOON), "once at 2026-01-05 12:00 UTC"),
        (
            Every("5m", start=NOON, end=NOON + HOUR),
            "every 5 minutes, from 2026-01-05 12:00 UTC, until 2026-01-05 13:00 UTC",
        ),
        (Manual(), "only when triggered"),
    ],
)
def test_a_schedule_describes_itself(schedule: Schedule, words: str) -> None:
    assert schedule.describe() == words


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (At("2026-06-15T09:00:00Z"), "once at 2026-06-15 11:00 CEST"),
        (Every("5m", anchor=NOON), "every 5 minutes, counted from 2026-01-05 13:00 CET"),
        (Delay("5m", end=NOON), "5 minutes after the previous run finished, until 2026-01-05 13:00 CET"),
        (Cron("0 9 * * *", tz="Asia/Tokyo", start=NOON), "at 09:00 (Asia/Tokyo), from 2026-01-05 13:00 CET"),
        (Manual(), "only when triggered"),
    ],
)
def test_a_schedule_describes_itself_on_the_clock_of_the_reader(schedule: Schedule, words: str) -> None:
    assert schedule.describe(ZoneInfo("Europe/Stockholm")) == words


def test_cron_without_a_zone_says_whose_it_is() -> None:
    with time_machine.travel(datetime(2026, 6, 30, 12, tzinfo=ZoneInfo("Europe/Stockholm"))):
        assert Cron("0 9 * * *").describe() == "at 09:00 (CET/CEST, the system's zone)"


# ---------------------------------------------------------------- what a person types


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every 5m", Every("5m")),
        (" EVERY  5M ", Every("5m")),
        ("after 5m", Delay("5m")),
        ("0 9 * * *", Cron("0 9 * * *")),
        ("30 0 9 * * *", Cron("30 0 9 * * *")),
        ("@daily", Cron("@daily")),
        ("2026-06-15T09:00:00Z", At("2026-06-15T09:00:00Z")),
        ("2026-06-15 09:00Z", At("2026-06-15T09:00:00Z")),
        ("at 2026-06-15T09:00:00Z", At("2026-06-15T09:00:00Z")),
        ("manual", Manual()),
        ("Manual", Manual()),
    ],
)
def test_a_schedule_is_read_as_typed(text: str, expected: Schedule) -> None:
    assert parse_schedule(text) == expected


def test_a_typed_cron_line_takes_a_zone() -> None:
    assert parse_schedule("0 9 * * *", tz="UTC") == Cron("0 9 * * *", tz="UTC")


@pytest.mark.parametrize(
    "text", ["", "5m", "manual please", "every", "at noon", "2026-06-15", "@sometimes", "x y", None]
)
def test_what_is_no_schedule_is_refused(text: Any) -> None:
    with pytest.raises(InvalidScheduleError):
        parse_schedule(text)


def test_a_bare_duration_is_told_its_two_meanings() -> None:
    with pytest.raises(InvalidScheduleError, match=r'"every 5m" .* "after 5m"'):
        parse_schedule("5m")
    with pytest.raises(IntervalParseError, match="Invalid time unit"):
        parse_schedule("every 5 minutes")


@given(
    interval=st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=3_652_059)),
    anchor=st.none() | st.datetimes(timezones=st.just(UTC)),
    now=st.datetimes(timezones=st.just(UTC)),
)
def test_an_interval_is_the_same_in_datetimes_and_in_microseconds(
    interval: timedelta, anchor: datetime | None, now: datetime
) -> None:
    """The short way that people get, and the way the scheduler goes."""
    schedule = Every(interval, anchor)

    found = schedule.next_micros(to_micros(now))

    assert schedule.next_after(now) == (None if found is None else from_micros(found))
