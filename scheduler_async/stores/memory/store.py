"""The store in memory. `work` contains its transactions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from scheduler_async.errors import StoreError
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.memory.work import Work
from scheduler_async.stores.messages import NodeIdentity, NodeRow
from scheduler_async.stores.protocol import documented
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.instants import Micros

P = ParamSpec("P")
T = TypeVar("T")

Transaction: TypeAlias = Callable[Concatenate[Work, P], T]
Operation: TypeAlias = Callable[Concatenate["MemoryStore", P], Coroutine[Any, Any, T]]


def performing(transaction: Transaction[P, T]) -> Operation[P, T]:
    """Make an operation of the store from a *transaction*."""

    async def operation(store: MemoryStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return transaction(store._open_work(), *args, **kwargs)

    return documented(operation, transaction)


class MemoryStore:
    """Stores jobs in the memory of this process. `Scheduler(":memory:")` makes one.

    The jobs remain as long as the store itself does: a scheduler that is stopped and started again continues with them.
    """

    def __init__(self) -> None:
        self._work = Work()
        self._is_open = False
        self._clock = SystemClock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    def _open_work(self) -> Work:
        if not self._is_open:
            raise StoreError("The store in memory is closed.")
        return self._work

    @property
    def is_shared(self) -> bool:
        """Whether other processes can change the store: never."""
        return False

    @property
    def clock(self) -> None:
        """None: there is no other clock than that of the machine."""
        return None

    @property
    def decisions(self) -> Decisions:
        """Decisions that transactions need, and that are made outside of them."""
        return self._work.decisions

    def on_change(self, listener: Callable[[Micros | None, int], object]) -> None:
        """Ignore *listener*, since no other process changes the store."""

    async def ending_of(self, _run: int) -> None:
        """Return None: no other process ends runs."""

    async def open(self) -> None:
        """Open the store, as it was when it was closed."""
        self._is_open = True
        self._work.reconsider()

    async def close(self) -> None:
        """Close the store. It keeps its jobs."""
        self._is_open = False

    # -------------------------------------------------------- operations: for their purpose, see `Store`

    change = performing(Work.change)
    review = performing(Work.review)
    remove = performing(Work.remove)
    get = performing(Work.get)
    list_jobs = performing(Work.list_jobs)
    list_runs = performing(Work.list_runs)
    runs_about = performing(Work.runs_about)
    list_changes = performing(Work.list_changes)
    jobs_page = performing(Work.jobs_page)
    runs_page = performing(Work.runs_page)
    changes_page = performing(Work.changes_page)
    recent_runs = performing(Work.recent_runs)
    count_jobs = performing(Work.count_jobs)
    sample_jobs = performing(Work.sample_jobs)
    tally = performing(Work.tally)
    mark = performing(Work.mark)
    details_of = performing(Work.details_of)
    output_of = performing(Work.output_of)
    request_start = performing(Work.request_start)
    request_cancel = performing(Work.request_cancel)
    report = performing(Work.report)
    running_by_group = performing(Work.running_by_group)
    rate_free_at = performing(Work.rate_free_at)
    settle_starts = performing(Work.settle_starts)

    claim_due = performing(Work.claim_due)
    count_due = performing(Work.count_due)
    earliest_due = performing(Work.earliest_due)
    claim_one = performing(Work.claim_one)
    claim_requested = performing(Work.claim_requested)
    add_backfill = performing(Work.add_backfill)
    get_backfill = performing(Work.get_backfill)
    cancel_backfill = performing(Work.cancel_backfill)
    claim_backfills = performing(Work.claim_backfills)
    start = performing(Work.start)
    release = performing(Work.release)
    finish = performing(Work.finish)

    async def join(self, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None) -> int:
        """Register a node with the names of its *handlers*; None means any name. Return its number."""
        return self._open_work().join(identity, now, self._clock.micros(), handlers)

    async def beat(self, node: int) -> list[NodeRow]:
        """Record a heartbeat of *node*, and return all nodes."""
        return self._open_work().beat(node, self._clock.micros())

    note_handlers = performing(Work.note_handlers)
    held = performing(Work.held)
    cancels = performing(Work.cancels)
    leave = performing(Work.leave)
    nodes = performing(Work.nodes)
    node_lives = performing(Work.node_lives)
    lives_about = performing(Work.lives_about)
    recover = performing(Work.recover)
    interrupt_unknown = performing(Work.interrupt_unknown)

    disable_without_user = performing(Work.disable_without_user)
    resume_paused = performing(Work.resume_paused)
    overgrown = performing(Work.overgrown)
    purge_runs = performing(Work.purge_runs)
    purge_removed = performing(Work.purge_removed)
    purge_disabled = performing(Work.purge_disabled)
    purge_history = performing(Work.purge_history)

    count = performing(Work.count)
    read_jobs = performing(Work.read_jobs)
    read_runs = performing(Work.read_runs)
    write_jobs = performing(Work.write_jobs)
    write_runs = performing(Work.write_runs)
    read_changes = performing(Work.read_changes)
    write_changes = performing(Work.write_changes)

    async def version(self) -> int:
        """Return a number that changes when another process has changed the store: always the same."""
        return 0

    async def check(self) -> None:
        """Do nothing: memory is not replaced."""
