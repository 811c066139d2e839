"""Notices handlers that block the event loop, and logs them while they do, from a thread of its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from logging import WARNING

from scheduler_async.jobs.job import Job
from scheduler_async.logs import say
from scheduler_async.timekeeping.clock import SystemClock

# A loop that has not answered for so long is blocked. With the pause before, a block of one second is noticed.
BLOCKED = 0.75  # seconds
PAUSE = 0.25  # seconds
# After so many pauses without runs, the thread sleeps until there are some.
QUIET_PAUSES = 10


class Watchdog:
    """A thread that asks the event loop for an answer now and then while handlers run."""

    def __init__(
        self,
        is_busy: Callable[[], bool],
        running_now: Callable[[], tuple[Job, int] | None],
        tell: Callable[[Job | None, str], None],
    ) -> None:
        """*running_now* returns the job and the run whose handler runs. The thread of the watchdog calls it.

        *tell* is called on the event loop when it is no longer blocked.
        """
        self._is_busy, self._running_now, self._tell = is_busy, running_now, tell
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._needed = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._machine = SystemClock()

    def attend(self) -> None:
        """Watch: a handler is about to run."""
        if not self._needed.is_set():
            self._needed.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="scheduler_async watchdog", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Let the thread end."""
        self._over.set()
        self._needed.set()

    def _watch(self) -> None:
        while not self._loop.is_closed():  # a program that ends without stop() leaves no thread behind
            self._needed.wait()
            quiet = 0
            while quiet < QUIET_PAUSES:
                if self._over.wait(PAUSE) or self._loop.is_closed():
                    return
                if self._is_busy():
                    quiet = 0
                    self._look()
                else:
                    quiet += 1
            self._needed.clear()
            if self._is_busy():  # a run has just begun
                self._needed.set()

    def _look(self) -> None:
        answered = threading.Event()
        asked_at = self._machine.monotonic()
        if not self._call_loop(answered.set) or answered.wait(BLOCKED):
            return
        (job, run_id), place = self._running_now() or (None, None), self._place()
        name = "Something" if job is None else f"Job {job.key}"
        say(
            WARNING,
            "%s blocks the event loop, at %s: nothing else can run. "
            "Let it await, or make it a plain function, which runs in a thread",
            name,
            place,
            extra=None if job is None else {"job": job.key, "run": run_id},
        )
        while not answered.wait(PAUSE):
            if self._over.is_set() or self._loop.is_closed():
                return
        took = self._machine.monotonic() - asked_at
        self._call_loop(lambda: self._tell(job, f"blocked the event loop for {took:.1f} s, at {place}"))

    def _call_loop(self, function: Callable[[], object]) -> bool:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _place(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "an unknown place"
        code = frame.f_code
        return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
