"""Copying a store into another: what is copied, what is left alone, and why. Slice by slice, so that it can stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable

from msgspec.structs import replace

from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.copy_records import LeftOut, Ruling, RunRecord, Verdict
from scheduler_async.stores.messages import NodeRow
from scheduler_async.stores.nodes import BEAT, MARGIN, is_gone, may_live
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros

# Each slice is one transaction: who breaks off loses no more than that.
JOBS_AT_ONCE = 500
RUNS_AT_ONCE = 1_000

NEWER_THERE = "it has been changed or run in the target since"
RUNS_THERE = "it is running in the target"
RUNS_HERE = "it is running in the source"
UNREADABLE_THERE = "it cannot be read in the target"

# Before the number of any job or run.
BEFORE_ALL = -(2**63)


async def take_up_the_dead(
    store: Store, clock: Clock, tell: Callable[[NodeRow], object] = lambda _: None
) -> list[NodeRow]:
    """Record what dead processes left running as interrupted, as a scheduler does; return the nodes that may live.

    Who is only silent is told of, and watched for a while.
    """
    dead = [status.node for status in await store.nodes() if not may_live(status)]
    silent = [node for node in dead if not is_gone(node.identity)]
    if silent:
        tell(silent[0])
        # A clock may have been put forward; who beats meanwhile lives, and is not taken for dead.
        await clock.wait(asyncio.Event(), BEAT + MARGIN)
    if dead:
        await store.recover(dead, clock.micros(), Rules())
    return [status.node for status in await store.nodes()]


class Copy:
    """A copy of *source* into *target*, and what it has come to so far.

    Jobs come first, since runs belong to them. What is in the target already is found again, so that a copy that was
    broken off, or made before, is completed by another. What the source has forgotten is not forgotten in the target.
    """

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target
        self.jobs = self.runs = 0
        """How many there are in the source."""
        self.jobs_seen = self.runs_seen = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.runs_added = 0
        self.exceptions: list[Ruling] = []
        """The jobs that were not copied, although they differ."""
        self.unreadable_jobs: list[LeftOut] = []
        self.unreadable_runs: list[LeftOut] = []
        """Those of the source that cannot be read, and are left out."""
        self._forgotten: dict[tuple[str, str], Micros] = {}

    async def slices(self) -> AsyncGenerator[None, None]:
        """Copy; after each slice it is the caller's turn, and whether it goes on is for the caller to say."""
        self.jobs, self.runs = await self._source.count()
        yield
        after = BEFORE_ALL
        while jobs := await self._source.read_jobs(after, JOBS_AT_ONCE):
            unreadable = [job for job in jobs if isinstance(job, LeftOut)]
            self.unreadable_jobs += unreadable
            self.verdicts.update(Verdict.LEFT_OUT for _ in unreadable)
            self._note(await self._target.write_jobs([job for job in jobs if isinstance(job, Job)], rule))
            self.jobs_seen += len(jobs)
            after = _number_of(jobs[-1])
            yield
        after = BEFORE_ALL
        while runs := await self._source.read_runs(after, RUNS_AT_ONCE):
            sound = [run for run in runs if isinstance(run, RunRecord)]
            self.unreadable_runs += [run for run in runs if isinstance(run, LeftOut)]
            self.runs_added += await self._target.write_runs([run for run in sound if not self._was_forgotten(run)])
            self.runs_seen += len(runs)
            after = runs[-1][0]
            yield

    def _note(self, rulings: Iterable[Ruling]) -> None:
        for ruling in rulings:
            self.verdicts[ruling.verdict] += 1
            if ruling.why is not None:
                self.exceptions.append(ruling)
                until = ruling.job.state.forgotten_until
                if ruling.verdict is Verdict.KEPT and until is not None:
                    self._forgotten[ruling.job.namespace, ruling.job.id] = until

    def _was_forgotten(self, run: RunRecord) -> bool:
        """Whether the target, where its job lives on, had so many newer rows that this one was removed with age."""
        until = self._forgotten.get((run.namespace, run.job_id))
        return until is not None and run.scheduled_for <= until


def rule(source: Job, target: Job | LeftOut | None) -> Ruling:
    """What becomes of a job in the target: it is never replaced by one that is older, nor while either is running.

    A job is older if it was edited earlier and has not run since. One that was edited here and has run there is older
    than neither, and stays as it is.
    """
    if source.state.activity is not Status.IDLE:
        return Ruling(Verdict.LEFT_OUT, source, RUNS_HERE)
    if target is None:
        return Ruling(Verdict.ADDED, replace(source, uid=0))
    if isinstance(target, LeftOut):
        return Ruling(Verdict.KEPT, source, UNREADABLE_THERE)
    if target.state.activity is not Status.IDLE:
        return Ruling(Verdict.KEPT, target, RUNS_THERE)
    # Numbers and revisions are each store's own: runs and readers know a job by them.
    ours = replace(source, uid=target.uid, revision=target.revision)
    if ours == target:
        return Ruling(Verdict.SAME, source)
    if not _is_as_new(source, target):
        return Ruling(Verdict.KEPT, target, NEWER_THERE)
    return Ruling(Verdict.UPDATED, replace(ours, revision=target.revision + 1))


def _number_of(found: Job | LeftOut) -> int:
    return found.uid if isinstance(found, Job) else found.number


def _is_as_new(one: Job, other: Job) -> bool:
    """Whether nothing has happened to *other* since *one* was what it is."""
    edited, other_edited = one.updated, other.updated
    ran, other_ran = _last_moment(one.state), _last_moment(other.state)
    if (edited, ran) != (other_edited, other_ran):
        return edited >= other_edited and ran >= other_ran
    # Occurrences that were left out, and rows that were removed, leave no other trace: who is further has done more.
    return _next_moment(one.state) >= _next_moment(other.state) and _forgotten(one.state) >= _forgotten(other.state)


def _last_moment(state: JobState) -> Micros:
    moments = (state.last_run_at, state.last_success_at, state.last_error_at, state.disabled_at)
    return max((moment for moment in moments if moment is not None), default=0)


def _next_moment(state: JobState) -> float:
    return float("inf") if state.next_run_at is None else state.next_run_at


def _forgotten(state: JobState) -> float:
    return float("-inf") if state.forgotten_until is None else state.forgotten_until
