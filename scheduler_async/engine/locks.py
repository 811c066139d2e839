"""The locks of the engine, and the order in which they are taken."""

from __future__ import annotations

import asyncio


class Locks:
    """The locks of one event loop. A task that holds one may wait for those below it, never for one above.

    They outlive the closing of the store: a call that waits for one meanwhile finds the same one afterwards.
    """

    def __init__(self) -> None:
        self.opening = asyncio.Lock()  # opening, starting and stopping
        self.claiming = asyncio.Lock()  # claiming, and whatever must not happen during a claim
        self.rejoining = asyncio.Lock()
        self.recording = asyncio.Lock()
