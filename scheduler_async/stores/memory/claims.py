"""Claims: select due jobs in order, claim them, start or release them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from scheduler_async.jobs.enums import Status
from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import Rooms, group_key
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.rates import NO_RATES, Rates
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.claim_plan import ClaimPlan
from scheduler_async.stores.decisions import after_repeat, are_due, claimed_by_hand, earliest_of, put_back_all
from scheduler_async.stores.memory.nodes import NodeWork
from scheduler_async.stores.memory.rates import RateWork
from scheduler_async.stores.memory.records import StoredRun
from scheduler_async.stores.memory.successors import SuccessorWork
from scheduler_async.stores.messages import OVERLAPPED, CancelRequest, Claims, ClaimTerms
from scheduler_async.stores.run_codec import tally_of_unskipped
from scheduler_async.timekeeping.instants import LAST, Micros


class ClaimWork(SuccessorWork, RateWork, NodeWork):
    """The transactions of claims. For their purpose, see `Store`."""

    def running_by_group(self) -> dict[str, int]:
        jobs = self._tables.jobs
        held = (jobs[owner.uid].job for owner in self._tables.owners.values())
        return Counter(key for job in held if (key := group_key(job.namespace, job.group)) is not None)

    def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        name = self._require_node(terms.node)
        until = now + terms.ahead
        started = self._live_starts(now) if terms.group_rates else Counter()
        self._take_up_decided()
        due = self._due.take(until, terms, lambda: self._rooms(terms, started))
        plan = ClaimPlan(now, terms, self.decisions)
        run_id = self._tables.last_run + 1
        try:
            for job in due:
                run_id += plan.claim(self._recounted(job) if job.description.has_instances else job, run_id)
        except BaseException:
            for job in due:
                self._put(job)
            raise
        self._tables.last_run = max(self._tables.last_run, run_id - 1)
        repeated = self._find_repeated(plan.runs, until)
        if repeated:
            plan.drop(repeated)
        self._undecided |= {job.uid for job in plan.undecided}
        for job in (*plan.passed_over, *repeated.values()):
            self._put(job)
        for run in plan.runs:
            self._put(run.job)
            self._add_run(row_of_claim(run, name))
            self._hold(run, terms.node)
        self._write_skips(plan.skipped)
        self._write_changes(plan.changes)
        if terms.group_rates:
            for (key, _), count in self._count_starts(plan.runs, terms.group_rates, now).items():
                started[key] += count
        for uid in plan.overlapped:
            self._cancel_oldest(uid, now)
        next_due, next_count = self._outlook(plan, started, terms, now)
        return Claims(
            runs=self._with_causes(plan.runs),
            edits=plan.edits,
            unhandled=self._due.unhandled(),
            is_full=len(due) >= terms.limit or bool(repeated) or are_due(plan.still_due, until),
            next_due=next_due,
            next_count=next_count,
            overlaps=bool(plan.overlapped),
        )

    def _take_up_decided(self) -> None:
        """Consider jobs again that claims have left out so far, since it is decided what to do."""
        for job in self.decisions.take_claimable():
            self._consider(job.uid)

    def reconsider(self) -> None:
        """Consider all jobs again that claims have left out."""
        for uid in [*self._undecided]:
            self._consider(uid)

    def _consider(self, uid: int) -> None:
        record = self._tables.jobs.get(uid)
        if uid in self._undecided and record is not None and record.removed_at is None:
            self._put(record.job)
        self._undecided.discard(uid)

    def _outlook(
        self, plan: ClaimPlan, started: Mapping[str, int], terms: ClaimTerms, now: Micros
    ) -> tuple[Micros | None, int]:
        """Return when the next jobs are due, and how many."""
        at = self._due.next
        at = None if at is not None and at > LAST else at
        next_due, next_count = earliest_of(plan.passed_over, at, self._due.count_next(terms.count))
        allowed = self._next_start(started, terms.group_rates, now) if started else None
        if allowed is not None and (next_due is None or allowed < next_due):
            return allowed, 1
        return next_due, next_count

    def _rooms(self, terms: ClaimTerms, started: Mapping[str, int]) -> Rooms:
        return terms.rooms(self.running_by_group() if terms.limits_running else {}, started)

    def _find_repeated(self, runs: Sequence[ClaimedRun], until: Micros) -> dict[int, Job]:
        """Return the jobs whose occurrences already ran before the clock was set back, as they go on."""
        repeated = {}
        for run in runs:
            record = self._tables.jobs[run.uid]
            if run.scheduled_for not in record.attempts:  # the usual case
                continue
            if any(row.attempt == run.attempt for row in self._attempts_at(record, run.scheduled_for)):
                latest = max((at for at in record.attempts if at <= until), default=None)
                repeated[run.uid] = after_repeat(run, latest, until)
        return repeated

    def _cancel_oldest(self, uid: int, now: Micros) -> None:
        """Ask the owner of the oldest run of a job to cancel it."""
        owners, cancels = self._tables.owners, self._tables.cancels
        held = (run for run in self._tables.jobs[uid].held if owners[run].is_instance and owners[run].backfill is None)
        oldest = min(held, default=None)
        if oldest is not None:
            cancels.setdefault(oldest, CancelRequest(OVERLAPPED, now))

    def count_due(self, now: Micros, most: int) -> int:
        return sum(1 for _, _ in zip(self._due.waiting(now), range(most), strict=False))

    def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        started = self._live_starts(now) if terms.group_rates else Counter()
        rooms = self._rooms(terms, started)
        allowed = (
            job.state.next_run_at
            for job in self._due.waiting(now)
            if (terms.handlers is None or job.handler in terms.handlers)
            and job.description.schedule.is_known
            and rooms.of(group_key(job.namespace, job.group) or "") > 0
        )
        return min(filter(None, allowed), default=None)

    def claim_one(
        self,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
        by: Actor = NO_ACTOR,
        rates: Rates = NO_RATES,
    ) -> ClaimedRun | Job | None:
        name = self._require_node(node)
        record = self._find(namespace, id)
        if record is None:
            return None
        job = self._recounted(record.job)
        if not has_room(job):
            return job
        run = claimed_by_hand(job, self._tables.last_run + 1, payload_json, now, queued=queued)
        row = row_of_claim(run, name)
        row.payload = run.payload_json
        self._add_run(row)
        self._put(run.job)
        self._hold(run, node)
        self._write_changes([plain_record(job.uid, now, Action.TRIGGER, by, run=run.id)])
        self._count_starts([run], rates, now)
        return run

    def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        tables = self._tables
        ours = {run.id for run in runs if run.id in tables.owners}
        for run in runs:
            if run.id in ours:
                tables.runs[run.id].started_at = now
                job = tables.jobs[run.uid].job
                if not tables.owners[run.id].is_instance:
                    self._put(job.with_state(replace(job.state, activity=Status.RUNNING)))
        return ours

    def release(self, runs: Sequence[ClaimedRun]) -> None:
        tables = self._tables
        # A run that was given back keeps its number, and may have been claimed again.
        ours = [run for run in runs if run.id in tables.owners and tables.runs[run.id].claimed_at == run.claimed_at]
        jobs = {run.id: self._recounted(tables.jobs[run.uid].job) for run in ours}
        undone = put_back_all(self.decisions, jobs, ours)
        self._free(run.id for run in ours)
        for job in {job.uid: job for job, _, _ in undone}.values():
            self._put(job)
        for run in ours:
            if run.waits_if_given_back:
                row = tables.runs[run.id]
                row.claimed_at, row.started_at, row.node = row.scheduled_for, None, None
                row.origin = row.id if row.origin is None else row.origin
                tables.starts[run.id] = run.uid
            else:
                skipped = self._skipped_by(run)
                rows = [tables.runs[number] for number in skipped]
                namespace = run.job.namespace
                self._count_ended(tally_of_unskipped((namespace, row.finished_at, row.missed) for row in rows))
                self._delete_runs(tables.jobs[run.uid], {run.id, *skipped})
        self._write_skips(undone)

    def _skipped_by(self, run: ClaimedRun) -> Collection[int]:
        """Return the rows of the occurrences that a claim skipped."""
        rows = self._tables.runs
        found = []
        for number in reversed(self._tables.jobs[run.uid].runs):
            if number <= run.id:
                break
            if rows[number].attempt == 0 and rows[number].claimed_at == run.claimed_at:
                found.append(number)
        return found


def row_of_claim(run: ClaimedRun, node: str) -> StoredRun:
    """Return the row of a claimed run. *node* is the name of the node."""
    began = None if run.is_queued else run.claimed_at
    return StoredRun(run.id, run.uid, run.scheduled_for, run.attempt, run.trigger, run.claimed_at, began, node=node)
