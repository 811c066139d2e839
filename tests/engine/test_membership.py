"""This node shows that it lives, notices who does not, and joins again when others take it for dead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler_async import At, Outcome, SchedulerError, SQLiteStore, StoreError
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.membership import Membership
from scheduler_async.outbox import QuietLock
from scheduler_async.rules.terms import Transition
from scheduler_async.running.active_run import ActiveRun, Stage
from scheduler_async.stores import liveness
from scheduler_async.stores.liveness import BEAT, LEASE, MARGIN
from scheduler_async.stores.messages import Claims, NodeLost, NodeRow
from scheduler_async.testing import VirtualClock
from tests.cast import NOON, NewScheduler
from tests.engine.parts import Parts, active_run, claimed_run, new_job

OWN, OTHER = 5, 6


class FakeRunner:
    """The runs there are, and those that are not ours any more."""

    def __init__(self) -> None:
        self.runs: list[ActiveRun] = []
        self.disowned: list[ActiveRun] = []
        self.stopping = asyncio.Event()

    def __iter__(self) -> Iterator[ActiveRun]:
        return iter(self.runs)

    def disown(self, active: ActiveRun) -> None:
        self.disowned.append(active)


class FakeRecorder:
    """Has nothing to record."""

    async def record_all(self) -> None: ...


class Member:
    """A process that is a node of a fake store."""

    def __init__(self, parts: Parts) -> None:
        runner: Any = FakeRunner()
        recorder: Any = FakeRecorder()
        self.parts, self.runner = parts, runner
        self.ended = EndedRuns(parts.clock, parts.clock_watch, parts.agenda, parts.announcer)
        self.numbers = iter(range(OWN, 100))
        parts.store.answers |= {
            "join": lambda *_: next(self.numbers),
            "beat": [],
            "held": set(),
            "version": 1,
            "recover": [],
        }
        self.membership = Membership(
            parts.setting,
            QuietLock(parts.setting.outbox),
            parts.node,
            runner,
            self.ended,
            parts.agenda,
            parts.announcer,
            parts.clock_watch,
            parts.troubles,
            recorder,
            parts.tasks,
            parts.deciding,
            self.settle,
        )

    async def settle(self) -> None:
        """Nothing is unsure here."""


@pytest.fixture
def parts(clock: VirtualClock) -> Parts:
    return Parts(clock)


@pytest.fixture
async def member(parts: Parts) -> Member:
    member = Member(parts)
    await member.membership.join()
    parts.store.asked.clear()
    return member


async def test_a_node_trusts_itself_a_little_less_long_than_others_do(member: Member, parts: Parts) -> None:
    assert (parts.node.id, parts.node.has_joined) == (OWN, True)
    assert parts.node.trusted_until == parts.clock.monotonic() + LEASE - MARGIN


async def test_in_a_store_of_this_process_alone_no_other_node_can_take_it_for_dead(parts: Parts) -> None:
    parts.store.is_shared = False

    await Member(parts).membership.join()

    assert parts.node.trusted_until == float("inf")


async def test_a_node_whose_first_beat_fails_has_not_joined(parts: Parts) -> None:
    member = Member(parts)
    parts.store.answers["beat"] = StoreError("It is gone.")

    with pytest.raises(StoreError):
        await member.membership.join()

    assert (parts.node.id, parts.node.has_joined) == (None, False)


async def test_runs_of_a_dead_node_are_recorded_and_announced(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "is_gone", lambda identity: True)
    member = Member(parts)
    dead = NodeRow.missing(OTHER, "gone")
    parts.store.answers |= {"beat": [dead], "recover": [(Transition(new_job()), claimed_run(3))]}
    parts.agenda.is_stale = False

    await member.membership.join()

    recovered = [args[0] for name, args in parts.store.asked if name == "recover"]
    assert recovered == [[dead]]
    assert parts.listener.kinds == ["run_finished"]
    assert parts.agenda.is_stale


async def test_a_node_beats_now_and_then(member: Member, parts: Parts, clock: VirtualClock) -> None:
    watching = asyncio.create_task(member.membership.keep_watch(1, asyncio.Event()))

    await clock.advance("1m")
    watching.cancel()

    assert abs(parts.store.questions().count("beat") - 60 / BEAT) <= 1
    assert parts.node.is_trusted()


async def test_a_change_of_another_process_wakes_the_loop_and_ends_what_was_taken(
    member: Member, parts: Parts, clock: VirtualClock
) -> None:
    held, taken, waiting = (active_run(number, stage=Stage.RUNNING) for number in (1, 2, 3))
    waiting.stage = Stage.STARTING  # whether it is still ours is asked when it begins
    member.runner.runs = [held, taken, waiting]
    parts.store.answers |= {"version": 2, "held": {1}}
    parts.agenda.is_stale = False
    watching = asyncio.create_task(member.membership.keep_watch(1, asyncio.Event()))

    await clock.advance("1s")
    watching.cancel()

    assert parts.agenda.is_stale
    assert member.runner.disowned == [taken]


class Late(SQLiteStore):
    """A store that commits the first claim long after it was given up, and locks what it claims until then."""

    given_up: tuple[Any, ...] = ()
    is_committed = False

    async def claim_due(self, *terms: Any) -> Claims:
        if self.is_committed:
            return await super().claim_due(*terms)
        if self.given_up:
            return Claims()
        self.given_up = terms
        raise StoreError("It did not answer.")

    async def commit(self) -> None:
        self.is_committed = True
        await super().claim_due(*self.given_up)


@pytest.mark.usefixtures("leases_in_virtual_time")
async def test_a_claim_that_is_committed_long_after_its_timeout_is_settled(
    path: Path, clock: VirtualClock, new_scheduler: NewScheduler
) -> None:
    """A server may wait for a lock or for a standby, while the node looks for the claim and finds nothing."""
    store = Late(path)
    scheduler = new_scheduler(store)
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await scheduler.start()
    await clock.advance("1m")
    assert await scheduler.run_log("a") == []

    await store.commit()
    await clock.advance("20s")

    assert [row.outcome for row in await scheduler.run_log("a")] == [Outcome.SUCCESS, Outcome.INTERRUPTED]


async def test_a_node_that_lost_its_lease_lets_go_of_its_runs_and_joins_anew(
    member: Member, parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scheduler_async")
    running, ended = active_run(1, stage=Stage.RUNNING), active_run(2, stage=Stage.ENDED)
    member.runner.runs = [running, ended]
    member.ended.unrecorded = [ended]

    await member.membership.rejoin()

    assert parts.node.id == OWN + 1
    assert member.runner.disowned == [running], "how the other one ended may still be recorded"
    assert parts.troubles.works_again.is_set()
    assert "lost its lease" in caplog.text


async def test_two_tasks_that_notice_it_join_once(member: Member, parts: Parts) -> None:
    await asyncio.gather(member.membership.rejoin(), member.membership.rejoin())

    assert parts.store.questions().count("join") == 1


async def test_while_the_store_is_gone_one_of_the_tasks_tries_every_second(
    member: Member, parts: Parts, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    parts.store.answers["join"] = StoreError("It is gone.")
    rejoining = [asyncio.create_task(member.membership.rejoin()) for _ in range(2)]

    await clock.advance("4s")
    failed = parts.store.questions().count("join")
    parts.store.answers["join"] = OWN + 1
    await clock.advance("2s")

    assert failed == 5
    assert all(task.done() for task in rejoining)
    lines = [record for record in caplog.records if "Cannot join the store" in record.getMessage()]
    assert [bool(record.exc_info) for record in lines] == [True, *[False] * (failed - 1)]


async def test_a_scheduler_that_stops_does_not_join_again(member: Member, parts: Parts) -> None:
    member.runner.stopping.set()

    await member.membership.rejoin()

    assert "join" not in parts.store.questions()
    assert parts.node.id is None


async def test_work_that_needs_a_node_is_done_again_after_joining(member: Member) -> None:
    done: list[int | None] = []

    async def work() -> str:
        done.append(member.parts.node.id)
        if len(done) == 1:
            raise NodeLost
        return "done"

    assert await member.membership.as_node(work) == "done"
    assert done == [OWN, OWN + 1]


async def test_work_that_loses_its_node_again_is_given_up(member: Member) -> None:
    async def work() -> None:
        raise NodeLost

    with pytest.raises(SchedulerError, match="cannot stay connected"):
        await member.membership.as_node(work)
