"""Backfills: add, read and cancel them, claim their runs, and count how these end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from scheduler_async.jobs.backfill import Backfill, BackfillState
from scheduler_async.jobs.enums import Outcome, Phase
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun
from scheduler_async.rules.backfills import claimed_for_backfill, endings
from scheduler_async.rules.groups import NO_GROUP, group_key
from scheduler_async.stores.memory.claims import ClaimWork, row_of_claim
from scheduler_async.stores.memory.records import StoredBackfill
from scheduler_async.stores.messages import CancelRequest, ClaimTerms
from scheduler_async.timekeeping.instants import Micros

RUNNING = BackfillState.RUNNING


class BackfillWork(ClaimWork):
    """The transactions of backfills. For their purpose, see `Store`."""

    def __init__(self) -> None:
        super().__init__()
        self._last_backfill = 0

    def add_backfill(
        self,
        job: Job,
        occurrences: Sequence[Micros],
        payload_json: str | None,
        now: Micros,  # noqa: ARG002 - there is no column for it
        *,
        max_concurrent: int,
        again: bool,
    ) -> Backfill | None:
        record = self._find(job.namespace, job.id)
        if record is None or record.job.uid != job.uid:
            return None
        done = (Outcome.SUCCESS, Outcome.NOOP)
        due = [
            at
            for at in dict.fromkeys(occurrences)
            if again or all(run.outcome not in done for run in self._attempts_at(record, at))
        ]
        heapify(due)
        self._last_backfill += 1
        state = RUNNING if due else BackfillState.DONE
        number = self._last_backfill
        stored = StoredBackfill(number, job.uid, max_concurrent, payload_json, len(due), state, due)
        self._tables.backfills[number] = stored
        return self.get_backfill(number)

    def get_backfill(self, number: int) -> Backfill | None:
        stored = self._tables.backfills.get(number)
        if stored is None:
            return None
        job = self._tables.jobs[stored.uid].job
        return Backfill(
            number=number,
            total=stored.total,
            done=stored.done,
            failed=stored.failed,
            state=stored.state,
            job_id=job.id,
            namespace=job.namespace,
        )

    def cancel_backfill(self, number: int, reason: str, now: Micros) -> Backfill | None:
        stored = self._tables.backfills.get(number)
        if stored is not None and stored.state is RUNNING:
            stored.state = BackfillState.CANCELLED
            stored.due.clear()
            for run in stored.held:
                self._tables.cancels.setdefault(run, CancelRequest(reason, now))
        return self.get_backfill(number)

    def claim_backfills(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], Micros | None]:
        name = self._require_node(terms.node)
        started = self._live_starts(now) if terms.group_rates else Counter()
        rooms = self._rooms(terms, started)
        is_held_up = False
        runs: list[ClaimedRun] = []
        for stored in self._tables.backfills.values():
            job = self._tables.jobs[stored.uid].job
            is_here = terms.handlers is None or job.handler in terms.handlers
            # A paused job holds its backfills.
            if stored.state is not RUNNING or not stored.due or job.state.phase is Phase.PAUSED or not is_here:
                continue
            key = group_key(job.namespace, job.group) or NO_GROUP
            room = int(min(terms.limit - len(runs), stored.max_concurrent - len(stored.held), rooms.of(key)))
            begun = self._begin(stored, job, max(room, 0), len(runs), now, terms)
            rooms.take(key, len(begun))
            is_held_up = is_held_up or rooms.of(key) <= 0
            for run in begun:
                row = row_of_claim(run, name)
                row.payload = stored.payload
                self._add_run(row)
                self._hold(run, terms.node, stored.number)
                stored.held.add(run.id)
            runs += begun
        for (key, _), count in self._count_starts(runs, terms.group_rates, now).items():
            started[key] += count
        return runs, self._next_start(started, terms.group_rates, now) if is_held_up and started else None

    def _begin(
        self, stored: StoredBackfill, job: Job, room: int, before: int, now: Micros, terms: ClaimTerms
    ) -> list[ClaimedRun]:
        """Take up to *room* occurrences of a backfill. *before* runs precede them."""
        first = self._tables.last_run + 1
        slots = float("inf") if terms.slots is None else terms.slots
        record = self._tables.jobs[job.uid]
        begun = []
        for place in range(min(room, len(stored.due))):
            at = heappop(stored.due)
            attempt = 1 + max((run.attempt for run in self._attempts_at(record, at)), default=0)
            queued = before + place >= slots
            begun.append(claimed_for_backfill(job, first + place, at, attempt, stored.payload, now, queued=queued))
        return begun

    def _end_for_backfills(self, ended: Sequence[EndedRun]) -> None:
        """Count how runs of backfills ended, and free them."""
        tables = self._tables
        backfills = {item.run.id: tables.owners[item.run.id].backfill or 0 for item in ended}
        running = {number for number in backfills.values() if tables.backfills[number].state is RUNNING}
        interruptions = {item.run.id: self._interruptions(item) for item in ended}
        told = endings(ended, backfills, running, interruptions)
        self._free(backfills)
        for number, at in told.again:
            heappush(tables.backfills[number].due, at)
        for number in set(backfills.values()):
            stored = tables.backfills[number]
            stored.done += told.done[number]
            stored.failed += told.failed[number]
            if stored.state is RUNNING and not stored.due and not stored.held:
                stored.state = BackfillState.DONE

    def _interruptions(self, item: EndedRun) -> int:
        """Return how often processes have died with this occurrence, if this one has."""
        if item.ending.outcome is not Outcome.INTERRUPTED:
            return 0
        attempts = self._attempts_at(self._tables.jobs[item.run.uid], item.run.scheduled_for)
        return 1 + sum(run.outcome == Outcome.INTERRUPTED for run in attempts)

    def _release_for_backfills(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims for backfills whose handlers never started."""
        tables = self._tables
        for run in runs:
            owner = tables.owners.get(run.id)
            if owner is not None and owner.backfill is not None:
                heappush(tables.backfills[owner.backfill].due, run.scheduled_for)
                self._free([run.id])
                self._delete_runs(tables.jobs[run.uid], {run.id})
