"""A run of this process, and its stage. `runner` calls its handler, `engine` records how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.run import ClaimedRun, Ending, Run
from scheduler_async.rules.terms import Transition
from scheduler_async.timekeeping.instants import Micros


class Stage(IntEnum):
    """The stage of a run. A run never goes back, and `_STEPS` says which stages it may leave out."""

    CLAIMED = 1
    """It starts at once."""
    HELD = 2
    """It was claimed ahead of its time, or other runs go first."""
    STARTING = 3
    """Its task waits for a slot, or for its first step."""
    RUNNING = 4
    """Its handler has been called."""
    ENDED = 5
    """Its handler has returned, or will never be called. How it ended is not committed yet."""
    OVER = 6
    """How it ended is committed, or was dropped."""


# Every run takes several steps. Before Python 3.12, to look up a member of an enum takes longer than a step.
CLAIMED, HELD, STARTING, RUNNING, ENDED, OVER = Stage

_STEPS = {
    CLAIMED: (STARTING, ENDED),
    HELD: (STARTING, ENDED),
    STARTING: (RUNNING, ENDED),
    RUNNING: (ENDED,),
    ENDED: (OVER,),
    OVER: (),
}


class IllegalStepError(RuntimeError):
    """A run tried to get to a stage that it cannot reach: a bug in the scheduler."""

    def __init__(self, run_id: int, before: Stage, after: Stage) -> None:
        super().__init__(
            f"Run {run_id} cannot get from {before.name} to {after.name}. This is a bug in scheduler_async; please "
            "report it."
        )
        self.run_id, self.before, self.after = run_id, before, after


class Interference(IntEnum):
    """Why a run ends before its handler has returned. The strongest reason counts, whatever came first."""

    NONE = 0
    CANCELLED = 1
    """The scheduler stops."""
    TIMED_OUT = 2
    REQUESTED = 3
    """A caller has cancelled the run: it is not run again."""
    DISOWNED = 4
    """This node no longer owns the run: its result is dropped."""


NONE, CANCELLED, TIMED_OUT, REQUESTED, DISOWNED = Interference


@dataclass(eq=False, slots=True)
class ActiveRun:
    """A run of this process, from its claim until its ending is committed."""

    claimed: ClaimedRun
    stage: Stage
    limit: timedelta | None = None
    """How long it may take."""
    run: Run | None = None
    """As its handler got it."""
    task: asyncio.Task[object] | None = None
    began_at: Micros | None = None
    """When its handler was called; None if that has not happened."""
    interference: Interference = NONE
    reason: str | None = None
    """Why a caller has cancelled it, in the caller's words."""
    ending: Ending | None = None
    """How it ended; None if it never began."""
    ended_at: Micros = 0
    observers: Sequence[Callable[[Ending | None, BaseException | None], None]] = ()
    """Called when it has ended."""
    error: BaseException | None = None
    """What its handler raised."""
    outcome: Outcome | None = None
    after: Transition | None = None
    """How it ended and what the job looks like then, once that is committed."""
    on_wait: Callable[[], object] | None = None
    """Called when a caller begins to wait for the run: its ending may be waiting for others."""
    _news: asyncio.Event | None = None  # made when a caller waits

    def step(self, stage: Stage) -> None:
        """Go on to *stage*; raise `IllegalStepError` if no run gets there from here."""
        if stage not in _STEPS[self.stage]:
            raise IllegalStepError(self.claimed.id, self.stage, stage)
        self.stage = stage

    def begin(self, run: Run, now: Micros) -> None:
        """Note that the handler is called with *run*."""
        self.step(RUNNING)
        self.run, self.began_at = run, now
        if self._news is not None:
            self._tell(self._news)

    def settle(self) -> None:
        """Note that its ending is committed, or dropped."""
        self.step(OVER)
        self.error = None  # it may hold megabytes, and callers may hold the run for long
        if self._news is not None:
            self._tell(self._news)

    def interfere(self, reason: Interference) -> None:
        """Note why the run is to end, unless there is a stronger reason already."""
        self.interference = max(self.interference, reason)

    @property
    def is_awaited(self) -> bool:
        """Return whether a caller waits for the run."""
        return self._news is not None

    @property
    def has_begun(self) -> bool:
        """Return whether the handler has been called."""
        return self.began_at is not None

    @property
    def has_ended(self) -> bool:
        """Return whether the handler has returned, or will never be called."""
        return self.stage >= ENDED

    @property
    def is_held(self) -> bool:
        """Return whether it is yet to start, at its time or after other runs."""
        return self.stage is HELD

    @property
    def is_disowned(self) -> bool:
        """Return whether this node no longer owns the run."""
        return self.interference is DISOWNED

    async def begun_or_over(self) -> None:
        """Wait until the handler has been called, or will never be."""
        while not (self.has_begun or self.stage is OVER):
            await self._wait_for_news()

    async def over(self) -> None:
        """Wait until its ending is committed, or dropped."""
        while self.stage is not OVER:
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        if self.on_wait is not None:
            self.on_wait()
        await self._news.wait()

    def _tell(self, waiting: asyncio.Event) -> None:
        waiting.set()
        self._news = None
