"""Whether the wall clock can be believed. Pure: it is told the time.

The wall clock and the monotonic clock go together, unless the wall clock jumps. A jump is a fact of life, and the
schedule follows it. A jump of more than a year is more likely a broken clock: nothing is started by it until it has
gone back, or has stood for a day.
"""

from __future__ import annotations

from scheduler_async.timekeeping.instants import DAY, SECOND, Micros, from_micros

# The wall clock may be slewed, and a busy machine may be late: less than this is not a jump.
JUMP = 1 * SECOND
ABSURD = 366 * DAY
HOLD = 86_400.0  # seconds
# Meanwhile it is looked at this often: it may be put right at any moment.
GLANCE = 1.0  # seconds


class WallClock:
    """What is known of the wall clock from looking at it now and then."""

    def __init__(self) -> None:
        self._skew: Micros | None = None
        self._believed: Micros = 0
        """The skew by which things are done; that of before the jump, while an absurd one is waited out."""
        self._held_until: float | None = None

    def look(self, wall: Micros, monotonic: float) -> tuple[Micros, Micros]:
        """How far it jumped since the last look, and how far the time that is believed did; 0 is not at all."""
        skew = wall - int(monotonic * SECOND)
        if self._held_until is None and self._skew is not None and -JUMP <= skew - self._skew <= JUMP:
            self._skew = self._believed = skew  # as nearly always
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
        """What the wall clock shows, or would show if it had not jumped absurdly."""
        return wall if self._held_until is None or self._skew is None else wall - self._skew + self._believed

    def held_for(self, monotonic: float) -> float | None:
        """For how many seconds more nothing is started by it; None if it is believed."""
        return None if self._held_until is None else max(self._held_until - monotonic, 0.0)


def _jump(by: Micros) -> Micros:
    return by if abs(by) > JUMP else 0


def describe_jump(by: Micros, now: Micros) -> str:
    """A jump for people."""
    direction = "forward" if by > 0 else "back"
    return f"the wall clock jumped {direction} by {abs(by) / SECOND:g} s, to {from_micros(now):%Y-%m-%d %H:%M:%S} UTC"
