"""The locks of the engine, and the order in which they are taken."""

from __future__ import annotations

from scheduler_async.engine.shared_lock import SharedLock
from scheduler_async.outbox import Outbox, QuietLock


class Locks:
    """The locks of one event loop. A task that holds one may wait for those below it, never for one above.

    They survive when the store is closed: a call that waits for a lock meanwhile finds the same one afterwards. Log
    lines and events that a task sends while it holds a lock are delivered when it has released its last one.
    """

    def __init__(self, outbox: Outbox) -> None:
        """*outbox* keeps what must not be delivered under a lock."""
        self.opening = QuietLock(outbox)  # opening, starting and stopping
        # Claiming takes it alone. What must not happen during a claim shares it: edits, and runs by hand.
        self.claiming = SharedLock(outbox)
        self.rejoining = QuietLock(outbox)
        self.recording = QuietLock(outbox)
