"""Schedules on calendars: the rules, one by one. `test_on_calendar_oracle` holds them against brute force."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from scheduler_async import (
    AnyOf,
    At,
    BusinessDays,
    Calendar,
    Cron,
    Dates,
    Delay,
    Every,
    Hours,
    InvalidScheduleError,
    Manual,
    Schedule,
    Weekdays,
    parse_schedule,
)
from scheduler_async.timekeeping.instants import from_micros, to_micros

STOCKHOLM = "Europe/Stockholm"
WEEKDAYS = Weekdays("MON-FRI")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def following(schedule: Schedule, start: datetime, count: int) -> list[str]:
    found: list[str] = []
    after: datetime | None = start
    while len(found) < count and after is not None and (after := schedule.next_after(after)):
        found.append(f"{after:%a %d %b %H:%M}")
    return found


def test_the_last_business_day_of_the_month() -> None:
    schedule = Cron("0 9 L * *", tz=STOCKHOLM).on(BusinessDays("SE"), otherwise="before")

    assert following(schedule, at("2026-04-20"), 3) == ["Thu 30 Apr 07:00", "Fri 29 May 07:00", "Tue 30 Jun 07:00"]
    assert schedule.note_about(to_micros(at("2026-05-29T07:00"))) == "moved from Sunday 31 May to Friday 29 May"
    assert schedule.note_about(to_micros(at("2026-06-30T07:00"))) is None


RULES: list[tuple[str, Schedule, str, list[str]]] = [
    ("left out", Cron("0 9 * * *", tz="UTC").on(WEEKDAYS), "2026-05-29", ["Fri 29 May 09:00", "Mon 01 Jun 09:00"]),
    (
        "moved on",
        Cron("0 9 31 * *", tz="UTC").on(WEEKDAYS, "after"),
        "2026-05-29",
        ["Mon 01 Jun 09:00", "Fri 31 Jul 09:00"],
    ),
    (
        "those that meet become one",
        Cron("0 9 * * *", tz="UTC").on(WEEKDAYS, "after"),
        "2026-05-29T10:00",
        ["Mon 01 Jun 09:00", "Tue 02 Jun 09:00"],
    ),
    (
        "other times of the weekend stay apart",
        AnyOf(Cron("0 18 * * SAT", tz="UTC"), Cron("0 9 * * SUN", tz="UTC")).on(WEEKDAYS, "before"),
        "2026-05-29",
        ["Fri 29 May 09:00", "Fri 29 May 18:00", "Fri 05 Jun 09:00"],
    ),
    (
        "to the start of the next hours",
        Cron("30 6,12,20 * * *", tz="UTC").on(Hours("08:00-18:00"), "after"),
        "2026-05-29",
        ["Fri 29 May 08:00", "Fri 29 May 12:30", "Sat 30 May 08:00"],
    ),
    (
        "to the start of the next hours of a weekday",
        Cron("30 12,20 * * *", tz="UTC").on(WEEKDAYS & Hours("08:00-18:00"), "after"),
        "2026-05-29",
        ["Fri 29 May 08:00", "Fri 29 May 12:30", "Mon 01 Jun 08:00"],
    ),
    (
        "hours across midnight",
        Every("6h", anchor="2026-05-29T00:00:00Z").on(Hours("22:00-06:00")),
        "2026-05-29",
        ["Sat 30 May 00:00", "Sun 31 May 00:00"],
    ),
    (
        "a day inside further than a year away",
        Cron("0 9 1 1 *", tz="UTC").on(Dates("2028-06-01"), "after"),
        "2026-05-29",
        ["Thu 01 Jun 09:00"],
    ),
    (
        "an interval in UTC",
        Every("12h", anchor="2026-05-29T00:00:00Z").on(WEEKDAYS),
        "2026-05-29T13:00",
        ["Mon 01 Jun 00:00"],
    ),
    (
        "an interval in a zone",
        Every("12h", anchor="2026-05-29T00:00:00Z").on(WEEKDAYS).in_zone("America/New_York"),
        "2026-05-29T13:00",
        ["Sat 30 May 00:00", "Mon 01 Jun 12:00"],
    ),
    ("an instant", At("2026-05-31T09:00:00Z").on(WEEKDAYS, "before"), "2026-05-01", ["Fri 29 May 09:00"]),
    (
        "a start keeps its meaning",
        Cron("0 9 * * *", tz="UTC", start="2026-05-31T00:00:00Z").on(WEEKDAYS, "before"),
        "2026-05-20",
        ["Mon 01 Jun 09:00"],
    ),
    (
        "an end keeps its meaning",
        Cron("0 9 * * *", tz="UTC", end="2026-05-31T10:00:00Z").on(WEEKDAYS, "after"),
        "2026-05-29T08:00",
        ["Fri 29 May 09:00"],
    ),
]


@pytest.mark.parametrize(("schedule", "start", "expected"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
def test_a_schedule_on_a_calendar(schedule: Schedule, start: str, expected: list[str]) -> None:
    assert following(schedule, at(start), len(expected)) == expected
    assert Schedule.from_json(schedule.json_text()) == schedule
    assert hash(Schedule.from_json(schedule.to_json())) == hash(schedule)


def test_a_time_that_the_clock_skipped_is_moved_by_the_time_that_was_written() -> None:
    """29 March 2026 is a Sunday, and 02:30 does not exist in Stockholm: the plain line runs at 03:00."""
    line = Cron("30 2 * * SUN", tz=STOCKHOLM)

    assert line.next_after(at("2026-03-28")) == at("2026-03-29T01:00")
    assert line.on(WEEKDAYS, "before").next_after(at("2026-03-26")) == at("2026-03-27T01:30")
    assert line.on(Hours("02:00-03:00")).next_after(at("2026-03-28")) == at("2026-03-29T01:00")
    assert line.on(Hours("02:00-02:45")).next_after(at("2026-03-28")) == at("2026-03-29T01:00")
    assert line.on(Weekdays("SUN")).on(Hours("02:00-02:45")).next_after(at("2026-03-28")) == at("2026-03-29T01:00")


def test_times_that_a_gap_makes_one_run_are_judged_one_by_one() -> None:
    """02:00 and 02:30 are one run at 03:00 that day. The first is inside, and the second waits until Monday."""
    line = Cron("0,30 2 * * *", tz="Africa/Casablanca")
    schedule = line.on(Weekdays("MON") | Hours("00:00-02:30"), "after")

    twice = line.on(Weekdays("MON") | Hours("00:00-02:15")).on(Weekdays("MON") | Hours("02:15-03:00"))

    assert line.next_after(at("2026-03-22")) == at("2026-03-22T02:00")
    assert twice.next_after(at("2026-03-22")) == at("2026-03-23T01:00")  # neither of Sunday's is inside both
    assert following(schedule, at("2026-03-22"), 3) == ["Sun 22 Mar 02:00", "Sun 22 Mar 23:00", "Mon 23 Mar 01:00"]
    assert schedule.previous(at("2026-03-23T00:30")) == at("2026-03-22T23:00")
    assert schedule.previous(at("2026-03-22T22:00")) == at("2026-03-22T02:00")


def test_a_job_that_is_added_on_a_closed_day_waits_for_its_first_interval() -> None:
    """The anchor itself is not an occurrence, so it cannot be moved."""
    schedule = Every("30d").on(WEEKDAYS, "after")
    saturday = to_micros(at("2026-05-30T12:00"))

    assert from_micros(schedule.first_micros(saturday) or 0) == at("2026-06-29T12:00")


def test_a_delay_goes_on_counting_until_it_is_inside() -> None:
    assert Delay("45m").on(Hours("08:00-18:00")).next_after(at("2026-05-29T17:30")) == at("2026-05-30T08:30")
    assert Delay("45m").on(Hours("08:00-18:00"), "after").next_after(at("2026-05-29T17:30")) == at("2026-05-30T08:00")
    assert Delay("45m").on(WEEKDAYS, "after").next_after(at("2026-05-29T23:30")) == at("2026-06-01T00:15")


def test_jitter_is_a_part_of_the_interval_and_never_passes_the_next_occurrence() -> None:
    schedule = Every("1h", anchor="2026-05-29T00:00:00Z", jitter="10%").on(WEEKDAYS)
    last = to_micros(at("2026-05-29T23:00"))

    delays = {schedule.jittered(last, str(key)) - last for key in range(200)}

    assert max(delays) <= timedelta(minutes=6) // timedelta(microseconds=1)
    assert len(delays) > 100


BAD: list[tuple[Callable[[], Schedule], str]] = [
    (lambda: Cron("0 9 * * *", tz="UTC").on(Hours("10:00-11:00")), "ever inside the calendar"),
    (lambda: Every("1h").on(Weekdays("MON") & Weekdays("TUE")), "ever inside the calendar"),
    (lambda: Cron("* * * * * *", tz="UTC").on(Hours("10:00-11:00") & ~Hours("10:00-11:00")), "ever inside"),
    (lambda: Cron("0 9 * * SUN", tz="UTC").on(WEEKDAYS), "ever inside the calendar"),
    (lambda: Cron("0 9 * * *", tz="UTC").on(Hours("10:00-11:00"), "before"), "needs a calendar of whole days"),
    (lambda: Delay("5m").on(WEEKDAYS, "before"), "cannot be moved to an earlier day"),
    (lambda: Manual().on(WEEKDAYS), "only when it is triggered"),
    (lambda: Every("5m").on("MON-FRI"), "must be Weekdays"),  # type: ignore[arg-type]
    (lambda: Every("5m").on(WEEKDAYS, "later"), '"skip", "before" or "after"'),
    (lambda: parse_schedule("every 5m on weekdays:MON otherwise later"), '"skip", "before" or "after"'),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[f"{number} {words}" for number, (_, words) in enumerate(BAD)])
def test_what_makes_no_sense_is_refused(make: Callable[[], Schedule], words: str) -> None:
    with pytest.raises(InvalidScheduleError, match=words):
        make()


def test_the_search_gives_up_instead_of_looping() -> None:
    """A calendar whose dates have passed, and a pair that can be read from a store, but never meets."""
    passed = Cron("0 9 * * *", tz="UTC").on(Dates("2020-12-24"))
    form = Cron("0 9 * * *", tz="UTC").on(Hours("08:00-10:00")).to_json()
    never = Schedule.from_json({**form, "calendar": Hours("10:00-11:00").to_json()})

    assert passed.next_after(at("2026-01-01")) is None
    assert never.next_after(at("2026-01-01")) is None
    assert never.previous(at("2026-01-01")) is None
    assert never.count_micros(0, to_micros(at("2026-01-01")), 0, 10**6) == 0


def asked(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the questions to the schedule below a calendar."""
    count = [0]
    for name in ("next_micros", "latest_micros", "count_micros"):
        plain = getattr(Cron, name)

        def counting(self: Cron, *args: object, plain: Callable[..., object] = plain) -> object:
            count[0] += 1
            return plain(self, *args)

        monkeypatch.setattr(Cron, name, counting)
    return count


@pytest.mark.parametrize("otherwise", ["skip", "before", "after"])
@pytest.mark.parametrize(
    "calendar", [WEEKDAYS, Weekdays("SUN"), Dates("2026-12-24", "2027-12-24")], ids=Calendar.describe
)
def test_no_question_looks_at_occurrences_one_by_one(
    calendar: Calendar, otherwise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = Cron("* * * * * *", tz=STOCKHOLM).on(calendar, otherwise)
    count = asked(schedule, monkeypatch)
    now, year = to_micros(at("2026-12-26T12:00")), 365 * 86_400 * 10**6

    questions: list[Callable[[], object]] = [
        lambda: schedule.next_micros(now, now),
        lambda: schedule.latest_micros(now, now),
        lambda: schedule.count_micros(now - year, now, now - year, 10**6),
        lambda: schedule.count_micros(now - 30 * year, now, now - 30 * year, 10**6),
    ]
    for question in questions:
        count[0] = 0
        question()
        assert count[0] < 8_000


def test_many_that_meet_are_counted_without_looking_at_each() -> None:
    schedule = Every("7s", anchor="2026-05-25T00:00:00Z").on(WEEKDAYS, "before")
    start, end = to_micros(at("2026-05-25")) - 1, to_micros(at("2026-06-01")) - 1
    friday = {
        (to_micros(at("2026-05-29")) + phase + 7_000_000 * number)
        for day in (29, 30, 31)
        for phase in [(-(day - 25) * 86_400 % 7) * 1_000_000]
        for number in range(20_000)
        if phase + 7_000_000 * number < 86_400_000_000
    }

    plain = schedule.schedule.count_micros(start, to_micros(at("2026-05-29")) - 1, None, 10**6)  # type: ignore[attr-defined]

    assert schedule.count_micros(start, end, None, 10**6) == plain + len(friday)
