"""Records how runs ended, in groups, and does what follows from that. `rules` decide what an ending means for a job.

When a handler returns, `running.runner` works out how the run ended and leaves it in `ended_runs`. The writer takes all
that wait there. `Recorder._record` does the rest, step by step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from logging import ERROR, INFO

from msgspec import Struct, field
from msgspec.structs import replace

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.janitor import Janitor
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.troubles import Troubles, retry_delay
from scheduler_async.errors import StoreError, StoreOutdatedError
from scheduler_async.jobs.enums import ENDED, Outcome, Trigger
from scheduler_async.jobs.events import MAX_UNREAD
from scheduler_async.jobs.run import ClaimedRun, EndedRun, Ending
from scheduler_async.logs import is_heard, say
from scheduler_async.outbox import QuietLock
from scheduler_async.rules.terms import Transition
from scheduler_async.running.active_run import DISOWNED, ActiveRun
from scheduler_async.running.runner import Runner
from scheduler_async.shielding import carried_through
from scheduler_async.stores.decided import Undecided
from scheduler_async.stores.messages import UnstorableError
from scheduler_async.texts import message_of
from scheduler_async.timekeeping.instants import SECOND, Micros

# At most so many runs are recorded together: to announce them takes time on the event loop. A power of two, because a
# store writes such numbers of rows with the fewest statements.
MOST_AT_ONCE = 512

# While the loop runs, a retry waits at least this long: a job that fails at once must not crowd out other jobs.
RETRY_FLOOR: Micros = SECOND


class _Batch(Struct):
    """Runs that are recorded together."""

    runs: Sequence[ActiveRun]
    dropped: list[ActiveRun] = field(default_factory=list)
    """Runs that this node no longer owns."""
    unbegun: list[ClaimedRun] = field(default_factory=list)
    """Claims to give back, since their runs never began."""
    begun: list[ActiveRun] = field(default_factory=list)
    ended: list[EndedRun] = field(default_factory=list)
    """How the runs in `begun` ended, in the same order."""
    left: Sequence[Transition | None] = ()
    """What became of the jobs of `ended`, in the same order; None if this node no longer owned the run."""


class Recorder:
    """What happens when a run ends?"""

    def __init__(
        self,
        setting: Setting,
        lock: QuietLock,
        runner: Runner,
        ended: EndedRuns,
        agenda: Agenda,
        announcer: Announcer,
        clock_watch: ClockWatch,
        troubles: Troubles,
        janitor: Janitor,
        release: Callable[[Sequence[ClaimedRun]], Awaitable[None]],
        deciding: Deciding,
    ) -> None:
        """*lock* is held while a batch is written; *release* gives claims back to the store."""
        self._setting, self._lock, self._runner, self._ended = setting, lock, runner, ended
        self._rules_of_loop = replace(setting.rules, retry_floor=RETRY_FLOOR)
        self._agenda, self._announcer, self._clock_watch = agenda, announcer, clock_watch
        self._troubles, self._janitor, self._release = troubles, janitor, release
        self._deciding = deciding
        self._undecided: set[int] = set()  # runs whose endings wait until it is decided what they mean
        deciding.on_made(self._take_up)
        self._failure: Exception | None = None  # beside a claim, and not reported yet

    async def write_endings(self) -> None:
        """Group commit: record all endings that have arrived since the last commit."""
        failures = 0
        ended, troubles = self._ended, self._troubles
        ended.arrived.set()  # a writer that was cancelled may have left some
        while True:
            await ended.arrived.wait()
            ended.arrived.clear()
            try:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                if self._are_ready:
                    await self.record_some()
                failures = 0
                troubles.are_over_for("writer")
            except Exception as error:  # the endings are kept until the store takes them
                troubles.report("writer", error)
                self._agenda.is_stale = True  # the store may have recorded them, and only the answer was lost
                delay = retry_delay(failures)
                words = "Cannot record how %d runs ended; trying again in %g s: %s"
                say(ERROR, words, len(ended.unrecorded), delay, error, exc_info=failures == 0)
                failures += 1
                troubles.works_again.clear()
                await self._setting.machine.wait(troubles.works_again, delay)  # in real time, as stores recover
                ended.arrived.set()

    def record_beside_a_claim(self) -> asyncio.Task[None] | None:
        """Record what ends about now, so that the endings and a claim that is made now share the way to the store.

        Return the task. If it fails, the writer reports that, and tries again later.
        """
        self._agenda.is_about_to_claim = False
        if not self._runner.running or "writer" in self._troubles:
            return None
        return asyncio.create_task(self._record_what_is_there(), name="scheduler_async endings beside a claim")

    async def _record_what_is_there(self) -> None:
        if self._are_ready and not self._lock.locked():
            try:
                await self._record_some()
            except Exception as error:
                self._failure = error
                self._ended.hasten()

    async def record_all(self) -> None:
        """Record every ending there is, except those about which something is to be decided."""
        while self._are_ready:
            await self.record_some()

    async def record_some(self) -> None:
        """Record the endings that have waited longest, even if the caller is cancelled. If it fails, they are kept."""
        await carried_through(self._record_some())

    async def _record_some(self) -> None:
        async with self._lock:
            # Readers of events get a turn only while the store works, and a run leaves up to four events.
            most = MAX_UNREAD // 4 if self._setting.events.has_readers else MOST_AT_ONCE
            self._ended.end_wait()
            waiting, undecided = self._ended.unrecorded, self._undecided
            # Look no further: with thousands of endings in line, to walk through all of them each time takes longer.
            runs = [*islice((active for active in waiting if active.claimed.id not in undecided), most)]
            taken, looked_at = [*runs], len(runs) + len(undecided)
            try:
                await self._record_each(runs)
                runs = []
            except Undecided:
                undecided |= {one.run for one in self._deciding.begin()}
                self._ended.arrived.set()  # the others do not wait for that
            finally:
                recorded = {id(active) for active in taken} - {id(active) for active in runs}
                waiting[:looked_at] = [active for active in waiting[:looked_at] if id(active) not in recorded]
            if len(taken) == most:
                self._ended.arrived.set()  # there may be more

    @property
    def _are_ready(self) -> bool:
        return len(self._ended.unrecorded) > len(self._undecided)

    def _take_up(self, undecided: Undecided) -> None:
        """Record an ending that has waited for this decision."""
        if undecided.run in self._undecided:
            self._undecided.discard(undecided.run)
            self._ended.arrived.set()

    async def _record_each(self, runs: list[ActiveRun]) -> None:
        """Record *runs*, together if possible. An ending that cannot be recorded must not hold up the others."""
        if await self._refusal(runs) is None:
            return
        while runs:
            active = runs[0]
            refusal = await self._refusal([active])
            if refusal is not None:
                run, problem = active.claimed, message_of(refusal)  # an exception of the store, not of a handler
                words = "Run %d of %s ended, but its ending cannot be recorded; recording an error instead"
                say(ERROR, words, run.id, run.key, extra=run.named, exc_info=refusal)
                active.ending = Ending(outcome=Outcome.ERROR, error=f"How it ended cannot be recorded: {problem}")
                if await self._refusal([active]) is not None:
                    words = "Run %d of %s cannot be recorded at all; it counts as interrupted when this scheduler stops"
                    say(ERROR, words, run.id, run.key, extra=run.named)
                    self._ended.refused.add(run.id)
                    self._runner.forget(active)
            del runs[0]

    async def _refusal(self, runs: Sequence[ActiveRun]) -> Exception | None:
        """Record *runs*, or return why they cannot be recorded. Raise if the store fails and may take them later."""
        try:
            await self._record(runs)
        except (UnstorableError, StoreOutdatedError) as error:
            return error
        except (StoreError, Undecided):
            raise
        except Exception as error:  # of any other kind
            return error
        return None

    # ============================================================ what happens when a run ends

    async def _record(self, runs: Sequence[ActiveRun]) -> None:
        """Record how *runs* ended, and do what follows from it.

        Log lines and events are delivered when the lock is released.
        """
        batch = self._sort(runs)
        await self._give_back_unbegun(batch)
        await self._commit(batch)
        with _outliving_errors(batch):
            self._announce(batch)
            self._plan_next(batch)
        self._let_go(batch)
        self._agenda.note_endings()

    def _sort(self, runs: Sequence[ActiveRun]) -> _Batch:
        """Tell apart runs to drop, claims to give back, and endings to commit."""
        batch = _Batch(runs)
        for active in runs:
            run = active.claimed
            if active.interference is DISOWNED:
                batch.dropped.append(active)
                continue
            if active.ending is None and (run.trigger is not Trigger.MANUAL or run.waits_if_given_back):
                batch.unbegun.append(run)
                continue
            told = active.ending or _NEVER_BEGUN  # a run that was triggered here does not come again by itself
            batch.begun.append(active)
            # The clock may have been set back during the run.
            began_at = None if active.began_at is None else min(active.began_at, active.ended_at)
            batch.ended.append(EndedRun(run, told, began_at, active.ended_at))
        return batch

    async def _give_back_unbegun(self, batch: _Batch) -> None:
        """Undo the claims of runs that never began: their jobs are due as before."""
        if batch.unbegun:
            await self._release(batch.unbegun)
            self._agenda.is_stale = self._agenda.runs_requested = True

    async def _commit(self, batch: _Batch) -> None:
        """Write the endings, and what they mean for the jobs, in one transaction."""
        setting = self._setting
        rules = setting.rules if setting.progress.status == "stopped" else self._rules_of_loop
        if batch.ended:
            with setting.clock.working():  # `record_some` shields it already
                batch.left = await setting.store.finish(batch.ended, rules)

    def _announce(self, batch: _Batch) -> None:
        """Tell callers that wait for the runs, the log and observers how they ended."""
        for active in batch.dropped:
            self._announcer.dropped(active)
        is_followed = is_heard(INFO) or self._setting.events.has_listeners
        for active, item, left in zip(batch.begun, batch.ended, batch.left, strict=True):
            active.outcome, active.after = item.ending.outcome, left
            if is_followed or left is None or _is_news(item, left):
                self._announcer.ended(item, left, active)

    def _plan_next(self, batch: _Batch) -> None:
        """Note what the endings change: when the jobs run next, the room in groups, the rows to remove one day."""
        limits_groups = self._setting.limits.limits_groups
        moments: list[Micros] = []
        for item, left in zip(batch.ended, batch.left, strict=True):
            if item.run.is_backfill:
                self._agenda.may_backfill = True
            if left is None:
                self._agenda.is_stale = True  # another process has changed something
                continue
            job = left.job
            self._janitor.count_rows(job.uid, 1 + len(left.skips))
            for successor in left.successors:
                self._janitor.count_rows(successor.job.uid, len(successor.skips))
                moments += () if successor.state.next_run_at is None else (successor.state.next_run_at,)
            if job.state.next_run_at is not None:
                moments.append(job.state.next_run_at)
            # Another job of its group may run now, or of the group that an edit has put it in meanwhile.
            if limits_groups and (item.run.job.group or job.group) is not None:
                self._agenda.is_stale = self._agenda.may_backfill = True
        self._agenda.learn_of_moments(moments)
        self._clock_watch.heed(max((item.finished_at for item in batch.ended), default=0))

    def _let_go(self, batch: _Batch) -> None:
        """Free the slots, and wake the callers that wait for the runs."""
        for active in batch.runs:
            self._runner.forget(active)


def _is_news(item: EndedRun, left: Transition) -> bool:
    """Return whether the log tells of an ending although no observer follows every run."""
    is_disabled = left.kind is not None and left.state.disabled_reason != ENDED
    return item.ending.outcome.is_failure or bool(left.skips) or is_disabled


@contextmanager
def _outliving_errors(batch: _Batch) -> Iterator[None]:
    """Log an exception, and go on: a run whose ending is committed is over, whatever goes wrong after that."""
    try:
        yield
    except Exception:
        say(ERROR, "Cannot announce how %d runs ended", len(batch.runs), exc_info=True)


_NEVER_BEGUN = Ending(
    outcome=Outcome.CANCELLED, error="The scheduler was stopped, or the handler removed, before it could begin."
)
