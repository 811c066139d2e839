"""The timeline of `preview`: marks where the runs are, labels where the clocks show them, in any width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from itertools import pairwise
from math import floor
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from scheduler_async import Every, Job, JobSpec, Upcoming
from scheduler_async.cli.timeline import draw_timeline
from scheduler_async.rules.edits import add
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import DAY, HOUR, MINUTE, NOON, SECOND

STOCKHOLM = ZoneInfo("Europe/Stockholm")


def a_job(id: str, namespace: str = "default") -> Job:
    return add(JobSpec(Every("5m"), handler="h", id=id, namespace=namespace), id=id, handler="h", now=to_micros(NOON))


def run(id: str, at: datetime, namespace: str = "default") -> Upcoming:
    return Upcoming(job=a_job(id, namespace), at=at, retries_left=None)


def runs(id: str, *minutes: float) -> list[Upcoming]:
    return [run(id, NOON + minute * MINUTE) for minute in minutes]


def draw(
    upcoming: Sequence[Upcoming],
    span: timedelta = HOUR,
    begin: datetime = NOON,
    *,
    width: int = 65,
    zone: tzinfo = UTC,
    ascii: bool = False,
) -> list[str]:
    return draw_timeline(upcoming, begin, begin + span, width=width, zone=zone, ascii=ascii)


# --- What it looks like ---------------------------------------------------------------------------------------------


def test_an_hour() -> None:
    upcoming = [*runs("abcd", 0, 15, 30, 45, 60), *runs("ef", 7.5, 31, 31.1)]

    assert draw(upcoming) == [
        "     12:00     12:10     12:20     12:30     12:40     12:50",
        "     ┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────",
        "abcd •              •              •              •             •",
        "ef          •                       2",
    ]


def test_an_hour_on_a_plain_terminal() -> None:
    upcoming = [*runs("ab", 0, 15), *runs("a-name-of-some-length-and-more", 7.5), *runs("日本", 20)]

    assert draw(upcoming, width=40, ascii=True) == [
        "              12:00        12:30",
        "              +------------+------------",
        "ab            *     *",
        "a-name-of-s..    *",
        "??                    *",
    ]


def test_a_day_is_measured_in_hours() -> None:
    assert draw(runs("abcd", 90), DAY, width=77)[:2] == [
        "     12:00    15:00    18:00    21:00    00:00    03:00    06:00    09:00",
        "     ┬────────┬────────┬────────┬────────┬────────┬────────┬────────┬────────",
    ]


def test_some_days_are_told_apart() -> None:
    assert draw([], 3 * DAY, width=60)[0] == "12:00     01-06     12:00     01-07     12:00     01-08"


@pytest.mark.parametrize(
    ("span", "labels"),
    [
        pytest.param(20 * SECOND, "12:00:00  12:00:05  12:00:10  12:00:15", id="seconds"),
        pytest.param(5 * MINUTE, "12:00  12:01  12:02  12:03  12:04", id="minutes"),
        pytest.param(28 * DAY, "01-12  01-19  01-26", id="weeks begin on Mondays"),
        pytest.param(1000 * DAY, "2026-06-08  2027-08-30", id="years"),
    ],
)
def test_the_scale_suits_the_span(span: timedelta, labels: str) -> None:
    assert draw([], span, width=40)[0].split() == labels.split()


def test_a_span_without_a_round_time_tells_when_it_begins() -> None:
    assert draw([], timedelta(seconds=0.5), NOON + 0.25 * SECOND, width=20) == ["12:00:00", "┬───────────────────"]


def test_nothing_coming_is_a_scale_alone() -> None:
    assert len(draw([])) == 2


@pytest.mark.parametrize(("count", "mark"), [(1, "•"), (2, "2"), (9, "9"), (10, "#"), (5000, "#")], ids=str)
def test_runs_in_one_place_are_counted(count: int, mark: str) -> None:
    assert draw(runs("abcd", *[30] * count))[2] == f"abcd{' ' * 31}{mark}"


def test_jobs_come_in_the_order_of_their_first_runs() -> None:
    upcoming = [*runs("late", 40), *runs("first", 50, 10), *runs("second", 20)]

    assert [line.split()[0] for line in draw(upcoming)[2:]] == ["first", "second", "late"]


def test_a_long_name_is_cut() -> None:
    name, _ = draw(runs("n" * 200, 0), width=60)[2].split()

    assert name == "n" * 19 + "…"


def test_a_name_of_wide_characters_takes_the_room_it_needs() -> None:
    lines = draw([*runs("日本", 0), *runs("abcd", 0)])

    assert lines[2:] == ["日本 •", "abcd •"]


def test_a_name_that_takes_no_room_moves_nothing() -> None:
    """A combining accent is a printable name, if a strange one."""
    lines = draw(runs("\u0301", 60), width=20)

    assert [cell_len(line) for line in lines[1:]] == [20, 20]


def test_the_same_name_in_two_namespaces_is_two_jobs() -> None:
    lines = draw([run("a", NOON, "one"), run("a", NOON, "two")])

    assert lines[2:] == ["one/a •", "two/a •"]


def test_an_overdue_run_stands_at_the_beginning_and_a_later_one_is_left_out() -> None:
    lines = draw([*runs("abcd", -5, 61), *runs("ef", 61)])

    assert lines[2:] == ["abcd •"]


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends"):
        draw([], timedelta())


# --- Clocks that change ---------------------------------------------------------------------------------------------


def test_an_hour_that_comes_twice_is_labelled_twice() -> None:
    begin = datetime(2026, 10, 24, 22, tzinfo=UTC)

    assert draw([], 6 * HOUR, begin, width=60, zone=STOCKHOLM)[0].split() == [
        *("00:00", "01:00", "02:00", "02:00", "03:00", "04:00"),
    ]


def test_an_hour_that_does_not_exist_takes_no_room() -> None:
    begin = datetime(2026, 3, 28, 23, tzinfo=UTC)

    lines = draw([run("abcd", begin + 2 * HOUR)], 5 * HOUR, begin, width=55, zone=STOCKHOLM)

    assert lines == [
        "     00:00     01:00     03:00     04:00     05:00",
        "     ┬─────────┬─────────┬─────────┬─────────┬─────────",
        "abcd                     •",
    ]


def test_labels_keep_their_distance_where_the_clock_leaps() -> None:
    """Three hours of the clock are two of time here, and need the room of three."""
    begin = datetime(2026, 3, 28, 23, tzinfo=UTC)

    assert draw([], 23 * HOUR, begin, width=54, zone=STOCKHOLM)[0].split() == [
        *("00:00", "04:00", "08:00", "12:00", "16:00", "20:00"),
    ]


def test_a_day_without_midnight_begins_all_the_same() -> None:
    begin = datetime(2018, 11, 2, 3, tzinfo=UTC)

    lines = draw([], 4 * DAY, begin, width=32, zone=ZoneInfo("America/Sao_Paulo"))

    assert lines[0].split() == ["11-02", "11-03", "11-04", "11-05"]
    assert lines[1] == "┬───────┬───────┬──────┬───────┬"  # a column is three hours, and one day has but 23


def test_a_midnight_that_comes_twice_begins_one_day() -> None:
    begin = datetime(2018, 2, 16, 2, tzinfo=UTC)

    lines = draw([], 4 * DAY, begin, width=32, zone=ZoneInfo("America/Sao_Paulo"))

    assert lines[0].split() == ["02-16", "02-17", "02-18", "02-19"]


def test_the_last_day_of_the_calendar_can_be_drawn() -> None:
    begin = datetime(9999, 12, 31, tzinfo=UTC)

    assert draw([], 23 * HOUR, begin, width=60, zone=STOCKHOLM)


# --- Any width, any zone, any number --------------------------------------------------------------------------------

ZONES = ("UTC", "Europe/Stockholm", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu", "Antarctica/Troll")
MOMENTS = st.one_of(
    st.datetimes(datetime(2000, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    # A day or less before a change.
    st.integers(0, 48).map(lambda halves: datetime(2026, 3, 29, 1, tzinfo=UTC) - halves * HOUR / 2),
    st.integers(0, 48).map(lambda halves: datetime(2026, 4, 4, 15, tzinfo=UTC) - halves * HOUR / 2),
    st.integers(0, 48).map(lambda halves: datetime(2018, 11, 4, 3, tzinfo=UTC) - halves * HOUR / 2),
)
SPANS = st.one_of(st.sampled_from([MINUTE, HOUR, DAY, 7 * DAY]), st.timedeltas(SECOND, 5 * DAY))
# Nine at most, so that every mark tells how many it stands for.
SHARES = st.dictionaries(
    st.text(st.characters(categories=["L", "N", "So", "Mn"]), min_size=1, max_size=50).filter(str.isprintable),
    st.lists(st.fractions(0, 1, max_denominator=1000), min_size=1, max_size=9),
    max_size=6,
)


@settings(max_examples=150)
@given(SHARES, MOMENTS, SPANS, st.integers(20, 300), st.sampled_from(ZONES), st.booleans())
@pytest.mark.deep
def test_every_run_is_in_its_place_and_no_line_is_too_wide(
    shares: dict[str, list[Fraction]], begin: datetime, span: timedelta, width: int, zone: str, ascii: bool
) -> None:
    upcoming = [run(name, begin + share * span) for name, places in shares.items() for share in map(float, places)]

    labels, axis, *lines = draw(upcoming, span, begin, width=width, zone=ZoneInfo(zone), ascii=ascii)

    assert len(lines) == len(shares)
    assert all(cell_len(line) <= width for line in (labels, axis, *lines))
    assert not ascii or all(line.isascii() for line in (labels, axis, *lines))
    margin = len(axis) - len(axis.lstrip())
    columns = width - margin
    assert len(axis) == width
    expected = []
    moments: dict[str, list[datetime]] = {}
    for each in sorted(upcoming, key=lambda each: each.at):
        moments.setdefault(each.job.id, []).append(each.at)
    for found in moments.values():
        places = Counter(min(floor(exact(at - begin) / exact(span) * columns), columns - 1) for at in found)
        expected.append("".join({0: " ", 1: "*"}.get(places[column], str(places[column])) for column in range(columns)))
    assert [padded(line, width)[-columns:].replace("•", "*") for line in lines] == expected
    check_scale(labels[margin:], axis[margin:], begin, span, ZoneInfo(zone))


def exact(span: timedelta) -> Fraction:
    return Fraction(span // timedelta(microseconds=1))


def padded(line: str, width: int) -> str:
    return line + " " * (width - cell_len(line))


def check_scale(labels: str, axis: str, begin: datetime, span: timedelta, zone: ZoneInfo) -> None:
    """Every label stands over a tick, and within that column there is a moment at which clocks show it."""
    ticks = [column for column, cell in enumerate(axis) if cell in "┬+"]
    starts = [
        column for column, cell in enumerate(labels) if cell != " " and (column == 0 or labels[column - 1] == " ")
    ]
    assert starts
    assert set(starts) <= set(ticks)
    for column in starts:
        label = labels[column:].split()[0]
        first, last = begin + column * span / len(axis), begin + (column + 1) * span / len(axis)
        assert is_shown_between(first, last, label, zone)
    lengths = [len(label) for label in labels.split()]
    assert all(later - earlier > size for (earlier, later), size in zip(pairwise(starts), lengths, strict=False))


def is_shown_between(first: datetime, last: datetime, label: str, zone: ZoneInfo) -> bool:
    if label.count(":") == 2:
        step, pattern, moment = SECOND, "%H:%M:%S", first.replace(microsecond=0)
    else:
        step, pattern, moment = MINUTE, "%H:%M" if ":" in label else "%m-%d", first.replace(second=0, microsecond=0)
    while moment <= last and moment.astimezone(zone).strftime(pattern) != label:
        moment += step
    return moment <= last


@pytest.mark.parametrize("width", [20, 21, 80, 299, 300])
@pytest.mark.parametrize("jobs", [1, 50, 5000])
@pytest.mark.deep
def test_five_thousand_runs_fit(width: int, jobs: int) -> None:
    cast = [a_job(f"job-{number:04}") for number in range(jobs)]
    upcoming = [
        Upcoming(job=cast[number % jobs], at=NOON + number * DAY / 5000, retries_left=None) for number in range(5000)
    ]

    lines = draw(upcoming, DAY, width=width)

    assert len(lines) == jobs + 2
    assert max(map(len, lines)) == width
