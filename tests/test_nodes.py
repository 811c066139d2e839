"""Who lives, who is gone, and who may only be slow."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scheduler_async.nodes import BEAT, LEASE, Watch, is_gone, new_identity, retire
from scheduler_async.store import NodeIdentity, NodeRow


def row(number: int, identity: NodeIdentity, beat: int = 0) -> NodeRow:
    return NodeRow(id=number, identity=identity, beat=beat, since=0)


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
