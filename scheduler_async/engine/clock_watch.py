"""The wall clock's jumps: noticed before anything is done by the new time, announced, and followed by the jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import WARNING

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.setting import Setting
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import RunRow
from scheduler_async.logs import say
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.timekeeping.instants import Micros, from_micros
from scheduler_async.timekeeping.wall_clock import JUMP, WallClock, describe_jump

# When the clock has gone back, this many jobs at a time are moved.
REVIEW_SLICE = 500


class ClockWatch:
    """What time is it, and has the wall clock jumped since it was last read?"""

    def __init__(self, setting: Setting, agenda: Agenda, announcer: Announcer) -> None:
        self._setting, self._clock = setting, setting.clock
        self._agenda, self._announcer = agenda, announcer
        self._listeners: list[Callable[[], None]] = []
        self.wall = WallClock()
        self.read_at: Micros = 0
        self.went_back = False
        """The clock has gone back, and jobs may wait for a time that is far away again."""
        self.last_jump = ""
        self._judged_by: int | None = None  # the run whose times were last compared with the clock

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Call *listener* when the clock has jumped, before anything else is done about it."""
        self._listeners.append(listener)

    def begin(self) -> None:
        """Notice a jump from now on."""
        self.wall.look(self._clock.micros(), self._clock.monotonic())

    def read(self) -> Micros:
        """Return the wall clock; a jump since it was last read is noticed before anything is done by it."""
        now = self.read_at = self._clock.micros()
        jumped, believed = self.wall.look(now, self._clock.monotonic())
        if jumped:
            for listener in self._listeners:
                listener()
        if believed or (jumped and self.is_believed):  # also back from an absurd time, in which jobs were added
            self.went_back |= min(jumped, believed) < 0
            self._agenda.look_again()
        if jumped:
            self._announce_jump(jumped, now)
        elif believed:
            say(WARNING, "The wall clock has stood for a day and is believed; all jobs are looked at again")
        return now

    def _announce_jump(self, jumped: Micros, now: Micros) -> None:
        message = describe_jump(jumped, now)
        self.last_jump = message
        if self.is_believed:
            say(WARNING, "All jobs are looked at again, since %s", message)
        else:
            message += ": that is absurd, and nothing is started until it has gone back, or for a day"
            say(WARNING, "Held, since %s. If the clock is right, a restart lets it count at once", message)
        self._announcer.tell(EventKind.CLOCK_JUMPED, now, reason=message)

    @property
    def held_for(self) -> float | None:
        """For how many seconds more nothing is started by the wall clock; None if it is believed."""
        return self.wall.held_for(self._clock.monotonic())

    @property
    def is_believed(self) -> bool:
        """Whether jobs are started by what the wall clock shows."""
        return self.held_for is None

    def believed_now(self) -> Micros:
        """Return the time to record by: what the wall clock shows, or would show if it had not jumped absurdly."""
        is_running = self._setting.progress.status == "running"
        return self.wall.believed(self.read() if is_running else self._clock.micros())

    def heed(self, moment: Micros) -> None:
        """Look again at what was decided by a *moment* that is yet to come: the clock has gone back since."""
        if moment > self.believed_now():
            self.went_back = True
            self._agenda.look_again()

    def is_behind(self, rows: Sequence[RunRow]) -> bool:
        """Whether the latest of all *rows* is yet to come: the clock went back while nobody looked. Once for each."""
        soon = from_micros(self._clock.micros() + JUMP)
        is_news = bool(rows) and rows[0].id != self._judged_by
        self._judged_by = rows[0].id if rows else None
        times = [moment for row in rows for moment in (row.started_at, row.finished_at) if moment is not None]
        return is_news and any(moment > soon for moment in times)

    async def go_back(self, now: Micros) -> None:
        """Move jobs that wait until the clock is where it was before it went back."""
        self.went_back = False  # first: a run that ends meanwhile may have gone by the time before
        store = self._setting.store
        after: int | None = 0
        try:
            while after is not None:
                after = await self._setting.ask(store.review(after, REVIEW_SLICE, now, lambda job: sooner(job, now)))
        except BaseException:
            self.went_back = True
            raise
