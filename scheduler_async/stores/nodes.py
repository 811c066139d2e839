"""Which processes share a store, and which of them are gone. Liveness is a matter of processes, not of schedules."""

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
from scheduler_async.stores.messages import UNKNOWN_NODE, NodeIdentity, NodeRow, NodeStatus
from scheduler_async.stores.unreadable import LARGEST_PID
from scheduler_async.timekeeping.instants import SECOND, from_micros

# A node that has not beaten for this long is dead to the others.
LEASE = 30.0  # seconds
BEAT = 10.0  # seconds
# A node stops trusting itself this much earlier, so that it has let go before others take over.
MARGIN = 5.0  # seconds

# Clocks that are further apart than this are worth a word.
SKEW = timedelta(seconds=1)

# Who could not look for so long does not know who has beaten meanwhile: a store that was locked kept all from it.
LONGEST_LOOK_AWAY = 2 * BEAT

# The nodes of this very process: one that is not among them is gone, although its process lives.
_alive_here: set[str] = set()


def new_identity() -> NodeIdentity:
    """A name for a new node of this process."""
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    _alive_here.add(name)
    return NodeIdentity(name=name, host=_host(), pid=os.getpid(), process_start=_process_start(os.getpid()))


def retire(identity: NodeIdentity) -> None:
    """A node of this process that is no more."""
    _alive_here.discard(identity.name)


class Watch:
    """What one node knows of the others: their beats, seen with its own clock, which no skew can fool."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        self._looked_at = 0.0
        self._identities: list[NodeIdentity] = []

    def find_dead(self, nodes: Iterable[NodeRow], own: int, monotonic: float) -> list[NodeRow]:
        """Those of *nodes* that are gone: at once if they lived here, otherwise when their lease has run out."""
        nodes = [node for node in nodes if node.id != own]
        if monotonic - self._looked_at > LONGEST_LOOK_AWAY:
            self._seen = {}
        self._looked_at = monotonic
        self._identities = [node.identity for node in nodes]
        self._seen = {node.id: self._since(node, monotonic) for node in nodes}
        return [node for node in nodes if is_gone(node.identity) or self._has_lapsed(node, monotonic)]

    def someone_is_gone(self) -> bool:
        """Whether a node that was seen last time has certainly died since."""
        return any(is_gone(identity) for identity in self._identities)

    def _has_lapsed(self, node: NodeRow, monotonic: float) -> bool:
        """Whether its lease has run out. Where the store has a clock, that counts also for who has just come."""
        silent_for = monotonic - self._seen[node.id][1]
        if node.age is None:
            return silent_for >= LEASE
        # A clock may be put forward; a beat that is seen cannot be explained away.
        return node.age >= LEASE and silent_for >= BEAT + MARGIN

    def _since(self, node: NodeRow, monotonic: float) -> tuple[int, float]:
        seen = self._seen.get(node.id)
        return seen if seen is not None and seen[0] == node.beat else (node.beat, monotonic)


def node_of(status: NodeStatus, own: int | None) -> Node:
    """A node as users see it; *own* is the number of the one that asks, if it is one."""
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
    """Whether it could still run something. A process that is seen to live does, however silent it is."""
    return not is_gone(status.node.identity) and (status.node.identity.host == _host() or status.age < LEASE * SECOND)


def is_gone(identity: NodeIdentity) -> bool:
    """Whether it certainly does not live any more. A process elsewhere may."""
    if not identity.host:
        return _is_gone_by_name(identity.name)
    if identity.host != _host() or not identity.pid:  # that of a row that cannot be read is not known
        return False
    if identity.pid == os.getpid() and identity.process_start == _process_start(identity.pid):
        return identity.name not in _alive_here
    start = _process_start(identity.pid)
    return not _exists(identity.pid) or start not in ("", identity.process_start)


def _is_gone_by_name(name: str) -> bool:
    """As `is_gone`, for a node of which only the name is left: whoever claims a run writes it into the run's row."""
    if name == UNKNOWN_NODE:
        return True
    host, _, rest = name.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdecimal() or len(pid) > len(str(LARGEST_PID)):
        return False
    return name not in _alive_here if int(pid) == os.getpid() else not _exists(int(pid))


def _exists(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # asking with a signal would end it; the lease tells in time
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:
        return False  # no process has such a number
    return True


def _process_start(pid: int) -> str:
    """When a process began, in the system's own terms: a number is given to another process, a start is not."""
    try:
        # The name in parentheses may hold anything; what follows it is regular, and the 20th of it is the start.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie is dead, and only waits for its parent to notice.
    return "zombie" if fields[0] == "Z" else fields[19]


@lru_cache(maxsize=1)
def _host() -> str:
    """This machine since it was booted, and the table its process numbers are from: containers have their own."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        pass  # not Linux: the name has to do
    return " ".join(parts)
