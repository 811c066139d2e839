"""Jumps of the wall clock, and whether to believe them. Pure: callers pass the time.

The wall clock and the monotonic clock advance together, unless the wall clock jumps. The schedule follows a jump, but
a jump of more than a year is more likely a broken clock: nothing starts until the clock returns or 24 hours have
passed.
"""

from __future__ import annotations

from scheduler_async.timekeeping.instants import DAY, SECOND, Micros, from_micros

# NTP may slew the clock, and a busy machine may be late: less than this is not a jump.
JUMP = 1 * SECOND
ABSURD = 366 * DAY
HOLD = 86_400.0  # seconds
# While the scheduler waits, it looks at the clock this often: it may be corrected at any moment.
GLANCE = 1.0  # seconds


class WallClock:
    """Compares the wall clock with the monotonic clock at each look."""

    def __init__(self) -> None:
        self._skew: Micros | None = None
        self._believed: Micros = 0
        """The skew that counts: that of before an absurd jump, until the hold ends."""
        self._held_until: float | None = None

    def look(self, wall: Micros, monotonic: float) -> tuple[Micros, Micros]:
        """Return how far the wall clock jumped since the last look, and how far the believed time did; 0 is no jump."""
        skew = wall - int(monotonic * SECOND)
        if self._held_until is None and self._skew is not None and -JUMP <= skew - self._skew <= JUMP:
            self._skew = self._believed = skew  # nearly always
            return 0, 0
        if self._skew is None:
            self._skew = self._believed = skew
            return 0, 0
        jumped, self._skew = skew - self._skew, skew
        doubt = abs(skew - self._believed) > ABSURD
        if doubt and abs(jumped) > JUMP:
            self._held_until = monotonic + HOLD
        if doubt and self._held_until is not None and monotonic < self._held_until:
            return _jump(jumped), 0
        self._held_until = None
        believed, self._believed = skew - self._believed, skew
        return _jump(jumped), _jump(believed)

    def believed(self, wall: Micros) -> Micros:
        """Return what the wall clock shows, without an absurd jump."""
        return wall if self._held_until is None or self._skew is None else wall - self._skew + self._believed

    def held_for(self, monotonic: float) -> float | None:
        """Return for how many more seconds nothing starts; None if the clock is believed."""
        return None if self._held_until is None else max(self._held_until - monotonic, 0.0)


def _jump(by: Micros) -> Micros:
    return by if abs(by) > JUMP else 0


def describe_jump(by: Micros, now: Micros) -> str:
    """Return a jump in words."""
    direction = "forward" if by > 0 else "back"
    return f"the wall clock jumped {direction} by {abs(by) / SECOND:g} s, to {from_micros(now):%Y-%m-%d %H:%M:%S} UTC"
