"""Copy one store into another, in small transactions, so that a copy can be interrupted and repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from scheduler_async.jobs.job import Job, JobState
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.copy_records import LeftOut, Ruling, RunRecord, Verdict
from scheduler_async.stores.liveness import BEAT, MARGIN, is_gone, may_live
from scheduler_async.stores.messages import NodeRow, RunFilter
from scheduler_async.stores.protocol import Store
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros

# Each slice is one transaction, so an interruption loses at most one slice.
JOBS_AT_ONCE = 500
RUNS_AT_ONCE = 500  # each may have a payload, a result, a traceback and an output of 64 KiB
CHANGES_AT_ONCE = 200  # each may have a payload before and after

NEWER_THERE = "it was edited or has run in the target since"
RUNS_THERE = "it is running in the target"
RUNS_HERE = "it is running in the source"
DIED_HERE = (
    "its process died during a run in the source, and only its program knows the retry policy; "
    "start the program once on the source, then copy again"
)
UNREADABLE_THERE = "it cannot be read in the target"

# Lower than the number of any job or run.
BEFORE_ALL = -(2**63)


class SourceNodes(NamedTuple):
    """The nodes of a source, as a copy finds them."""

    alive: tuple[NodeRow, ...] = ()
    """The nodes that may still run jobs."""
    interrupted: frozenset[tuple[str, str]] = frozenset()
    """The jobs that dead nodes left running, as namespace and id. Only their program can recover them."""

    def is_running(self, job: Job) -> bool:
        """Return whether a node that may be alive runs the claimed *job*."""
        return bool(self.alive) and (job.namespace, job.id) not in self.interrupted


async def recover_dead_nodes(
    store: Store, clock: Clock, report_silent: Callable[[NodeRow], object] = lambda _: None
) -> SourceNodes:
    """Record the runs of dead nodes as interrupted where no scheduler is needed to decide, and return the other nodes.

    After an interruption, a job without its own `retry` depends on its program. If a dead node ran such a job, its runs
    stay unchanged. A node that sends no heartbeat but may be alive is passed to *report_silent* and watched for a
    while.
    """
    dead = [status.node for status in await store.nodes() if not may_live(status)]
    silent = [node for node in dead if not is_gone(node.identity)]
    if silent:
        report_silent(silent[0])
        # A clock may have been set forward. A node that sends a heartbeat meanwhile is alive.
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
    """Return whether *job* has its own retry policy, and a schedule of ours. Otherwise its program decides."""
    return (job.retry is not None or job.schedule.runs_once) and not job.schedule.may_be_slow


class Copy:
    """A copy of *source* into *target*, and its results so far.

    It copies jobs first, because runs belong to them, and changes last, because they name runs. It adds only what the
    target lacks, so that a second copy completes an interrupted one. It removes nothing from the target. *nodes* are
    those of the source.
    """

    def __init__(self, source: Store, target: Store, nodes: SourceNodes | None = None) -> None:
        self._source, self._target = source, target
        self._nodes = nodes
        self.jobs = self.runs = 0
        """How many jobs and runs the source has."""
        self.jobs_seen = self.runs_seen = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.runs_added = self.changes_added = 0
        self.exceptions: list[Ruling] = []
        """The jobs that differ and were not copied."""
        self.unreadable_jobs: list[LeftOut] = []
        self.unreadable_runs: list[LeftOut] = []
        """The jobs and runs of the source that cannot be read, and are omitted."""
        self._forgotten: dict[tuple[str, str], Micros] = {}

    async def slices(self) -> AsyncGenerator[None, None]:
        """Copy one slice after another. After each slice, the caller decides whether to continue."""
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
        last: int | None = BEFORE_ALL
        while last is not None:
            changes, last = await self._source.read_changes(last, CHANGES_AT_ONCE)
            if changes:
                self.changes_added += await self._target.write_changes(changes)
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
        """Return whether the target has newer rows of the job and has purged this one because of its age."""
        until = self._forgotten.get((run.namespace, run.job_id))
        return until is not None and run.scheduled_for <= until


def rule(source: Job, target: Job | LeftOut | None) -> Ruling:
    """Decide about a job of the source. A target job is not replaced by an older one, nor while either is running.

    A job is older if it was edited earlier and has not run since. If one was edited and the other one has run, neither
    is older, and the target keeps its own.
    """
    if source.is_running:
        return Ruling(Verdict.LEFT_OUT, source, RUNS_HERE)
    if target is None:
        return Ruling(Verdict.ADDED, replace(source, uid=0))
    if isinstance(target, LeftOut):
        return Ruling(Verdict.KEPT, source, UNREADABLE_THERE)
    if target.is_running:
        return Ruling(Verdict.KEPT, target, RUNS_THERE)
    # Each store has its own numbers and revisions, by which runs and readers identify a job.
    ours = replace(source, uid=target.uid, revision=target.revision)
    if ours == target:
        return Ruling(Verdict.SAME, source)
    if not _is_as_new(source, target):
        return Ruling(Verdict.KEPT, target, NEWER_THERE)
    return Ruling(Verdict.UPDATED, replace(ours, revision=target.revision + 1))


def _number_of(found: Job | LeftOut) -> int:
    return found.uid if isinstance(found, Job) else found.number


def _is_as_new(one: Job, other: Job) -> bool:
    """Return whether *one* includes everything that has happened to *other*."""
    edited, other_edited = one.updated, other.updated
    ran, other_ran = _last_moment(one.state), _last_moment(other.state)
    if (edited, ran) != (other_edited, other_ran):
        return edited >= other_edited and ran >= other_ran
    # Skipped occurrences and purged rows leave no other trace: the job with the later next run has done more.
    return _next_moment(one.state) >= _next_moment(other.state) and _forgotten(one.state) >= _forgotten(other.state)


def _last_moment(state: JobState) -> Micros:
    moments = (state.last_run_at, state.last_success_at, state.last_error_at, state.disabled_at)
    return max((moment for moment in moments if moment is not None), default=0)


def _next_moment(state: JobState) -> float:
    return float("inf") if state.next_run_at is None else state.next_run_at


def _forgotten(state: JobState) -> float:
    return float("-inf") if state.forgotten_until is None else state.forgotten_until
