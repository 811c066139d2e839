"""Makes decisions about jobs whose schedules may be slow: in threads, outside of transactions and locks.

`stores/decided.py` says why, and how a transaction uses such a decision.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from logging import WARNING
from typing import TypeVar

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.tasks import Tasks
from scheduler_async.logs import say
from scheduler_async.schedules import patience
from scheduler_async.stores.decided import Key, Undecided
from scheduler_async.texts import describe_error

T = TypeVar("T")

# So many schedules are asked at the same time. Most of them answer at once; thousands may be due at once.
MOST_THREADS = 32
# How often to see whether a schedule goes on answering, while it may take its time for one answer.
LOOKS = 10
# The pause before the next try if the process has as many threads as it may.
THREAD_PAUSE = 1.0  # seconds


class Deciding:
    """Which decisions are being made?"""

    def __init__(self, setting: Setting, tasks: Tasks, agenda: Agenda) -> None:
        self._setting, self._tasks, self._agenda = setting, tasks, agenda
        self._going: dict[Key, asyncio.Task[None]] = {}
        self._threads = asyncio.Semaphore(MOST_THREADS)
        self._listeners: list[Callable[[Undecided], None]] = []
        self.begun = 0
        """How many decisions were begun so far."""

    @property
    def is_busy(self) -> bool:
        """Whether decisions are being made."""
        return bool(self._going)

    def on_made(self, listener: Callable[[Undecided], None]) -> None:
        """Call *listener* when a decision was made, before the loop looks again."""
        self._listeners.append(listener)

    def begin(self) -> list[Undecided]:
        """Begin to make the decisions that transactions have needed, and return them."""
        wanted = self._setting.store.decisions.take_wanted()
        for undecided in wanted:
            if undecided.key not in self._going:
                task = self._tasks.spawn(self._make(undecided), f"decision about {undecided.job.key}")
                self._going[undecided.key] = task
                self.begun += 1
        return wanted

    async def finish(self) -> None:
        """Begin to make the decisions that are needed, and wait until all of them are made."""
        self.begin()
        while self._going:
            await asyncio.wait([*self._going.values()])

    async def asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer of the store. Whenever it needs a decision, make that, and *ask* again.

        The caller must not hold a lock.
        """
        while True:
            try:
                return await ask()
            except Undecided as needed:
                self.begin()
                going = self._going.get(needed.key)
                if going is not None:  # otherwise, it was made meanwhile
                    await asyncio.wait([going])

    async def made(self, make: Callable[[], T]) -> T:
        """Return what *make* returns. It is called in a thread, and asks a schedule that may be slow."""
        with self._setting.clock.working():
            async with self._threads:
                return await self._answer_in_thread(make)

    async def _make(self, undecided: Undecided) -> None:
        answer, error = None, None
        try:
            answer = await self.made(undecided.make)
        except Exception as problem:
            error = problem
        finally:
            self._going.pop(undecided.key, None)
        self._setting.store.decisions.note(undecided, answer, error)
        for listener in self._listeners:
            listener(undecided)
        self._agenda.look_again()

    async def _answer_in_thread(self, make: Callable[[], T]) -> T:
        """Return what *make* returns, or raise what it raises. It is called in a thread.

        If one call of a user's code takes too long, its schedule counts as failing: *make* is called again, and gets an
        error instead of an answer. The thread is left behind, because a thread cannot be stopped.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        calls, context = patience.Calls(), contextvars.copy_context()
        context.run(patience.CALLS.set, calls)
        await self._start_thread(partial(context.run, _answer, make, answer))
        seen, looks = calls.count, LOOKS
        while looks and not answer.done():
            await asyncio.wait([answer], timeout=patience.PATIENCE / LOOKS)
            seen, looks = calls.count, looks - 1 if calls.count == seen else LOOKS
        problem: str | None = f"has not answered within {patience.PATIENCE:g} seconds"
        if answer.done():
            error = answer.exception()
            if error is None or isinstance(error, Exception):
                return answer.result()
            problem = f"raised {describe_error(error)}"
        answer.cancel()
        given_up = patience.GIVEN_UP.set(problem)
        try:
            return make()
        finally:
            patience.GIVEN_UP.reset(given_up)

    async def _start_thread(self, work: Callable[[], None]) -> None:
        """Call *work* in a thread, as soon as this process can have one more."""
        while True:
            try:
                threading.Thread(target=work, name="scheduler_async schedule", daemon=True).start()
            except RuntimeError as error:
                say(WARNING, "Cannot ask a schedule yet; trying again in %g s: %s", THREAD_PAUSE, error)
                await self._setting.machine.wait(asyncio.Event(), THREAD_PAUSE)
            else:
                return


def _answer(make: Callable[[], T], answer: asyncio.Future[T]) -> None:
    result: T | None = None
    error: BaseException | None = None
    try:
        result = make()
    except BaseException as problem:
        error = problem

    def deliver() -> None:
        if not answer.done():
            answer.set_result(result) if error is None else answer.set_exception(error)  # type: ignore[arg-type]

    with suppress(RuntimeError):  # the event loop was closed meanwhile
        answer.get_loop().call_soon_threadsafe(deliver)
