"""Zones as stretches of constant offset: made-up zones for what no real one does."""

from __future__ import annotations

import pytest

from scheduler_async import UnknownZoneError
from scheduler_async.schedules.cron_line import parse_cron
from scheduler_async.timekeeping.zones import FIRST, LAST, Zone, check_zone, find_zone

HOUR = 3600
CHUNK = 1 << 25  # what a zone looks at in one go
START = 52 * CHUNK


def zone_that_changes(at: int, before: int, after: int) -> Zone:
    return Zone("made up", lambda moment: before if moment < at else after)


@pytest.mark.parametrize("lead", [0, 1, HOUR // 2, HOUR, 25 * HOUR])
def test_times_that_repeat_across_the_edge_of_a_chunk_are_known_to_repeat(lead: int) -> None:
    """A change just before an edge makes the clock show times again just after it."""
    change = START - lead
    zone = zone_that_changes(change, 2 * HOUR, HOUR)

    after = zone.period_at(START)

    assert after is not None
    assert after.offset == HOUR
    assert after.repeated_until == (change + 2 * HOUR if lead <= HOUR else after.repeated_until)
    fixed = parse_cron("0-59 0-59 0-23 * * *")  # every second, and fixed: once for each time that is shown
    assert fixed.next_after(change, zone) == change + HOUR
    assert fixed.previous(change + HOUR - 1, zone) == change - 1


@pytest.mark.parametrize("distance", [-1, 0, 1])
def test_a_change_at_the_edge_of_a_chunk_is_found_to_the_second(distance: int) -> None:
    change = START + distance
    zone = zone_that_changes(change, 0, HOUR)

    before, after = zone.period_at(change - 1), zone.period_at(change)

    assert before is not None
    assert after is not None
    assert (before.offset, before.end) == (0, change)
    assert (after.offset, after.start) == (HOUR, change)


def test_periods_meet_and_cover_everything() -> None:
    zone = find_zone("Europe/Stockholm")
    moment = START
    for _ in range(20):
        period = zone.period_at(moment)
        assert period is not None
        assert period.start <= moment < period.end
        assert zone.period_at(period.end - 1) == period
        moment = period.end


def test_there_is_nothing_beyond_the_calendar() -> None:
    zone = find_zone("UTC")

    assert zone.period_at(FIRST - 1) is None
    assert zone.period_at(LAST) is None
    assert zone.period_at(FIRST) is not None
    assert zone.period_at(LAST - 1) is not None
    assert parse_cron("* * * * *").next_after(LAST - 1, zone) is None
    assert parse_cron("* * * * *").previous(FIRST - 1, zone) is None
    assert parse_cron("0 0 1 1 *").previous(FIRST, zone) is None
    assert parse_cron("0 0 1 1 *").next_after(LAST - 5, zone) is None


@pytest.mark.parametrize(
    ("given", "name"),
    [("UTC", "UTC"), ("utc", "UTC"), ("Utc", "UTC"), ("Z", "UTC"), ("z", "UTC"), ("gmt", "UTC"), ("GMT", "GMT")],
)
def test_utc_is_understood_however_it_is_written(given: str, name: str) -> None:
    """ISO 8601 writes "Z". "GMT" is a name of the zone database, and stored schedules keep it."""
    assert check_zone(given) == name


@pytest.mark.parametrize(
    ("given", "suggestion"),
    [
        ("UTC+2", "+02:00"),
        ("GMT+2", "+02:00"),
        ("utc +2", "+02:00"),
        ("+2", "+02:00"),
        ("-3", "-03:00"),
        ("GMT+02:00", "+02:00"),
        ("gmt-5:30", "-05:30"),
        ("+530", "+05:30"),
        ("europe/stockholm", "Europe/Stockholm"),
        ("asia/tokio", "Asia/Tokyo"),
        ("est", "EST"),
    ],
)
def test_the_suggestion_for_an_unknown_zone_is_accepted(given: str, suggestion: str) -> None:
    with pytest.raises(UnknownZoneError) as caught:
        check_zone(given)

    assert caught.value.suggestion == suggestion
    assert check_zone(suggestion)


@pytest.mark.parametrize("given", ["UTC+25", "GMT+2:60", "CEST", "BST", "Mars"])
def test_an_unknown_zone_without_a_likely_meaning_gets_no_suggestion(given: str) -> None:
    """A zone that only looks similar would move every run by hours."""
    with pytest.raises(UnknownZoneError) as caught:
        check_zone(given)

    assert caught.value.suggestion is None
