"""How free an event loop is, how much memory a process took, and percentiles. For every contestant alike."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType


class Heartbeat:
    """A task that wakes every millisecond, and so finds out how long the loop keeps others waiting."""

    def __init__(self) -> None:
        self.stalled = 0.0  # milliseconds, by the wall clock: what else the machine does is in it
        self.worked = 0.0  # milliseconds that the loop's own thread was busy between two beats

    async def __aenter__(self) -> Heartbeat:
        self._beating = asyncio.create_task(self._beat(), name="heartbeat")
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._beating.cancel()
        await asyncio.wait([self._beating])

    async def _beat(self) -> None:
        while True:
            begun, work = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.stalled = max(self.stalled, (time.perf_counter() - begun) * 1000 - 1)
            self.worked = max(self.worked, (time.thread_time() - work) * 1000)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that *share* percent of all do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share / 100) - 1)]


def spread_of(lateness: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and max, in milliseconds, of seconds."""
    shares = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    return {f"{name}_ms": percentile(lateness, share) * 1000 for name, share in shares.items()}


def peak_memory() -> float:
    """Megabytes. Not from getrusage: there, a process begins with the memory of the one that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
