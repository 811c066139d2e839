"""Which nodes that share a store are alive, and which are dead. `engine/membership.py` recovers from a dead one."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path

from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.history import NodeFate, NodeSpan
from scheduler_async.stores.messages import UNKNOWN_NODE, NodeIdentity, NodeLife, NodeRow, NodeStatus, last_alive
from scheduler_async.stores.unreadable import LARGEST_PID
from scheduler_async.timekeeping.instants import SECOND, Micros, from_micros

# A node without a heartbeat for this long counts as dead.
LEASE = 30.0  # seconds
BEAT = 10.0  # seconds
# A node stops its runs this much earlier, before other nodes take them over.
MARGIN = 5.0  # seconds

# A larger difference between clocks is worth a warning.
SKEW = timedelta(seconds=1)

# A node that could not read the store for this long cannot judge the others: a locked store keeps all nodes from
# sending heartbeats.
LONGEST_LOOK_AWAY = 2 * BEAT

# The nodes of this process. A node of this process that is not in here is gone.
_alive_here: set[str] = set()


def new_identity() -> NodeIdentity:
    """Return the identity of a new node of this process."""
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    _alive_here.add(name)
    return NodeIdentity(name=name, host=_host(), pid=os.getpid(), process_start=_process_start(os.getpid()))


def retire(identity: NodeIdentity) -> None:
    """Mark a node of this process as gone."""
    _alive_here.discard(identity.name)


class Watch:
    """The heartbeats of other nodes, as one node observes them by its own clock. Clock skew does not affect it."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        self._looked_at = 0.0
        self._identities: list[NodeIdentity] = []

    def find_dead(self, nodes: Iterable[NodeRow], own: int, monotonic: float) -> list[NodeRow]:
        """Return the dead *nodes*: local ones as soon as their process ends, others when their lease expires."""
        nodes = [node for node in nodes if node.id != own]
        if monotonic - self._looked_at > LONGEST_LOOK_AWAY:
            self._seen = {}
        self._looked_at = monotonic
        self._identities = [node.identity for node in nodes]
        self._seen = {node.id: self._since(node, monotonic) for node in nodes}
        return [node for node in nodes if is_gone(node.identity) or self._has_lapsed(node, monotonic)]

    def someone_is_gone(self) -> bool:
        """Return whether a node from the last call has certainly died since."""
        return any(is_gone(identity) for identity in self._identities)

    def _has_lapsed(self, node: NodeRow, monotonic: float) -> bool:
        """Return whether the lease of *node* has expired. A store with a clock can tell even on the first look."""
        silent_for = monotonic - self._seen[node.id][1]
        if node.age is None:
            return silent_for >= LEASE
        # A clock may be set forward, but an observed heartbeat proves that the node lives.
        return node.age >= LEASE and silent_for >= BEAT + MARGIN

    def _since(self, node: NodeRow, monotonic: float) -> tuple[int, float]:
        seen = self._seen.get(node.id)
        return seen if seen is not None and seen[0] == node.beat else (node.beat, monotonic)


def node_of(status: NodeStatus, own: int | None) -> Node:
    """Return a node as users see it. *own* is the number of the calling node, if any."""
    identity = status.node.identity
    left = int(LEASE * SECOND) - max(status.age, 0)
    return Node(
        id=identity.name,
        host=identity.host.partition(" ")[0],
        pid=identity.pid,
        since=from_micros(status.node.since),
        lease=timedelta(0) if is_gone(identity) else timedelta(microseconds=max(left, 0)),
        running=status.running,
        clock_skew=timedelta(microseconds=status.skew),
        is_self=status.node.id == own,
        unreadable=status.node.problem,
    )


def may_live(status: NodeStatus) -> bool:
    """Return whether the node may still run jobs.

    A local process that exists counts as alive, even without heartbeats.
    """
    return not is_gone(status.node.identity) and (status.node.identity.host == _host() or status.age < LEASE * SECOND)


def span_of(life: NodeLife, now: Micros) -> NodeSpan:
    """Return the life of a node as users see it *now*.

    A node that no other has missed yet may be dead all the same. It counts as lost if its row is gone.
    """
    until, how = life.until, life.how
    if how == NodeFate.RUNNING and not (life.is_there and _seems_alive(life)):
        how = NodeFate.LOST
        until = None if life.age is None else last_alive(life.since, now - life.age, life.recorded_at, now)
    return NodeSpan(
        name=life.identity.name,
        host=life.identity.host.partition(" ")[0],
        pid=life.identity.pid,
        since=from_micros(life.since),
        until=None if until is None else from_micros(until),
        how=how,
    )


def _seems_alive(life: NodeLife) -> bool:
    identity = life.identity
    return not is_gone(identity) and (identity.host == _host() or life.age is None or life.age < LEASE * SECOND)


def is_gone(identity: NodeIdentity) -> bool:
    """Return whether the node has certainly ended. A node on another machine may be alive."""
    if not identity.host:
        return _is_gone_by_name(identity.name)
    if identity.host != _host() or not identity.pid:  # the process id in an unreadable row is unknown
        return False
    if identity.pid == os.getpid() and identity.process_start == _process_start(identity.pid):
        return identity.name not in _alive_here
    start = _process_start(identity.pid)
    return not _exists(identity.pid) or start not in ("", identity.process_start)


def _is_gone_by_name(name: str) -> bool:
    """Return the same as `is_gone`, for a node of which only the name is known, from the rows of its runs."""
    if name == UNKNOWN_NODE:
        return True
    host, _, rest = name.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdecimal() or len(pid) > len(str(LARGEST_PID)):
        return False
    return name not in _alive_here if int(pid) == os.getpid() else not _exists(int(pid))


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # a signal would end it; its lease expires in time
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:
        return False  # no process has such an id
    return True


def _process_start(pid: int) -> str:
    """Return when a process started, in system units. Unlike a process id, a start time is not reused."""
    try:
        # The name in parentheses may contain any character. The 20th field after it is the start time.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie is dead, and waits for its parent to collect it.
    return "zombie" if fields[0] == "Z" else fields[19]


@lru_cache(maxsize=1)
def _host() -> str:
    """Return a name for this boot of the machine and its process table. Each container has its own table."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not Linux: the name must suffice
    return " ".join(parts)
