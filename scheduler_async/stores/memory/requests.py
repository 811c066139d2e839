"""Requests: start a run, or cancel one; and what runs report while they go on."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_async.jobs.enums import Trigger
from scheduler_async.jobs.history import NO_ACTOR, Action, Actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, cancelled_on_request
from scheduler_async.rules.plans import has_room
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.change_codec import plain_record
from scheduler_async.stores.decisions import claimed_by_hand, is_running, never_begun
from scheduler_async.stores.memory.endings import EndingWork
from scheduler_async.stores.memory.records import StoredRun
from scheduler_async.stores.messages import AlreadyRequested, Cancellation, CancelRequest, ClaimTerms, Report
from scheduler_async.stores.run_codec import tally_of_cancelled, tally_of_progress
from scheduler_async.timekeeping.instants import Micros


class RequestWork(EndingWork):
    """The transactions of requests. For their purpose, see `Store`."""

    def request_start(
        self, namespace: str, id: str, payload_json: str | None, now: Micros, by: Actor = NO_ACTOR
    ) -> int | Job | AlreadyRequested | None:
        record = self._find(namespace, id)
        if record is None:
            return None
        job = self._recounted(record.job)
        if is_running(job, now):
            return job
        tables = self._tables
        waiting = [run for run, uid in tables.starts.items() if uid == job.uid]
        if waiting and job.state.running + len(waiting) >= job.max_instances:
            return AlreadyRequested(min(waiting))
        number = tables.last_run + 1
        self._add_run(StoredRun(number, job.uid, now, 1, Trigger.MANUAL, now, payload=payload_json, origin=number))
        tables.starts[number] = job.uid
        self._write_changes([plain_record(job.uid, now, Action.TRIGGER, by, run=number)])
        return number

    def claim_requested(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        name = self._require_node(terms.node)
        tables = self._tables
        here = [number for number, uid in tables.starts.items() if _is_for(tables.jobs[uid].job, terms)]
        runs: list[ClaimedRun] = []
        are_more = False
        for number in sorted(here):
            row = tables.runs[number]
            job = self._recounted(tables.jobs[row.uid].job)
            if len(runs) == terms.limit or not has_room(job):
                are_more = True
                continue
            queued = terms.slots is not None and len(runs) >= terms.slots
            requested = row.scheduled_for, row.attempt, row.origin
            run = claimed_by_hand(job, number, row.payload, now, queued=queued, requested=requested)
            row.claimed_at, row.started_at, row.node = now, None if queued else now, name
            row.payload = run.payload_json
            self._put(run.job)
            self._hold(run, terms.node)
            del tables.starts[number]
            runs.append(run)
            self._count_starts([run], terms.group_rates, now)
        return runs, are_more

    def request_cancel(self, run: int, reason: str | None, now: Micros, by: Actor = NO_ACTOR) -> Cancellation:
        tables = self._tables
        row = tables.runs.get(run)
        if row is None:
            return Cancellation.UNKNOWN
        if row.outcome is not None:
            return Cancellation.ENDED
        self._write_changes([plain_record(row.uid, now, Action.CANCEL, by, reason, run=run)])
        if run in tables.owners:
            tables.cancels[run] = CancelRequest(reason, now)
            return Cancellation.REQUESTED
        ending = cancelled_on_request(reason)
        row.outcome, row.finished_at, row.error, row.reason = ending.outcome, now, ending.error, ending.reason
        tables.starts.pop(run, None)
        self._count_ended(tally_of_cancelled(tables.jobs[row.uid].job.namespace, 1, now))
        return Cancellation.DONE

    def release(self, runs: Sequence[ClaimedRun]) -> None:
        cancels = self._cancels_of(run.id for run in runs)
        if cancels:  # these are not run again
            self.finish([never_begun(run, cancels[run.id]) for run in runs if run.id in cancels], Rules())
        left = [run for run in runs if run.id not in cancels]
        self._release_for_backfills([run for run in left if run.is_backfill])
        super().release([run for run in left if not run.is_backfill])

    def cancels(self, node: int) -> dict[int, str | None]:
        cancels, owners = self._tables.cancels, self._tables.owners
        return {run: request.reason for run, request in cancels.items() if owners[run].node == node}

    def report(self, reports: Sequence[Report]) -> None:
        for report in reports:
            row = self._tables.runs.get(report.run)
            if row is None or row.outcome is not None:
                continue
            if report.progress is not None:
                row.progress, row.progress_message = report.progress
                self._count_ended(tally_of_progress([self._tables.jobs[row.uid].job.namespace]))
            if report.output is not None:
                row.output = report.output


def _is_for(job: Job, terms: ClaimTerms) -> bool:
    return terms.handlers is None or job.handler in terms.handlers
