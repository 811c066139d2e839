"""Copying a store into another: what is copied, what is left alone, and why. Slice by slice, so that it can stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.copy_records import LeftOut, Ruling, RunRecord, Verdict
from scheduler_async.stores.messages import NodeRow, RunFilter
from scheduler_async.stores.nodes import BEAT, MARGIN, is_gone, may_live
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros

# Each slice is one transaction: an interruption loses no more than that.
JOBS_AT_ONCE = 500
RUNS_AT_ONCE = 1_000

NEWER_THERE = "it has been changed or run in the target since"
RUNS_THERE = "it is running in the target"
RUNS_HERE = "it is running in the source"
DIED_HERE = (
    "its process died while the job ran in the source, and the retry policy of its program decides what follows; "
    "let the program start once on the source, then copy again"
)
UNREADABLE_THERE = "it cannot be read in the target"

# Before the number of any job or run.
BEFORE_ALL = -(2**63)


class SourceNodes(NamedTuple):
    """The nodes of a source, as a copy finds them."""

    alive: tuple[NodeRow, ...] = ()
    """Those that may still run jobs."""
    interrupted: frozenset[tuple[str, str]] = frozenset()
    """The jobs that dead nodes left running, each a namespace and an id: only their program can recover them."""

    def is_running(self, job: Job) -> bool:
        """Return whether a node that may be alive runs *job*, which is claimed."""
        return bool(self.alive) and (job.namespace, job.id) not in self.interrupted


async def recover_dead_nodes(
    store: Store, clock: Clock, report_silent: Callable[[NodeRow], object] = lambda _: None
) -> SourceNodes:
    """Record the runs of dead nodes as interrupted where every scheduler would do so alike, and return what is left.

    A job without a `retry` of its own leaves to its program what follows an interruption. If a dead node ran such a
    job, its runs stay as they are. A node that is only silent is passed to *report_silent* and watched for a while.
    """
    dead = [status.node for status in await store.nodes() if not may_live(status)]
    silent = [node for node in dead if not is_gone(node.identity)]
    if silent:
        report_silent(silent[0])
        # A clock may have been put forward: a node that beats meanwhile is alive.
        await clock.wait(asyncio.Event(), BEAT + MARGIN)
        beats = {status.node.id: status.node.beat for status in await store.nodes()}
        dead = [node for node in dead if beats.get(node.id) == node.beat]
    left: dict[int, list[Job]] = {}
    for node in dead:
        jobs = await _jobs_held_by(store, node)
        if not all(_decides_about_retries(job) for job in jobs):
            left[node.id] = jobs
    await store.recover([node for node in dead if node.id not in left], clock.micros(), Rules())
    return SourceNodes(
        alive=tuple(status.node for status in await store.nodes() if status.node.id not in left),
        interrupted=frozenset((job.namespace, job.id) for jobs in left.values() for job in jobs),
    )


async def _jobs_held_by(store: Store, node: NodeRow) -> list[Job]:
    found = []
    for run in await store.held(node.id):
        for row in await store.list_runs(RunFilter(run=run)):
            job = await store.get(row.namespace, row.job_id)
            found += [job] if job is not None else []
    return found


def _decides_about_retries(job: Job) -> bool:
    """Return whether *job* itself says what follows a failure; otherwise the `retry` of its scheduler does."""
    return job.retry is not None or job.schedule.runs_once


class Copy:
    """A copy of *source* into *target*, and its results so far.

    Jobs come first, since runs belong to them. A copy adds only what is missing in the target, so that another copy
    completes one that was interrupted. It removes nothing from the target. *nodes* are those of the source.
    """

    def __init__(self, source: Store, target: Store, nodes: SourceNodes | None = None) -> None:
        self._source, self._target = source, target
        self._nodes = nodes
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
            if ruling.why == RUNS_HERE and self._nodes is not None and not self._nodes.is_running(ruling.job):
                self.exceptions.append(ruling._replace(why=DIED_HERE))
            elif ruling.why is not None:
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
