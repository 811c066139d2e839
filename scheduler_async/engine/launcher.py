"""Starts claimed runs: at once, when they are due, or when a slot is free. `running` calls the handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.held_runs import SLICE, Waiting
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.setting import Setting
from scheduler_async.jobs.enums import Trigger
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, Reporter
from scheduler_async.running.active_run import DISOWNED, ActiveRun
from scheduler_async.running.runner import Runner
from scheduler_async.running.watchdog import Watchdog
from scheduler_async.timekeeping.instants import Micros


class Launcher:
    """When does a claimed run begin?"""

    def __init__(
        self,
        setting: Setting,
        node: OwnNode,
        announcer: Announcer,
        clock_watch: ClockWatch,
        ended: EndedRuns,
        reporter: Reporter | None = None,
    ) -> None:
        self._setting, self._clock, self._events = setting, setting.clock, setting.events
        self._stuck_after = setting.limits.stuck_after
        self._node, self._announcer = node, announcer
        self.runner = Runner(
            setting.clock,
            max_concurrent=setting.limits.max_concurrent,
            observers=setting.events.observers,
            find=setting.handlers.find,
            begin=self._begin_queued,
            ended=ended.add,
            dropped=ended.drop,
            reporter=reporter,
        )
        self.waiting = Waiting(setting.clock, self._start_waiting, self.runner.cancel)
        clock_watch.on_jump(self.waiting.catch_up)
        self.watchdog: Watchdog | None = None
        self.last_block: tuple[Micros, Job | None, str] | None = None
        """When a handler has last blocked the event loop, if that is known, and what is known of it."""

    def begin(self, runs: Sequence[ClaimedRun], now: Micros) -> list[ActiveRun]:
        """Start *runs*: now, or when they are due if they were claimed ahead of time."""
        if runs and self.watchdog is not None:
            self.watchdog.attend()
        started: list[ActiveRun] = []
        for claimed in runs:
            is_early = claimed.claimed_at > now
            # When many start, the store works on the next claim meanwhile.
            goes_after_others = self.waiting.due > 0 or len(started) >= SLICE
            is_queued = goes_after_others and not is_early and claimed.trigger is not Trigger.MANUAL
            active = self.runner.admit(claimed, is_held=is_early or is_queued)
            started.append(active)
            if is_early:
                self.waiting.add(active)
            elif is_queued:
                self.waiting.queue(active)
            else:
                self._start(active, queued=claimed.is_queued)
        self._setting.progress.trigger_count += len(started)
        return started

    def _start(self, active: ActiveRun, *, queued: bool = False) -> None:
        claimed = active.claimed
        begins = self.runner.start(active, claimed.job.timeout or self._stuck_after, queued=queued)
        if begins and not queued and self._events.has_readers:
            self._announcer.started(claimed, self._clock.micros())

    def _start_waiting(self, runs: Sequence[ActiveRun]) -> None:
        """Start runs that were held until now."""
        start: Callable[[ActiveRun], None] = self._start
        if not self._node.is_trusted():  # another node may have taken them over while this process was suspended
            start = self.runner.disown
        elif self.runner.stopping.is_set():
            start = self.runner.cancel
        for active in runs:
            if active.is_held:
                start(active)

    async def _begin_queued(self, active: ActiveRun) -> bool:
        """Mark a queued run as running; return False if another node has taken it over meanwhile."""
        now = self._clock.micros()
        if active.claimed.id not in await self._setting.ask(self._setting.store.start([active.claimed], now)):
            active.interfere(DISOWNED)
            return False
        self._announcer.started(active.claimed, now)
        return True

    def guard_event_loop(self) -> None:
        """Notice handlers that block the event loop, from now on."""
        loop = asyncio.get_running_loop()

        def running_now() -> tuple[Job, int] | None:
            """Return the job and the run whose handler runs just now. The watchdog calls it on its own thread."""
            task = asyncio.current_task(loop)
            return None if task is None else self.runner.run_of(task)

        def tell_of_block(job: Job | None, message: str) -> None:
            now = self._clock.micros()
            self.last_block = now, job, message
            self._announcer.tell(EventKind.LOOP_BLOCKED, now, job=job, reason=message)

        self.watchdog = Watchdog(lambda: len(self.runner) > 0, running_now, tell_of_block)
