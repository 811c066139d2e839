"""The identity of this process as a node of the store, and its lease. `membership` changes both."""

from __future__ import annotations

from scheduler_async.stores.liveness import retire
from scheduler_async.stores.messages import NodeIdentity, NodeLost
from scheduler_async.timekeeping.clock import Clock


class OwnNode:
    """Which node of the store is this process, and may it still trust its lease?"""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self.id: int | None = None
        self.identity: NodeIdentity | None = None
        self.has_joined = False
        """Whether this session may claim: it is a node, or rejoins after losing its lease."""
        self.trusted_until = 0.0

    @property
    def name(self) -> str | None:
        """Return its name, for logs and rows."""
        return None if self.identity is None else self.identity.name

    def required_id(self) -> int:
        """Return its number in the store; raise `NodeLost` while it has none."""
        if self.id is None:
            raise NodeLost
        return self.id

    def is_trusted(self) -> bool:
        """Return whether its lease is certainly valid: no other node can have taken over its runs."""
        return self._machine.monotonic() <= self.trusted_until

    def check_trust(self) -> None:
        """Raise `NodeLost` unless its lease is valid: it must let go of its runs before other nodes take them over."""
        if not self.is_trusted():
            raise NodeLost

    def retire(self) -> None:
        """Let the other schedulers of this process know that it is gone, if it has joined."""
        if self.identity is not None:
            retire(self.identity)

    def close(self) -> None:
        """Claim nothing more: the session has ended."""
        self.id, self.has_joined = None, False
