"""What the scheduler asks of a store.

A store keeps jobs, runs and nodes, and makes each change whole: all of it, or none. It decides nothing: where a
decision is needed inside a change, it calls the pure functions of `rules` or the function it was handed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeVar

from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun, RunRow
from scheduler_async.rules.terms import Rules, Transition
from scheduler_async.stores.copy_records import LeftOut, RuleOfCopy, Ruling, RunRecord
from scheduler_async.stores.messages import (
    Change,
    Claims,
    ClaimTerms,
    JobFilter,
    NodeIdentity,
    NodeRow,
    NodeStatus,
    RunFilter,
)
from scheduler_async.timekeeping.clock import Clock
from scheduler_async.timekeeping.instants import Micros


class Store(Protocol):
    """Where jobs, runs and nodes live. Every method is one transaction."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change it."""

    @property
    def clock(self) -> Clock | None:
        """The clock that all who share it go by; None if that is the machine's."""

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Call *listener* when others have changed something.

        With the moment at which it may be due and how many jobs are due then; or with None, if that may be any.

        It is for stores that hear of changes at once. Others are asked for their `version` now and then.
        """

    async def open(self) -> None:
        """Make it ready for use; `StoreError` if it cannot be."""

    async def close(self) -> None:
        """Let go of it."""

    async def change(self, changes: Sequence[Change], now: Micros) -> list[Transition | None]:
        """Carry out all *changes*, or none if one of them raises."""

    async def review(self, after: int, limit: int, now: Micros, decide: Callable[[Job], Job | None]) -> int | None:
        """Let *decide* say what becomes of jobs that wait for a moment later than *now*; None leaves one as it is.

        Up to *limit* at a time, by number, beyond *after*; returns where to go on, or None at the end.
        """

    async def remove(self, namespace: str, id: str, now: Micros, own_run: int | None = None) -> Job | None:
        """Remove a job, and return it as it was. Its rows in the run log stay, until `purge_removed`.

        A run in progress is recorded as cancelled, unless it is *own_run*, the run that removes its own job: that one
        goes on, and is recorded when it ends.
        """

    async def get(self, namespace: str, id: str) -> Job | None:
        """The job with this name."""

    async def list_jobs(self, wanted: JobFilter) -> list[Job]:
        """Jobs by their next run, those without one last."""

    async def list_runs(self, wanted: RunFilter) -> list[RunRow]:
        """Rows of the run log, newest first."""

    async def output_of(self, run: int) -> str | None:
        """What a run wrote; None if that was nothing, or if there is no such run."""

    async def running_by_group(self) -> dict[str, int]:
        """How many jobs of each group are claimed, by any node; by the keys that `group_key` makes."""

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        """Mark what is due as ours, in order, and write the rows of its runs. `NodeLost` if we are not a node."""

    async def count_due(self, now: Micros, most: int) -> int:
        """How many jobs are due and claimed by nobody, whatever they wait for; counted up to *most*."""

    async def earliest_due(self, now: Micros, terms: ClaimTerms) -> Micros | None:
        """Since when a job is due that *terms* let start, or None. It may overlook some behind a hundred that wait."""

    async def claim_one(
        self,
        namespace: str,
        id: str,
        payload_json: str | None,
        now: Micros,
        *,
        node: int,
        queued: bool,
    ) -> ClaimedRun | Job | None:
        """Mark one job as ours, whatever its schedule; the job if it is claimed already, None if there is none."""

    async def start(self, runs: Sequence[ClaimedRun], now: Micros) -> set[int]:
        """Mark queued runs as running; return the ids of those that are still ours."""

    async def release(self, runs: Sequence[ClaimedRun]) -> None:
        """Undo claims whose handlers never started. An occurrence that will not run now leaves a row."""

    async def finish(self, ended: Sequence[EndedRun], rules: Rules) -> list[Transition | None]:
        """Record how runs ended and what comes next; None for those that are no longer ours."""

    async def join(self, identity: NodeIdentity, now: Micros) -> int:
        """Become a node; return its number."""

    async def beat(self, node: int) -> list[NodeRow]:
        """Show that *node* lives, and return all nodes, with those that have claims but no row.

        Owners without a row are left out if none of their claims can be read: there is nothing to recover. `NodeLost`
        if *node* has no row any more.
        """

    async def held(self, node: int) -> set[int]:
        """The ids of the runs that *node* has claimed and not finished."""

    async def leave(self, node: int) -> None:
        """Stop being a node."""

    async def nodes(self) -> list[NodeStatus]:
        """All nodes, also those that died without a word, by when they joined. Whoever asks need not be one."""

    async def recover(self, dead: Sequence[NodeRow], now: Micros, rules: Rules) -> list[tuple[Transition, ClaimedRun]]:
        """Record the runs of nodes that died as interrupted, unless they beat meanwhile, and forget the nodes.

        A claim that cannot be read is left alone, unless its job was removed.
        """

    async def interrupt_unknown(
        self, node: int, known: Collection[int], now: Micros, rules: Rules
    ) -> list[tuple[Transition, ClaimedRun]]:
        """Record claims of *node* that are not among *known* as interrupted: their answer was lost on the way."""

    async def disable_without_user(self, reason: str, now: Micros) -> list[Job]:
        """Disable every job that has no user, as by hand: runs in progress go on. Return the jobs."""

    async def overgrown(self, uids: Sequence[int], keep: int) -> list[int]:
        """Which of these jobs have more than *keep* rows."""

    async def purge_runs(self, uids: Sequence[int], keep: int, now: Micros) -> None:
        """Forget all but the newest *keep* rows of these jobs, and but those about a moment later than *now*."""

    async def purge_removed(self, before: Micros, limit: int) -> int:
        """Forget the runs of up to *limit* jobs that were removed before a moment; return how many jobs that were."""

    async def purge_disabled(self, before: Micros, limit: int) -> list[Job]:
        """Forget up to *limit* jobs that were disabled before a moment; return them."""

    async def count(self) -> tuple[int, int]:
        """How many jobs there are, and how many runs that have ended."""

    async def read_jobs(self, after: int, limit: int) -> list[Job | LeftOut]:
        """Up to *limit* jobs as they are kept, by number, beyond the number *after*; or why one cannot be read."""

    async def read_runs(self, after: int, limit: int) -> list[RunRecord | LeftOut]:
        """Up to *limit* runs that have ended, by number, beyond the number *after*; or why one cannot be read."""

    async def write_jobs(self, jobs: Sequence[Job], rule: RuleOfCopy) -> list[Ruling]:
        """Let *rule* say what becomes of each, given the one of that name that is here, and write what it wants."""

    async def write_runs(self, runs: Sequence[RunRecord]) -> int:
        """Add those of *runs* whose jobs are here and which are not; return how many that were.

        One is here if it has the same job, scheduled_for, attempt, trigger and claimed_at; or if it is another row of
        an attempt, not by hand, at the same occurrence: of that there is one. New ones are numbered in their order.
        """

    async def version(self) -> int:
        """A number that changes when another process has changed the store."""

    async def check(self) -> None:
        """`StoreError` if the store is not what it was: its file replaced, for one."""


Operation = TypeVar("Operation", bound=Callable[..., object])


def documented(operation: Operation, transaction: Callable[..., object]) -> Operation:
    """Give the *operation* that a store makes of a *transaction* its name, and the docstring that it has here."""
    operation.__name__ = transaction.__name__
    operation.__doc__ = getattr(Store, transaction.__name__).__doc__
    return operation
