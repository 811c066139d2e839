"""Jobs that run after others: links to their predecessors, and what the endings of those do to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.successors import Name, check_cycles, predecessor_of
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.copy_records import Ruling
from scheduler_async.stores.decisions import Woken, woken_by
from scheduler_async.stores.memory.base import WorkBase


class SuccessorWork(WorkBase):
    """Steps of the transactions that add, edit, claim and end jobs."""

    def __init__(self) -> None:
        super().__init__()
        # The numbers of the jobs that run after one, by its name. It may not exist.
        self._followers: dict[Name, dict[int, None]] = {}

    def _check_links(self, jobs: Iterable[Job]) -> None:
        """Raise an error if *jobs* with new schedules would wait for each other, or for themselves."""
        links: dict[Name, Name | None] = {(job.namespace, job.id): predecessor_of(job) for job in jobs}
        check_cycles({**self._chains(links.values()), **links}, links)

    def _chains(self, names: Iterable[Name | None]) -> dict[Name, Name | None]:
        """Return the links of all jobs to which these *names* lead."""
        links: dict[Name, Name | None] = {}
        for name in names:
            at = name
            while at is not None and at not in links:
                record = self._find(*at)
                links[at] = None if record is None else predecessor_of(record.job)
                at = links[at]
        return links

    def _links_beyond(self, rulings: Iterable[Ruling]) -> dict[Name, Name | None]:
        """Return the links of all jobs to which those lead that a copy writes."""
        return self._chains(predecessor_of(ruling.job) for ruling in rulings if ruling.verdict.writes)

    def _link(self, jobs: Iterable[tuple[Job | None, Job]]) -> None:
        """Write which jobs the given ones wait for: each as it was, if it is not new, and as it is."""
        for before, job in jobs:
            if before is not None:
                self._unlink(before)
                self._tables.jobs[job.uid].cause = None
            name = predecessor_of(job)
            if name is not None:
                self._followers.setdefault(name, {})[job.uid] = None

    def _unlink(self, job: Job) -> None:
        name = predecessor_of(job)
        if name in self._followers:
            self._followers[name].pop(job.uid, None)
            if not self._followers[name]:
                del self._followers[name]

    def _woken_by(self, ended: Sequence[EndedRun], rules: Rules, changed: Mapping[int, Job]) -> Sequence[Woken]:
        """Return what these endings do to the jobs that wait for them. *changed* are jobs as the endings leave them."""
        if not self._followers:
            return ()
        names = {item.run.name for item in ended}
        jobs = self._tables.jobs
        waiting = {
            name: [changed.get(uid, jobs[uid].job) for uid in self._followers[name]]
            for name in names
            if name in self._followers
        }
        return woken_by(ended, waiting, rules) if waiting else ()

    def _wake(self, woken: Iterable[Woken]) -> None:
        """Write what endings have done to the jobs that wait for them."""
        for one in woken:
            if one.is_changed:
                self._put(one.change.job)
            if not one.change.skips:
                self._tables.jobs[one.change.job.uid].cause = one.run
            self._write_skips([(one.change.job, one.change.skips, one.at)])

    def _with_causes(self, runs: list[ClaimedRun]) -> list[ClaimedRun]:
        """Return claimed *runs* with the runs that caused them, and note these with their rows."""
        if not self._followers:
            return runs
        tables = self._tables
        told = []
        for run in runs:
            cause = tables.jobs[run.uid].cause if run.job.description.schedule.follows_runs else None
            if cause is not None:
                tables.runs[run.id].after = cause
            told.append(run if cause is None else replace(run, after=cause))
        return told
