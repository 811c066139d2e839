"""Log handlers, observers and exceptions of the user are called without a lock of the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from scheduler_async import At, Every, Manual, Retry, Scheduler, SQLiteStore, StoreError
from scheduler_async.jobs.events import Event
from scheduler_async.jobs.history import NO_ACTOR, Actor
from scheduler_async.jobs.run import Ending, Run
from scheduler_async.logs import say
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.terms import Transition
from scheduler_async.stores.messages import Change, Claims, ClaimTerms, NodeIdentity, NodeRow
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import Micros
from tests.cast import NOON, NewScheduler


class Listener(logging.Handler):
    """A log handler, an observer and the author of an exception, who notes which locks are held when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: Scheduler | None = None
        self.heard_of: list[str] = []
        self.held: list[tuple[str, list[str]]] = []

    def listen_to(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        scheduler._engine.events.observers.append(self)

    def note(self, what: str) -> None:
        assert self.scheduler is not None
        locks = vars(self.scheduler._engine.locks)
        self.heard_of.append(what)
        if held := [name for name, lock in locks.items() if lock.locked()]:
            self.held.append((what, held))

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.getMessage())

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        self.note("a run begins")
        return lambda _ending, _error: self.note("a run ends")

    def heard(self, event: Event) -> None:
        self.note(event.kind.value)

    def has_heard(self, words: str) -> bool:
        return any(words in what for what in self.heard_of)


@pytest.fixture
def listener() -> Iterator[Listener]:
    logger, listener = logging.getLogger("scheduler_async"), Listener()
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    yield listener
    logger.setLevel(level)
    logger.removeHandler(listener)


class OddError(StoreError):
    """An exception whose text is made when somebody asks for it."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def __str__(self) -> str:
        self._listener.note("the text of an exception")
        return "odd"


class TalkingStore(SQLiteStore):
    """A store that logs what it does, cannot be reached for a while, and loses an answer."""

    listener: Listener
    is_deaf = False
    loses_claims = False

    async def open(self) -> None:
        await super().open()
        say(logging.WARNING, "opened")

    async def change(
        self, changes: Sequence[Change], now: Micros, by: Actor = NO_ACTOR, *, quota: Quota | None = None
    ) -> list[Transition | None]:
        say(logging.WARNING, "changed")
        return await super().change(changes, now, by, quota=quota)

    async def claim_due(self, now: Micros, terms: ClaimTerms) -> Claims:
        say(logging.WARNING, "claimed")
        claims = await super().claim_due(now, terms)
        if self.loses_claims:
            self.loses_claims = False
            raise StoreError("The answer was lost.")
        return claims

    async def join(self, identity: NodeIdentity, now: Micros, handlers: Sequence[str] | None = None) -> int:
        self._fail()
        return await super().join(identity, now, handlers)

    async def beat(self, node: int) -> list[NodeRow]:
        self._fail()
        return await super().beat(node)

    def _fail(self) -> None:
        if self.is_deaf:
            raise OddError(self.listener)


@pytest.fixture
def store(path: Path, listener: Listener) -> TalkingStore:
    store = TalkingStore(path)
    store.listener = listener
    return store


@pytest.fixture
def idle(new_scheduler: NewScheduler, store: TalkingStore, listener: Listener) -> Scheduler:
    scheduler = new_scheduler(store, purge_disabled_after="1d")
    listener.listen_to(scheduler)
    return scheduler


async def test_a_claim_and_the_end_of_a_run(idle: Scheduler, listener: Listener) -> None:
    @idle.handler("fail")
    async def fail() -> None:
        raise OddError(listener)

    events = idle.events()  # only readers hear of runs that start
    await idle.add_job(At(NOON), handler="fail", id="a", retry=Retry.none())
    await idle.run_pending()
    await events.aclose()

    for what in ("claimed", "run_started", "a run begins", "a run ends", "run_finished", "the text of an exception"):
        assert listener.has_heard(what), what
    assert listener.has_heard("of default/a: error in")
    assert listener.held == []


async def test_runs_that_were_claimed_although_the_answer_was_lost(
    idle: Scheduler, store: TalkingStore, listener: Listener
) -> None:
    await idle.add_job(At(NOON), handler="work", id="a")
    store.loses_claims = True
    with pytest.raises(StoreError):
        await idle.run_pending()

    await idle.run_pending()

    assert listener.has_heard("was interrupted")
    assert listener.held == []


async def test_an_edit(idle: Scheduler, listener: Listener) -> None:
    await idle.add_job(Every("1h"), handler="work", id="a")
    await idle.update_job("a", name="new")
    await idle.pause_job("a")
    await idle.resume_job("a")
    await idle.remove_job("a")

    for what in ("changed", "added", "updated", "paused", "resumed", "removed"):
        assert listener.has_heard(what), what
    assert listener.held == []


async def test_start_and_stop(idle: Scheduler, store: TalkingStore, clock: VirtualClock, listener: Listener) -> None:
    @idle.job(Manual(), id="declared")
    async def declared() -> None: ...

    await idle.start()
    await clock.advance("20h")
    await idle.stop()

    for what in ("opened", "added", "started", "stopped", "Scheduler started", "Scheduler stopped"):
        assert listener.has_heard(what), what
    assert listener.held == []


async def test_a_last_event_reaches_readers_before_their_stream_ends(idle: Scheduler) -> None:
    await idle.start()
    events = idle.events()

    await idle.stop()

    assert [event.kind.value async for event in events] == ["stopped"]


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_node_that_joins_again(
    idle: Scheduler, store: TalkingStore, clock: VirtualClock, listener: Listener
) -> None:
    """While it tries, log handlers hear of each try."""
    await idle.start()
    store.is_deaf = True
    await clock.advance("1m")
    heard_meanwhile = list(listener.heard_of)
    store.is_deaf = False
    await clock.advance("1m")

    told = ("lost its lease", "Cannot join the store; trying again in 1 s: odd", "This is now node")
    assert any(told[1] in what for what in heard_meanwhile)
    assert all(map(listener.has_heard, told))
    # Other lines may be delivered meanwhile, by tasks that do not hold the lock.
    under_lock = [what for what, held in listener.held if "rejoining" in held]
    assert not [what for what in under_lock if any(words in what for words in told)]
