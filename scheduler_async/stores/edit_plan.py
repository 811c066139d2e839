"""Decide about the changes of jobs that callers make together, and collect what to write. Pure; the stores do both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from scheduler_async.jobs.history import Actor
from scheduler_async.jobs.job import Job
from scheduler_async.rules.successors import Name
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.change_codec import ChangeRecord, alteration
from scheduler_async.stores.codec import refuse_lossy, shown
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.decisions import change_decided, each, is_relinked
from scheduler_async.stores.messages import Change
from scheduler_async.stores.run_codec import Skipped
from scheduler_async.timekeeping.instants import Micros


class EditPlan:
    """Decides about changes one by one. Each sees what those before it have done to its job."""

    def __init__(
        self, jobs: Mapping[Name, Job], numbers: Iterator[int], now: Micros, by: Actor, decisions: Decisions
    ) -> None:
        """Begin with the *jobs* that are stored, and with *numbers* for new ones."""
        self.edits: list[Transition | None] = []
        self.added: dict[int, Job] = {}
        """The new jobs, by number."""
        self.changed: dict[int, tuple[Job, Job]] = {}
        """The other jobs that have changed, by number: each as it was, and as it is."""
        self.records: list[ChangeRecord] = []
        """What to record of the changed jobs. A new job has a record of its own."""
        self.skipped: list[Skipped] = []
        self._jobs, self._numbers = dict(jobs), numbers
        self._now, self._by, self._decisions = now, by, decisions

    def decide_all(self, changes: Iterable[Change]) -> None:
        """Decide about *changes*. An error ends the plan: nothing is to be written."""
        each(changes, self._decide)

    def _decide(self, change: Change) -> None:
        name = change.namespace, change.id
        before = self._jobs.get(name)
        edit = change_decided(self._decisions, change, before, self._now)
        if edit is not None:
            job = edit.job
            if edit.kind is not None:
                self._note(before, edit)
            if job.description.unreadable:
                edit = replace(edit, job=shown(job, 0))
            if edit.skips:
                self.skipped.append((edit.job, edit.skips, self._now))
        self.edits.append(edit)

    def _note(self, before: Job | None, edit: Transition) -> None:
        job = edit.job
        if not job.uid:
            job.take_number(next(self._numbers))
        if before is None or job.uid in self.added:
            self.added[job.uid] = job
        else:
            refuse_lossy(before, job)
            first = self.changed[job.uid][0] if job.uid in self.changed else before
            self.changed[job.uid] = first, job
            record = alteration(before, job, edit.kind, self._now, self._by)
            if record is not None:
                self.records.append(record)
        self._jobs[job.namespace, job.id] = job

    @property
    def linked(self) -> list[Job]:
        """The jobs whose links to predecessors are new: those of which a cycle may consist."""
        linked = [job for job in self.added.values() if job.description.schedule.follows_runs]
        return linked + [job for before, job in self.changed.values() if is_relinked(before, job)]

    @property
    def jobs(self) -> list[Job]:
        """All jobs to write."""
        return [*self.added.values(), *(job for _, job in self.changed.values())]
