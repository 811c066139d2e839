"""The pages for operators. All rows are looked at, which takes about a microsecond each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import RunRow
from scheduler_async.stores.memory.history import HistoryWork
from scheduler_async.stores.memory.run_log import RunLogWork
from scheduler_async.stores.messages import ChangeFilter, RunFilter
from scheduler_async.stores.paging.numbers import spread
from scheduler_async.stores.searches import (
    PROGRESS,
    TALLY_KEYS,
    WINDOW,
    ChangeSearch,
    Found,
    JobCounts,
    JobSearch,
    Position,
    RunSearch,
    Tallied,
    TallySearch,
    counts_of,
    first_of,
    is_wanted_change,
    is_wanted_run,
    mark_of,
    page_of_jobs,
    page_of_tally,
)
from scheduler_async.timekeeping.instants import HOUR, Micros


class PageWork(RunLogWork, HistoryWork):
    """The transactions for pages. For their purpose, see `Store`."""

    def jobs_page(self, wanted: JobSearch) -> Found[Job]:
        return page_of_jobs(self._jobs_of(wanted.namespaces), wanted)

    def _jobs_of(self, namespaces: Collection[str] | None) -> Iterator[Job]:
        for namespace in (None,) if namespaces is None else namespaces:
            yield from (record.job for record in self._all_named(namespace))

    def runs_page(self, wanted: RunSearch) -> Found[RunRow]:
        before = None if wanted.after is None else int(wanted.after[0])
        only = next(iter(wanted.namespaces)) if wanted.id is not None and wanted.namespaces else None
        runs = self._tables.runs
        numbers = self._newest(RunFilter(id=wanted.id, namespace=only))
        found = (
            self._row(runs[number]) for number in numbers if number in runs and (before is None or number < before)
        )
        page = islice((row for row in found if is_wanted_run(row, wanted)), wanted.limit + 1)
        return first_of([((row.id,), row) for row in page], wanted.limit)

    def changes_page(self, wanted: ChangeSearch) -> Found[ChangeRow]:
        before = None if wanted.after is None else int(wanted.after[0])
        only = next(iter(wanted.namespaces)) if wanted.id is not None and wanted.namespaces else None
        numbers = self._newest_changes(ChangeFilter(id=wanted.id, namespace=only, since=wanted.since))
        found = (self._change(number) for number in numbers if before is None or number < before)
        page = islice((row for row in found if is_wanted_change(row, wanted)), wanted.limit + 1)
        return first_of([((row.number,), row) for row in page], wanted.limit)

    def recent_runs(self, names: Sequence[tuple[str, str]], n: int) -> list[list[RunRow]]:
        return [self.list_runs(RunFilter(namespace=one[0], id=one[1], limit=n))[::-1] for one in names]

    def count_jobs(self, namespaces: frozenset[str] | None, now: Micros) -> JobCounts:
        lately = self._tallied(now - WINDOW, now, namespaces)
        left_out = sum(n for (_, _, outcome, _), n in lately if outcome == Outcome.SKIPPED.value)
        return counts_of(self._jobs_of(namespaces), left_out, now)

    def sample_jobs(self, namespaces: frozenset[str] | None, now: Micros, most: int) -> tuple[list[Job], float]:
        jobs = [*self._jobs_of(namespaces)]
        some = [jobs[place] for place in spread(len(jobs), most)]
        return some, len(jobs) / len(some) if some else 1.0

    def tally(self, wanted: TallySearch) -> Found[Tallied]:
        places = [TALLY_KEYS.index(name) for name in wanted.by]
        sums: Counter[Position] = Counter()
        for key, n in self._tallied(wanted.since, wanted.until, wanted.namespaces):
            sums[tuple(key[place] for place in places)] += n
        known = [(key, n) for key, n in sums.items() if n > 0]
        following = sorted(item for item in known if wanted.after is None or item[0] > wanted.after)
        return page_of_tally(following, wanted)

    def _tallied(
        self, since: Micros, until: Micros, namespaces: frozenset[str] | None
    ) -> Iterator[tuple[tuple[Micros, str, str, str], int]]:
        for key, n in self._tables.tally.items():
            hour, namespace, outcome, _ = key
            is_wanted = outcome != PROGRESS and (namespaces is None or namespace in namespaces)
            if is_wanted and since - since % HOUR <= hour <= until:
                yield key, n

    def mark(self, namespaces: frozenset[str] | None, now: Micros) -> str:
        tables = self._tables
        if namespaces is None:
            return mark_of([tables.last_run, tables.last_change, sum(tables.tally.values())])
        records = [record for namespace in sorted(namespaces) for record in self._all_named(namespace)]
        last = [(record.job.uid, *record.runs[-1:], *record.changes[-1:]) for record in records]
        return mark_of([last, sum(n for (_, namespace, *_), n in tables.tally.items() if namespace in namespaces)])
