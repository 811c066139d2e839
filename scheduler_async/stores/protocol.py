"""The interface of a store.

A store keeps jobs, runs and nodes, and makes each change atomic. It contains no rules: where a change needs a decision,
the store calls the pure functions of `rules`, or the function that it was given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.history import NO_ACTOR, Actor, ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun, RunRow
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.rates import NO_RATES, Rate, Rates, Settlement
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.copy_records import ChangeCopy, LeftOut, RuleOfCopy, Ruling, RunRecord
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import (
    AlreadyRequested,
    Cancellation,
    Change,
    ChangeFilter,
    Claims,
    ClaimTerms,
    JobFilter,
    NodeIdentity,
    NodeLife,
    NodeRow,
    NodeStatus,
    Report,
    RunDetails,
    RunFilter,
)
from scheduler_async.stores.searches import ChangeSearch, Found, JobCounts, JobSearch, RunSearch, Tallied, TallySearch
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros


class Store(Protocol):
    """Stores jobs, runs and nodes. Every method is one transaction."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change the store."""

    @property
    def clock(self) -> Clock | None:
        """The clock that all nodes of the store use. None means the clock of the machine."""

    @property
    def decisions(self) -> Decisions:
        """Decisions that transactions need, and that are made outside of them. See `stores/decided.py`."""

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Call *listener* when another process has changed the store.

        The arguments are the time at which jobs may be due, and their number. A time of None means any time.

        Only some stores notice changes at once. The engine polls the `version` of the others.
        """

    async def ending_of(self, run: int) -> asyncio.Event | None:
        """Return an event that is set when another process has ended *run*, if that process hears of this call.

        Return None if the store cannot tell. In any case, look at the run now and then.
        """

    async def open(self) -> None:
        """Open the store. Raise `StoreError` if that fails."""

    async def close(self) -> None:
        """Close the store."""

    async def change(
        self, changes: Sequence[Change], now: Micros, by: Actor = NO_ACTOR, *, quota: Quota | None = None
    ) -> list[Transition | None]:
        """Make all *changes*, or none if one of them raises. Record each, with its actor *by*.

        If they add jobs, call `Quota.check_jobs` of *quota* with the number of jobs in its namespace. Transactions with
        a quota of the same namespace do not overlap, so that no two processes exceed it together.
        """

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        """Call *decide* for jobs whose next run is after *now*, and store the results. None leaves a job unchanged.

        Review up to *limit* jobs with numbers above *after*. Return the number to continue from, or None at the end.
        """

    async def remove(
        self,
        namespace: str,
        id: str,
        now: Micros,
        own_run: int | None = None,
        by: Actor = NO_ACTOR,
        revision: int | None = None,
    ) -> Job | None:
        """Remove a job, and return it as it was. Its runs and changes remain until `purge_removed`.

        A run in progress is recorded as cancelled, unless it is *own_run*, the run that removes its own job. That run
        continues and is recorded when it ends. If the job has another *revision*, raise `JobChangedError`.
        """

    async def get(self, namespace: str, id: str) -> Job | None:
        """Return the job with this name."""

    async def list_jobs(self, wanted: JobFilter) -> list[Job]:
        """Return jobs, ordered by their next run. Jobs without one come last."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Return rows of the run log, newest first."""

    async def runs_about(self, uid: int, start: Micros, end: Micros) -> list[RunRow]:
        """Return the rows of a job about a time: attempts at occurrences from *start*, before *end*.

        Return also the last row of skipped occurrences that begins before *end* and was written at *start* or later,
        and the run of the same claim.
        """

    async def list_changes(self, wanted: ChangeFilter) -> list[ChangeRow]:
        """Return changes of jobs, newest first."""

    async def jobs_page(self, wanted: JobSearch) -> Found[Job]:
        """Return a page of jobs. Look at a limited number of rows, and raise `StoreBusyError` rather than take long."""

    async def runs_page(self, wanted: RunSearch) -> Found[RunRow]:
        """Return a page of the run log, newest first, in the same way."""

    async def changes_page(self, wanted: ChangeSearch) -> Found[ChangeRow]:
        """Return a page of changes of jobs, newest first, in the same way."""

    async def recent_runs(self, names: Sequence[tuple[str, str]], n: int) -> list[list[RunRow]]:
        """Return the last *n* rows of the run log of each job, oldest first. Names are a namespace and an id."""

    async def count_jobs(self, namespaces: frozenset[str] | None, now: Micros) -> JobCounts:
        """Return how many jobs there are in these namespaces, by what they do. None is all namespaces."""

    async def sample_jobs(self, namespaces: frozenset[str] | None, now: Micros, most: int) -> tuple[list[Job], float]:
        """Return up to *most* jobs, spread evenly over all, and how many jobs each of them stands for."""

    async def tally(self, wanted: TallySearch) -> Found[Tallied]:
        """Return a page of the numbers of runs that ended, in the order of what they are counted by."""

    async def mark(self, namespaces: frozenset[str] | None, now: Micros) -> str:
        """Return a text that changes when a run of these namespaces or one of their jobs changes in any process."""

    async def details_of(self, run: int) -> RunDetails:
        """Return the traceback of a run, and the payload that it got. Both are None if there is no such run."""

    async def output_of(self, run: int) -> str | None:
        """Return the output of a run. Return None if it has none, or if there is no such run."""

    async def request_start(
        self, namespace: str, id: str, payload_json: str | None, now: Micros, by: Actor = NO_ACTOR
    ) -> int | Job | AlreadyRequested | None:
        """Ask for a manual run of a job by any node that has its handler. Write its row, and return its id.

        Return the job itself if it is running, the other run if one is waiting, and None if the job is missing.
        """

    async def request_cancel(self, run: int, reason: str | None, now: Micros, by: Actor = NO_ACTOR) -> Cancellation:
        """Ask the node that has claimed a run to cancel it. Cancel a run that no node has taken up."""

    async def report(self, reports: Sequence[Report]) -> None:
        """Store the progress and the output of runs that have not ended."""

    async def running_by_group(self) -> dict[str, int]:
        """Return how many jobs of each group any node has claimed, by `group_key`."""

    async def rate_free_at(self, key: str, rate: Rate, now: Micros) -> Micros:
        """Return when *rate* allows the next start, from *now* on. Its starts are counted under *key*."""

    async def settle_starts(self, settled: Mapping[Settlement, int]) -> None:
        """Note when the handlers of counted starts have begun. The numbers say how many have begun so."""

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Claim due jobs in order, and write the rows of their runs. Raise `NodeLost` if this node has no row."""

    async def count_due(self, now: Micros, most: int) -> int:
        """Return how many jobs are due and not claimed, even if they wait for something. Count up to *most*."""

    async def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        """Return the earliest due time of a job that *terms* allow to start, or None.

        It may miss jobs behind 100 others.
        """

    async def claim_one(
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
        """Claim one job regardless of its schedule, and record its actor *by*. It counts for the rates of its group.

        Return the job itself if it is already claimed, None if it is missing.
        """

    async def claim_requested(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], bool]:
        """Claim runs that `request_start` has asked for, in order, regardless of schedules and group limits.

        Return also whether more of them wait for a run to end here or elsewhere. Raise `NodeLost` if this node has no
        row.
        """

    async def add_backfill(
        self,
        job: Job,
        occurrences: Sequence[Micros],
        payload_json: str | None,
        now: Micros,
        *,
        max_concurrent: int,
        again: bool,
    ) -> Backfill | None:
        """Add a backfill of *occurrences* of *job*, and return it. Return None if the job was removed meanwhile.

        Leave out occurrences that have succeeded, unless *again*.
        """

    async def get_backfill(self, number: int) -> Backfill | None:
        """Return the backfill with this *number*."""

    async def cancel_backfill(self, number: int, reason: str, now: Micros) -> Backfill | None:
        """Cancel a backfill, if it goes on, and its runs with it. Return it."""

    async def claim_backfills(self, now: Micros, terms: ClaimTerms) -> tuple[list[ClaimedRun], Micros | None]:
        """Claim runs of backfills, oldest occurrences first, within their limits and those of groups.

        Return also when the rate of a group allows more, if it holds them up. Raise `NodeLost` if this node has no row.
        """

    async def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        """Mark queued runs as running. Return the ids of those that this node still owns."""

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims whose handlers never started. An occurrence that will not run now gets a row."""

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        """Record how runs ended and what comes next. Return None for each run that this node no longer owns."""

    async def join(self, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None) -> int:
        """Register a node with the names of its *handlers*; None means any name. Return its number."""

    async def beat(self, node: int) -> list[NodeRow]:
        """Record a heartbeat of *node*. Return all nodes, and the owners of claims that have no row.

        Owners without a row are omitted if none of their claims can be read, because there is nothing to recover. Raise
        `NodeLost` if *node* has no row.
        """

    async def note_handlers(self, node: int, handlers: Sequence[str] | None) -> None:
        """Record the names of the handlers that *node* has now. None means any name."""

    async def held(self, node: int) -> set[int]:
        """Return the ids of the runs that *node* has claimed and not finished."""

    async def cancels(self, node: int) -> dict[int, str | None]:
        """Return the runs of *node* that it should cancel, with the reasons."""

    async def leave(self, node: int, now: Micros | None = None) -> None:
        """Remove a node that leaves at *now*."""

    async def nodes(self) -> list[NodeStatus]:
        """Return all nodes, including dead ones, ordered by when they joined. The caller need not be a node."""

    async def node_lives(self, since: Micros | None = None, limit: int | None = None) -> list[NodeLife]:
        """Return the lives of nodes, newest first: all of them, or those that did not end before *since*.

        With *limit*, return only so many: those that have not ended, then those that ended last.
        """

    async def lives_about(self, start: Micros, end: Micros) -> list[NodeLife]:
        """Return the lives of nodes, newest first, that include a time from *start*, before *end*.

        Return also the last one that ended before, the first one that began after, and those that have not ended. If
        very many include that time, some of them are enough.
        """

    async def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Transition, ClaimedRun]]:
        """Record the runs of *dead* nodes as interrupted, and remove the nodes. Spare a node with a new heartbeat.

        A run that a caller has asked to cancel is recorded as cancelled, and is not run again. The same applies to
        `interrupt_unknown`, to `release`, and to a `finish` with the outcome "cancelled".

        A claim that cannot be read stays unchanged, unless its job was removed.
        """

    async def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record claims of *node* that are not in *known* as interrupted.

        The store's answer to these claims was lost.
        """

    async def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        """Disable every job without a user, and return the jobs. Runs in progress continue."""

    async def resume_paused(self, now: Micros, limit: int) -> tuple[list[Transition], Micros | None]:
        """Resume up to *limit* jobs that were paused until a time that has come. Each resumes as of that time.

        Return the changes, and when the next pause ends.
        """

    async def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        """Return those of the jobs that have more than *keep* rows."""

    async def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        """Delete all but the newest *keep* rows of these jobs. Rows about a time after *now* remain."""

    async def purge_removed(self, before: Micros, limit: int) -> int:
        """Delete up to *limit* jobs that were removed before a time, with runs and changes. Return their number."""

    async def purge_disabled(
        self, before: Micros, limit: int, now: Micros, *, ended: bool, spared: Collection[tuple[str, str]] = ()
    ) -> list[Job]:
        """Remove up to *limit* jobs that were disabled before a time, and return them. Record the removals.

        *ended* chooses between jobs whose schedules have ended, and those that were disabled for another reason.
        Jobs with the names in *spared*, each a namespace and an id, remain.
        """

    async def purge_history(self, before: Micros, limit: int) -> int:
        """Delete up to *limit* changes, as many lives of nodes, and as many rows of the tally, from before a time.

        Return the largest of these numbers: there may be more if it is *limit*.
        """

    async def count(self) -> tuple[int, int]:
        """Return the number of jobs, and the number of ended runs."""

    async def read_jobs(self, after: int, limit: int) -> list[Job | LeftOut]:
        """Return up to *limit* jobs with numbers above *after*, or the reason why one cannot be read."""

    async def read_runs(self, after: int, limit: int) -> list[RunRecord | LeftOut]:
        """Return up to *limit* ended runs with numbers above *after*, or the reason why one cannot be read."""

    async def write_jobs(self, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        """Call *rule* for each job and the stored job with the same name, and write the results."""

    async def write_runs(self, runs: Sequence[RunRecord]) -> int:
        """Add those of *runs* whose jobs are stored here and which are not. Return how many were added.

        A run is stored here if a row has the same job, scheduled_for, attempt, trigger and claimed_at. An attempt at an
        occurrence that was not manual is also stored here if another row has that attempt, because there is only one.
        New runs get numbers in their order.
        """

    async def read_changes(self, after: int, limit: int) -> tuple[list[ChangeCopy], int | None]:
        """Return up to *limit* readable changes with numbers above *after*, and the last number that was looked at.

        The number is None if there are no more.
        """

    async def write_changes(self, changes: Sequence[ChangeCopy]) -> int:
        """Add those of *changes* whose jobs are stored here and which `missing_changes` finds. Return how many.

        New changes get numbers in their order, and name runs by their numbers here.
        """

    async def version(self) -> int:
        """Return a number that changes when another process has changed the store."""

    async def check(self) -> None:
        """Raise `StoreError` if the store is no longer the same, for example if its file was replaced."""


Operation = TypeVar("Operation", bound=Callable[..., object])


def documented(operation: Operation, transaction: Callable[..., object]) -> Operation:
    """Give an *operation* of a store the name of its *transaction*, and the docstring of this protocol."""
    operation.__name__ = transaction.__name__
    operation.__doc__ = getattr(Store, transaction.__name__).__doc__
    return operation
