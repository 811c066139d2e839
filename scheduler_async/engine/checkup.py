"""Collects the signs of a scheduler's health, and counts the jobs that are due."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import Struct

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.claimer import Claimer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.health import Signs
from scheduler_async.engine.loop import Loop
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.troubles import Troubles
from scheduler_async.errors import StoreError
from scheduler_async.timekeeping.instants import SECOND, Micros

# How often due jobs are counted while there are observers, and up to which number.
COUNT_EVERY = 1.0  # seconds
MOST_COUNTED = 10_000


class StoreAnswer(Struct, frozen=True, kw_only=True):
    """The answer of the store to a check-up."""

    earliest_due: Micros | None = None
    problem: str | None = None


NOT_OPEN = StoreAnswer(problem="The store is not open.")


class Checkup:
    """Does the scheduler do its work?"""

    def __init__(
        self,
        setting: Setting,
        agenda: Agenda,
        clock_watch: ClockWatch,
        troubles: Troubles,
        claimer: Claimer,
        loop: Loop,
    ) -> None:
        self._setting, self._agenda = setting, agenda
        self._clock_watch, self._troubles = clock_watch, troubles
        self._claimer, self._loop = claimer, loop
        self._question: asyncio.Task[StoreAnswer] | None = None
        self.due = 0
        """How many jobs were due at the last count, on any node. They are counted only while there are observers."""

    @property
    def problem(self) -> str | None:
        """Return what keeps the scheduler from working, if anything does."""
        if self._troubles.outdated is not None:
            return self._troubles.outdated
        if not self._clock_watch.is_believed:
            return f"No run starts, since {self._clock_watch.last_jump}."
        return self._troubles.first

    def signs(self, answer: StoreAnswer, *, is_alive: bool) -> Signs:
        """Return the signs of health. *answer* is that of the store; *is_alive* says whether all tasks are running."""
        setting, progress, loop = self._setting, self._setting.progress, self._loop
        now, elapsed = setting.clock.micros(), setting.clock.monotonic()
        due = answer.earliest_due if answer.problem is None else self._agenda.next.at
        grace = setting.rules.misfire_grace
        return Signs(
            status=progress.status,
            is_alive=is_alive,
            problem=self.problem,
            store_problem=answer.problem,
            last_pass_age=None if loop.looked_at is None else elapsed - loop.looked_at,
            overslept=elapsed - loop.looks_again_by,
            running_for=0.0 if progress.started_at is None else (now - progress.started_at) / SECOND,
            overdue=0.0 if due is None else (now - due) / SECOND,
            has_room=self._claimer.room() > 0,
            unclaimed_for=elapsed - self._claimer.claimed_at,
            misfire_grace=None if grace is None else grace / SECOND,
        )

    async def ask_store(self, timeout: float | None) -> StoreAnswer:
        """Ask the store whether it works. It has *timeout* seconds to answer."""
        # One question at a time: a store that does not answer is not asked again before it has.
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._question_store(), name="scheduler_async checkup")
        question = self._question
        await asyncio.wait([question], timeout=timeout)
        if question.cancelled():
            return StoreAnswer(problem="The question to the store was cancelled.")
        if not question.done():
            return StoreAnswer(problem=f"The store did not answer within {timeout:g} s.")
        return question.result()

    async def _question_store(self) -> StoreAnswer:
        try:
            await self._troubles.check_store()
            if self._troubles.outdated is not None:
                return StoreAnswer()
            setting, terms = self._setting, self._claimer.terms(limit=1)
            due = await setting.ask(setting.store.earliest_due(setting.clock.micros(), terms))
            return StoreAnswer(earliest_due=due)
        except Exception as error:  # any failure is an answer
            return StoreAnswer(problem=str(error) or type(error).__name__)

    async def finish(self) -> None:
        """Wait for the answer of the store, if there is a question."""
        if self._question is not None:
            await asyncio.wait([self._question])

    async def count_due(self, halt: asyncio.Event) -> None:
        """Count the due jobs every second, while there are observers."""
        setting = self._setting
        while True:
            if setting.events.observers:
                with suppress(StoreError):  # the parts that need the store report it
                    self.due = await setting.ask(setting.store.count_due(setting.clock.micros(), MOST_COUNTED))
            if await setting.machine.wait(halt, COUNT_EVERY):
                return
