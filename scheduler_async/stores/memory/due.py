"""The jobs that can be claimed: those that will be due, by time, and those that are due and wait."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice

from scheduler_async.jobs.job import Job
from scheduler_async.rules.groups import NO_GROUP, Rooms, group_key
from scheduler_async.rules.order import order
from scheduler_async.stores.memory.timetable import Timetable
from scheduler_async.stores.messages import MOST_UNHANDLED, ClaimTerms
from scheduler_async.stores.ready_queue import Place, ReadyQueue
from scheduler_async.timekeeping.instants import Micros

# Where jobs wait whose schedules this process does not know. No handler has this name.
NO_HANDLER = ""


class DueJobs:
    """Jobs by number. A claim looks at those that have become due, and at those that may go now, but at no others."""

    def __init__(self, job_of: Callable[[int], Job]) -> None:
        self._job_of = job_of
        self._later = Timetable()
        self._queue = ReadyQueue()
        # A queue cannot drop a job from its middle: a place counts only while the job is here with the same one.
        self._waiting: dict[int, Place] = {}
        # The due jobs whose handlers are not registered, by handler, and the handler under which each is found.
        self._absent: dict[str, Timetable] = {}
        self._absent_under: dict[int, str] = {}

    def put(self, uid: int, at: Micros | None) -> None:
        """Note that a job has changed, and when it is due. None means that it cannot be claimed."""
        self._waiting.pop(uid, None)
        if self._absent_under:
            self._leave_absent(uid)
        self._later.put(uid, at)

    def take(self, until: Micros, terms: ClaimTerms, rooms: Callable[[], Rooms]) -> list[Job]:
        """Take out and return the first jobs that are due, up to the limit and the limits of their groups."""
        here = None if terms.handlers is None else frozenset(terms.handlers)
        due = self._newly_due(until, here)
        if not self._waiting and not terms.limits_groups and len(due) <= terms.limit:  # the usual case
            due.sort(key=_place_of)
            return due
        self._enqueue(due)
        return self._take_in_order(until, terms.limit, here, rooms())

    def _newly_due(self, until: Micros, here: Collection[str] | None) -> list[Job]:
        """Return the jobs that have become due, unless their handlers are absent."""
        for handler in [name for name in self._absent if name != NO_HANDLER and (here is None or name in here)]:
            for uid in self._absent[handler].numbers():
                self._leave_absent(uid)
                self._later.put(uid, self._job_of(uid).state.next_run_at)
        return [job for uid in self._later.take(until) if self._is_here(job := self._job_of(uid), here)]

    def _is_here(self, job: Job, here: Collection[str] | None) -> bool:
        """Return whether this process can run a due *job*. If it cannot, set it aside."""
        is_known = job.description.schedule.is_known
        if is_known and (here is None or job.handler in here):
            return True
        handler = job.handler if is_known else NO_HANDLER
        self._absent_under[job.uid] = handler
        self._absent.setdefault(handler, Timetable()).put(job.uid, job.state.next_run_at)
        return False

    def _leave_absent(self, uid: int) -> None:
        handler = self._absent_under.pop(uid, None)
        if handler is not None:
            self._absent[handler].put(uid, None)
            if not self._absent[handler]:
                del self._absent[handler]

    def _enqueue(self, jobs: Collection[Job]) -> None:
        if not self._waiting:
            self._queue = ReadyQueue()  # without the places of jobs that have changed
        places = [(job, _place_of(job)) for job in jobs]
        self._waiting.update((job.uid, place) for job, place in places)
        self._queue.extend((group_key(job.namespace, job.group) or NO_GROUP, place) for job, place in places)

    def _take_in_order(self, until: Micros, limit: int, here: Collection[str] | None, rooms: Rooms) -> list[Job]:
        chosen: list[Job] = []
        while taken := self._queue.take(limit - len(chosen), rooms):
            for group, place in taken:
                uid = place[-1]
                if self._waiting.get(uid) is not place:  # it has changed since
                    rooms.take(group, -1)
                    continue
                del self._waiting[uid]
                job = self._job_of(uid)
                at = job.state.next_run_at
                if at is not None and at <= until and self._is_here(job, here):
                    chosen.append(job)
                    continue
                rooms.take(group, -1)
                if at is not None and at > until:  # it was queued ahead of its time
                    self._later.put(uid, at)
        return chosen

    @property
    def next(self) -> Micros | None:
        """When the next job is due that the last claim did not look at."""
        return self._later.first

    def count_next(self, most: int) -> int:
        """Return how many jobs are due then, counted up to *most*."""
        return min(self._later.count_at(self._later.first), most)

    def unhandled(self) -> list[Job]:
        """Return the first due job for each handler that is not registered, and those with unknown schedules."""
        found: list[Job] = []
        for handler, jobs in islice(self._absent.items(), MOST_UNHANDLED):
            uids = jobs.numbers()[:MOST_UNHANDLED] if handler == NO_HANDLER else jobs.at(jobs.first)[:1]
            found += map(self._job_of, uids)
        return found

    def waiting(self, now: Micros) -> Iterator[Job]:
        """Iterate over the jobs that are due *now*, whatever they wait for."""
        for uid in chain(self._later.until(now), self._waiting, self._absent_under):
            job = self._job_of(uid)
            if job.state.next_run_at is not None and job.state.next_run_at <= now:
                yield job


def _place_of(job: Job) -> Place:
    return (*order(job), job.uid)
