"""Who lives, who is gone, and who may only be slow."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from scheduler_async import Manual, Scheduler
from scheduler_async.stores.liveness import BEAT, LEASE, MARGIN, Watch, is_gone, may_live, new_identity, node_of, retire
from scheduler_async.stores.messages import NodeIdentity, NodeRow, NodeStatus
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import SECOND
from tests.cast import NOON, NewScheduler, Worker


def row(number: int, identity: NodeIdentity, beat: int = 0, age: float | None = None) -> NodeRow:
    return NodeRow(id=number, identity=identity, beat=beat, since=0, age=age)


def elsewhere() -> NodeIdentity:
    return NodeIdentity(name="far:1:a", host="far", pid=1, process_start="1")


def test_a_node_of_this_process_lives_until_it_is_retired() -> None:
    """A scheduler that was abandoned in a living process is as gone as a dead one."""
    identity = new_identity()
    assert not is_gone(identity)

    retire(identity)

    assert is_gone(identity)


def test_a_process_that_ended_is_gone_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    identity = replace(new_identity(), pid=process.pid, process_start=start)
    assert not is_gone(identity)

    process.kill()
    process.communicate()

    assert is_gone(identity)


def test_a_zombie_is_gone_although_its_parent_has_not_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    identity = replace(new_identity(), pid=process.pid, process_start="some time ago")
    assert process.stdout is not None
    process.stdout.read()  # until it has closed everything
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert is_gone(identity)
    process.communicate()


def test_another_process_with_the_same_number_is_another_process() -> None:
    identity = new_identity()

    assert is_gone(replace(identity, pid=os.getppid(), process_start="before that"))
    assert is_gone(replace(identity, process_start="before that"))


def test_a_process_elsewhere_may_live() -> None:
    """Its number means nothing here: another machine, or another container."""
    assert not is_gone(elsewhere())


def test_a_node_elsewhere_is_dead_when_its_lease_has_run_out_by_our_own_clock() -> None:
    watch, node = Watch(), row(2, elsewhere())

    for seconds in (0.0, BEAT, 2 * BEAT, LEASE - 0.1):
        assert watch.find_dead([node], own=1, monotonic=100.0 + seconds) == []
    assert watch.find_dead([node], own=1, monotonic=100.0 + LEASE) == [node]


def test_who_could_not_look_gives_the_others_a_new_lease() -> None:
    """A store that was locked for long kept everybody from showing that they live."""
    watch, node = Watch(), row(2, elsewhere())
    watch.find_dead([node], own=1, monotonic=100.0)

    locked_until = 100.0 + 2 * LEASE
    for seconds in (0.0, BEAT, 2 * BEAT, LEASE - 0.1):
        assert watch.find_dead([node], own=1, monotonic=locked_until + seconds) == []
    assert watch.find_dead([node], own=1, monotonic=locked_until + LEASE) == [node]


def test_a_beat_renews_the_lease() -> None:
    watch = Watch()

    watch.find_dead([row(2, elsewhere(), beat=1)], own=1, monotonic=0.0)

    assert watch.find_dead([row(2, elsewhere(), beat=1)], own=1, monotonic=LEASE / 2) == []
    for seconds in (0.0, BEAT, 2 * BEAT, LEASE - 1):
        assert watch.find_dead([row(2, elsewhere(), beat=2)], own=1, monotonic=LEASE + seconds) == []


def test_a_node_does_not_judge_itself() -> None:
    identity = new_identity()
    retire(identity)

    assert Watch().find_dead([row(1, identity)], own=1, monotonic=0.0) == []
    assert Watch().find_dead([row(1, identity)], own=2, monotonic=0.0) == [row(1, identity)]


def test_someone_who_was_seen_is_noticed_missing() -> None:
    watch, identity = Watch(), new_identity()
    watch.find_dead([row(1, identity)], own=2, monotonic=0.0)
    assert not watch.someone_is_gone()

    retire(identity)

    assert watch.someone_is_gone()


def test_where_the_store_has_a_clock_a_newcomer_need_not_wait_for_a_whole_lease() -> None:
    """The store knows how long ago the last beat was; that it stays the last is seen soon enough."""
    watch = Watch()

    seen = [watch.find_dead([row(1, elsewhere(), age=LEASE + after)], 2, 1000 + after) for after in (0.0, BEAT)]
    dead = watch.find_dead([row(1, elsewhere(), age=LEASE + BEAT + MARGIN)], 2, 1000 + BEAT + MARGIN)

    assert seen == [[], []]
    assert [node.id for node in dead] == [1]


def test_a_clock_of_the_store_that_is_put_forward_makes_nobody_dead() -> None:
    """Whoever beats lives, however old its beat seems; and whoever has beaten lately has not lapsed."""
    watch = Watch()

    for number in range(10):
        assert not watch.find_dead([row(1, elsewhere(), beat=number, age=9e9)], 2, 1000 + number * BEAT)
    for number in range(10):
        assert not watch.find_dead([row(1, elsewhere(), beat=99, age=LEASE - 1)], 2, 1100 + number * BEAT)


# ---------------------------------------------------------------- what users see of them


def status(identity: NodeIdentity, age: float = 0.0) -> NodeStatus:
    return NodeStatus(node=row(1, identity), age=int(age * SECOND), running=3, skew=-2 * SECOND)


def test_a_lease_is_what_is_left_until_others_take_over() -> None:
    for age, left in [(0.0, LEASE), (BEAT, LEASE - BEAT), (LEASE, 0.0), (2 * LEASE, 0.0), (-5.0, LEASE)]:
        assert node_of(status(elsewhere(), age), own=None).lease == timedelta(seconds=left)


def test_the_lease_of_who_is_gone_has_run_out() -> None:
    """Nobody on this machine waits for it."""
    identity = new_identity()
    retire(identity)

    assert node_of(status(identity), own=None).lease == timedelta(0)


def test_a_node_is_shown_with_the_name_of_its_host() -> None:
    identity = new_identity()

    node = node_of(status(identity), own=1)

    assert (node.id, node.host, node.pid) == (identity.name, socket.gethostname(), os.getpid())
    assert (node.running, node.clock_skew, node.is_self) == (3, timedelta(seconds=-2), True)
    assert not node_of(status(identity), own=2).is_self
    retire(identity)


def test_who_may_live_is_seen_to_or_has_a_lease() -> None:
    """A process that stands still on this machine can wake up; one elsewhere has had its time."""
    here = new_identity()

    assert may_live(status(here, age=2 * LEASE))
    assert may_live(status(elsewhere(), age=BEAT))
    assert not may_live(status(elsewhere(), age=LEASE))
    retire(here)
    assert not may_live(status(here))


async def test_schedulers_list_themselves(
    path: Path, new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    first, second = new_scheduler(path), new_scheduler(path)
    worker.blocks = True
    await first.start()
    await clock.advance("1m")
    await second.start()
    await first.add_job(Manual(), handler="work", id="a")
    await first.trigger_job("a")

    one, other = await first.nodes()

    assert (one.is_self, other.is_self) == (True, False)
    assert (one.running, other.running) == (1, 0)
    assert (one.since, other.since) == (NOON, NOON + timedelta(minutes=1))
    assert one.pid == other.pid == os.getpid()
    assert one.clock_skew == other.clock_skew == timedelta(0)
    assert all(timedelta(0) < node.lease <= timedelta(seconds=LEASE) for node in (one, other))
    assert [node.id for node in await second.nodes()] == [one.id, other.id]
    await second.stop()
    assert [node.id for node in await first.nodes()] == [one.id]


async def test_who_only_looks_is_no_node(idle: Scheduler) -> None:
    assert await idle.nodes() == []

    await idle.run_pending()

    (node,) = await idle.nodes()
    assert node.is_self


async def test_in_memory_a_lease_never_runs_out(new_scheduler: NewScheduler) -> None:
    """There is nobody who could take over, and so nobody beats."""
    scheduler = new_scheduler(":memory:")
    await scheduler.start()

    (node,) = await scheduler.nodes()

    assert node.lease == timedelta(seconds=LEASE)


def test_a_node_whose_name_makes_no_sense_may_live() -> None:
    """Its name comes from a row that anybody may have damaged."""
    for pid in ("9" * 5_000, "-1", "", "²"):
        assert not is_gone(NodeRow.missing(1, f"{socket.gethostname()}:{pid}:abc").identity)
