"""Whether the wall clock can be believed."""

from __future__ import annotations

import pytest

from scheduler_async.timekeeping.instants import DAY, HOUR, SECOND, Micros
from scheduler_async.timekeeping.wall_clock import ABSURD, HOLD, WallClock, describe_jump

START: Micros = 1_767_614_400 * SECOND  # 2026-01-05 12:00 UTC
YEAR = 365 * DAY


class Watched:
    """A wall clock and a monotonic clock, and somebody who looks at them."""

    def __init__(self) -> None:
        self.wall, self.monotonic = START, 5_000.0
        self.seen = WallClock()
        assert self.look() == (0, 0)

    def look(self) -> tuple[Micros, Micros]:
        return self.seen.look(self.wall, self.monotonic)

    def after(self, seconds: float, jump: Micros = 0) -> tuple[Micros, Micros]:
        """Let time pass, and the wall clock jump; then look."""
        self.monotonic += seconds
        self.wall += int(seconds * SECOND) + jump
        return self.look()

    @property
    def held_for(self) -> float | None:
        return self.seen.held_for(self.monotonic)


@pytest.mark.parametrize("seconds", [0.0, 0.3, 60.0, 1e6], ids=str)
def test_time_that_passes_is_no_jump(seconds: float) -> None:
    assert Watched().after(seconds) == (0, 0)


@pytest.mark.parametrize("jump", [SECOND, -SECOND, 1, -1], ids=str)
def test_up_to_a_second_is_no_jump(jump: Micros) -> None:
    """Clocks are slewed all the time."""
    assert Watched().after(1, jump) == (0, 0)


@pytest.mark.parametrize(
    "jump",
    [SECOND + 1, -SECOND - 1, HOUR, -HOUR, DAY, -DAY, YEAR, -YEAR, ABSURD, -ABSURD],
    ids=str,
)
def test_more_is_a_jump_and_is_believed_up_to_a_year(jump: Micros) -> None:
    watched = Watched()

    assert watched.after(1, jump) == (jump, jump)
    assert watched.held_for is None
    assert watched.after(1) == (0, 0)


@pytest.mark.parametrize("jump", [ABSURD + 1, -ABSURD - 1, 50 * YEAR, -50 * YEAR], ids=str)
def test_more_than_a_year_is_not_believed(jump: Micros) -> None:
    watched = Watched()

    assert watched.after(1, jump) == (jump, 0)
    assert watched.held_for == HOLD
    assert watched.after(HOLD / 2) == (0, 0)
    assert watched.held_for == HOLD / 2


@pytest.mark.parametrize("jump", [2 * YEAR, -2 * YEAR], ids=["forward", "back"])
def test_time_goes_on_as_before_while_the_clock_is_not_believed(jump: Micros) -> None:
    """What ends meanwhile is recorded, by a time that makes sense."""
    watched = Watched()
    watched.after(1, jump)
    watched.after(60)

    assert watched.seen.believed(watched.wall) == START + 61 * SECOND
    watched.after(1, -jump)
    assert watched.seen.believed(watched.wall) == watched.wall == START + 62 * SECOND


def test_a_clock_that_goes_back_is_believed_at_once() -> None:
    watched = Watched()
    watched.after(1, 2 * YEAR)

    assert watched.after(60, -2 * YEAR) == (-2 * YEAR, 0)
    assert watched.held_for is None


def test_a_clock_that_goes_nearly_back_has_jumped_by_the_rest() -> None:
    watched = Watched()
    watched.after(1, 2 * YEAR)

    assert watched.after(60, HOUR - 2 * YEAR) == (HOUR - 2 * YEAR, HOUR)
    assert watched.held_for is None


@pytest.mark.parametrize("jump", [2 * YEAR, -2 * YEAR], ids=["forward", "back"])
def test_a_clock_that_stands_for_a_day_is_believed(jump: Micros) -> None:
    """A machine without a battery wakes in 1970, and is told the time by the network."""
    watched = Watched()
    watched.after(1, jump)

    assert watched.after(HOLD - 1) == (0, 0)
    assert watched.after(1) == (0, jump)
    assert watched.held_for is None
    assert watched.after(1) == (0, 0)


def test_a_clock_that_jumps_on_is_waited_for_anew() -> None:
    watched = Watched()
    watched.after(1, 2 * YEAR)
    watched.after(HOLD - 1)

    assert watched.after(1, YEAR) == (YEAR, 0)
    assert watched.held_for == HOLD


def test_a_jump_is_told_in_words() -> None:
    assert describe_jump(-HOUR, START) == "the wall clock jumped back by 3600 s, to 2026-01-05 12:00:00 UTC"
    assert describe_jump(2 * SECOND, START) == "the wall clock jumped forward by 2 s, to 2026-01-05 12:00:00 UTC"
