"""The past: changes of jobs and the lives of nodes. Other modules write both, in the transactions that make them."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from scheduler_async.jobs.history import Action, ChangeRow
from scheduler_async.stores.change_codec import read_change
from scheduler_async.stores.memory.nodes import NodeWork
from scheduler_async.stores.memory.records import StoredLife
from scheduler_async.stores.memory.requests import RequestWork
from scheduler_async.stores.messages import ChangeFilter, NodeLife
from scheduler_async.stores.row_range import CHANGES
from scheduler_async.timekeeping.instants import Micros

TRIGGERS_AND_CANCELS = (Action.TRIGGER, Action.CANCEL)


class HistoryWork(RequestWork, NodeWork):
    """The transactions about the past. For their purpose, see `Store`."""

    def list_changes(self, wanted: ChangeFilter) -> list[ChangeRow]:
        return [self._change(number) for number in islice(self._newest_changes(wanted), wanted.limit)]

    def _newest_changes(self, wanted: ChangeFilter) -> Iterator[int]:
        """Iterate over the numbers of the changes that are wanted, newest first."""
        tables, since = self._tables, wanted.since
        numbers = reversed(tables.changes)
        if wanted.namespace is not None and wanted.id is not None:
            record = self._find(wanted.namespace, wanted.id)
            gone = tables.removed.get((wanted.namespace, wanted.id), ())
            of_these = [record] if record is not None else gone
            numbers = iter(sorted((number for one in of_these for number in one.changes), reverse=True))
        for number in numbers:
            change = tables.changes[number]
            if since is not None and change.at < since - CHANGES.disorder:
                return
            job = tables.jobs[change.uid].job
            if (
                (since is None or change.at >= since)
                and wanted.namespace in (None, job.namespace)
                and not (wanted.decisions_only and change.action in TRIGGERS_AND_CANCELS)
            ):
                yield number

    def _change(self, number: int) -> ChangeRow:
        stored = self._tables.changes[number]
        job = self._tables.jobs[stored.uid].job
        columns = number, job.namespace, job.id, *stored[1:-1], stored.content
        return read_change(columns)[0]

    def node_lives(self, since: Micros | None = None, limit: int | None = None) -> list[NodeLife]:
        lives = self._lives
        running = sorted((number for number, life in lives.items() if life.until is None), reverse=True)
        ended = {
            number: until
            for number, life in lives.items()
            if (until := life.until) is not None and (since is None or until >= since)
        }
        found = [*running, *sorted(ended, key=lambda number: (ended[number], number), reverse=True)][:limit]
        return [self._life(number) for number in sorted(found, reverse=True)]

    def lives_about(self, start: Micros, end: Micros) -> list[NodeLife]:
        lives = self._lives
        found = {number for number, life in lives.items() if _includes(life, start, end)}
        before = (number for number, life in lives.items() if life.until is not None and life.until < start)
        after = (number for number, life in lives.items() if life.since >= end)
        found |= set(nsmallest(1, before, key=lambda number: -(lives[number].until or 0)))
        found |= set(nsmallest(1, after, key=lambda number: lives[number].since))
        return [self._life(number) for number in sorted(found, reverse=True)]

    def _life(self, number: int) -> NodeLife:
        life = self._lives[number]
        return NodeLife(
            identity=life.identity,
            since=life.since,
            until=life.until,
            how=life.how,
            is_there=number in self._nodes,
            recorded_at=None if life.until is not None else self._recorded_at(life.identity.name),
        )

    def purge_history(self, before: Micros, limit: int) -> int:
        tables, lives = self._tables, self._lives
        changes = [number for number in islice(tables.changes, limit) if tables.changes[number].at < before]
        for number in changes:
            tables.jobs[tables.changes.pop(number).uid].changes.remove(number)
        ended = (number for number, life in lives.items() if life.until is not None and life.until < before)
        gone = nsmallest(limit, ended, key=lambda number: lives[number].until or 0)
        for number in gone:
            del lives[number]
        hours = nsmallest(limit, (key for key in tables.tally if key[0] < before))
        for key in hours:
            del tables.tally[key]
        return max(len(changes), len(gone), len(hours))


def _includes(life: StoredLife, start: Micros, end: Micros) -> bool:
    return life.until is None or (life.until >= start and life.since < end)
