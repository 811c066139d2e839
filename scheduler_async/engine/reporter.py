"""Stores what runs report while they go on: their progress, and their output. Once a second, for all runs together.

Handlers report from any thread and never wait. A failure of the store costs the reports, and nothing else. The ending
of a run has the last word: the store ignores reports of runs that have ended.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from logging import WARNING
from threading import Lock

from scheduler_async.engine.setting import Setting
from scheduler_async.jobs.run import Run
from scheduler_async.logs import say
from scheduler_async.stores.messages import Report

# Between two reports.
INTERVAL = 1.0  # seconds


class LiveReporter:
    """What have the runs of this process reported that is not stored yet?"""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._progress: dict[int, Run] = {}
        self._output: dict[int, Run] = {}
        self._lock = Lock()
        self._arrived = asyncio.Event()
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._is_awake = False
        self._has_failed = False

    def note(self, run: Run, *, output: bool) -> None:
        """Store the progress of *run*, or its *output*, within a second. Any thread may call it."""
        with self._lock:
            noted = self._output if output else self._progress
            if run.id in noted:
                return
            noted[run.id] = run
        if not self._is_awake and self._event_loop is not None:
            self._is_awake = True
            with suppress(RuntimeError):  # a thread may outlive the event loop
                self._event_loop.call_soon_threadsafe(self._arrived.set)

    async def keep_reporting(self) -> None:
        """Store reports as they come, at most once a second. While there are none, nothing wakes up."""
        self._event_loop = asyncio.get_running_loop()
        if self._progress or self._output:
            self._arrived.set()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            await self._store_reports()
            with self._setting.expiry(INTERVAL) as over:
                await over.wait()
            self._is_awake = False
            if self._progress or self._output:  # noted while this task was taken for awake
                self._arrived.set()

    async def _store_reports(self) -> None:
        with self._lock:
            progress, self._progress = self._progress, {}
            output, self._output = self._output, {}
        reports = [
            Report(
                run,
                progress[run].reported if run in progress else None,
                output[run].written if run in output else None,
            )
            for run in {**progress, **output}
        ]
        if not reports:
            return
        try:
            await self._setting.ask(self._setting.store.report(reports))
            self._has_failed = False
        except Exception as error:  # whatever goes wrong here, the runs go on
            if not self._has_failed:
                self._has_failed = True
                say(WARNING, "Cannot store the progress of %d runs: %s", len(reports), error)
