"""Notices jumps of the wall clock before anything is decided by the new time, and makes the jobs follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import WARNING

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.setting import Setting
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import RunRow
from scheduler_async.logs import say
from scheduler_async.rules.clock_changes import sooner
from scheduler_async.timekeeping.instants import Micros, from_micros
from scheduler_async.timekeeping.wall_clock import JUMP, WallClock, describe_jump

# When the clock has gone back, jobs are moved in batches of this size.
REVIEW_SLICE = 500


class ClockWatch:
    """What time is it, and has the wall clock jumped since it was last read?"""

    def __init__(self, setting: Setting, agenda: Agenda, announcer: Announcer, deciding: Deciding) -> None:
        self._setting, self._clock = setting, setting.clock
        self._agenda, self._announcer, self._deciding = agenda, announcer, deciding
        self._listeners: list[Callable[[], None]] = []
        self.wall = WallClock()
        self.read_at: Micros = 0
        self.went_back = False
        """The clock has gone back, and jobs may wait for a time that is far away again."""
        self.last_jump = ""
        self._ahead: list[Micros] = []  # the times of passes that go by a time which is yet to come
        self._judged_by: int | None = None  # the run whose times were last compared with the clock

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Call *listener* when the clock has jumped, before anything else happens."""
        self._listeners.append(listener)

    def begin(self) -> None:
        """Notice jumps from now on."""
        self.wall.look(self._clock.micros(), self._clock.monotonic())

    def read(self) -> Micros:
        """Return the time of the wall clock, and notice whether it has jumped since the last call."""
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
            say(WARNING, "The wall clock has kept its new time for a day and is believed; looking at all jobs again")
        return now

    def _announce_jump(self, jumped: Micros, now: Micros) -> None:
        message = describe_jump(jumped, now)
        self.last_jump = message
        if self.is_believed:
            say(WARNING, "Looking at all jobs again, since %s", message)
        else:
            message += ": that cannot be right; nothing starts until the clock returns or 24 hours have passed"
            say(WARNING, "Held, since %s. If the clock is right, restart the scheduler", message)
        self._announcer.tell(EventKind.CLOCK_JUMPED, now, reason=message)

    @property
    def held_for(self) -> float | None:
        """Return for how many more seconds the wall clock is not believed; None if it is."""
        return self.wall.held_for(self._clock.monotonic())

    @property
    def is_believed(self) -> bool:
        """Return whether runs start by the wall clock."""
        return self.held_for is None

    def believed_now(self) -> Micros:
        """Return the time to record: that of the wall clock, or what it would show without an absurd jump."""
        is_running = self._setting.progress.status == "running"
        return self.wall.believed(self.read() if is_running else self._clock.micros())

    def heed(self, moment: Micros) -> None:
        """If *moment* is yet to come, the clock has gone back since: look again at what was decided then."""
        if moment > max((self.believed_now(), *self._ahead)):
            self.went_back = True
            self._agenda.look_again()

    @contextmanager
    def passing(self, moment: Micros) -> Iterator[None]:
        """Make a pass by the time *moment*. If that is yet to come, the jobs follow the clock again after the pass.

        Not before: each job would be moved back to its next occurrence by the clock, be due in the pass again, and so
        run once for every occurrence until *moment*.
        """
        if moment <= self.believed_now():
            yield
            return
        self._ahead.append(moment)
        try:
            yield
        finally:
            self._ahead.remove(moment)
            self.heed(moment)

    def is_behind(self, rows: Sequence[RunRow]) -> bool:
        """Return, once for each row, whether the latest of *rows* is yet to come: the clock has gone back since."""
        soon = from_micros(self._clock.micros() + JUMP)
        is_news = bool(rows) and rows[0].id != self._judged_by
        self._judged_by = rows[0].id if rows else None
        times = [moment for row in rows for moment in (row.started_at, row.finished_at) if moment is not None]
        return is_news and any(moment > soon for moment in times)

    async def go_back(self, now: Micros) -> None:
        """Move jobs that would wait until the clock is where it was before it went back."""
        self.went_back = False  # first: a run that ends meanwhile may set it again
        store = self._setting.store
        after: int | None = 0
        try:
            while after is not None:
                after = await self._setting.ask(store.review(after, REVIEW_SLICE, now, lambda job: sooner(job, now)))
        except BaseException:
            self.went_back = True
            raise
        if self._deciding.begin():
            self.went_back = True  # these jobs are moved when it is decided how
