"""One timer for all runs with the same limit."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async.running.timeouts import Deadlines
from scheduler_async.testing import VirtualClock

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock("2026-01-05T12:00:00Z")


async def test_who_is_not_done_in_time_is_called(clock: VirtualClock) -> None:
    late: list[tuple[str, float]] = []
    deadlines = Deadlines[str](clock, lambda who: late.append((who, clock.monotonic() - begun)))
    begun = clock.monotonic()

    deadlines.add(2 * SECOND, "slow")
    deadlines.add(2 * SECOND, "quick")
    await clock.advance("1s")
    deadlines.add(2 * SECOND, "later")
    deadlines.add(SECOND / 2, "short")
    deadlines.discard(2 * SECOND, "quick")
    await clock.advance("1m")

    assert late == [("short", 1.5), ("slow", 2.0), ("later", 3.0)]


async def test_nobody_is_called_twice_or_after_the_end(clock: VirtualClock) -> None:
    late: list[str] = []
    deadlines = Deadlines[str](clock, late.append)

    deadlines.add(SECOND, "a")
    await clock.advance("1s")
    deadlines.discard(SECOND, "a")  # as a run does when it has been cancelled
    deadlines.discard(SECOND, "never added")
    deadlines.add(SECOND, "b")
    deadlines.close()
    await clock.advance("1m")

    assert late == ["a"]


async def test_who_is_called_may_discard_others(clock: VirtualClock) -> None:
    late: list[str] = []

    def overdue(who: str) -> None:
        late.append(who)
        deadlines.discard(SECOND, "b")
        deadlines.add(SECOND, f"{who}'")

    deadlines = Deadlines[str](clock, overdue)
    deadlines.add(SECOND, "a")
    await clock.advance("1s")
    await clock.advance("1s")

    assert late == ["a", "a'"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["0.1s", "0.3s", "1s", "7s"]), st.floats(0, 3), st.floats(0, 10)),
        max_size=20,
    )
)
async def test_everybody_is_called_at_their_time_whatever_the_others_do(
    runs: list[tuple[str, float, float]],
) -> None:
    """Each run has a limit, begins after a while, and takes a while."""
    clock = VirtualClock("2026-01-05T12:00:00Z")
    late: dict[int, float] = {}
    deadlines = Deadlines[int](clock, lambda who: late.setdefault(who, clock.monotonic()))
    begun = clock.monotonic()
    expected: dict[int, float] = {}

    def begin(number: int, limit: timedelta, takes: float) -> None:
        deadlines.add(limit, number)
        if takes < limit.total_seconds() - 1e-3:
            clock.call_later(takes, lambda: deadlines.discard(limit, number))
        else:
            expected[number] = clock.monotonic() + limit.total_seconds()

    for number, (limit, after, takes) in enumerate(runs):
        duration = timedelta(seconds=float(limit.rstrip("s")))
        clock.call_later(after, lambda n=number, d=duration, t=takes: begin(n, d, t))  # type: ignore[misc]
    await clock.advance("1m")

    assert late.keys() == expected.keys()
    assert all(abs(late[number] - at) < 1e-5 for number, at in expected.items())
    assert begun <= clock.monotonic()
