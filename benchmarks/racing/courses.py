"""What a contestant is asked: one function for each question, the same for all that schedule jobs.

`bare` has functions of the same names, which do the least that could be done.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from racing import arrivals
from racing.watching import Heartbeat, peak_memory, spread_of

Figures = dict[str, object]

# Not due during any measurement.
FAR = 10 * 365 * 86_400.0  # seconds

# Between the last preparation and the first due moment: whatever starts up shall be done.
MARGIN = 0.5  # seconds

# How many far jobs are added first, to learn how long adding takes.
TRIALS = 50

# The first runs load modules and fill caches; they are run, and not counted.
WARM_UP = 10
WARM_UP_SECONDS = 2

HOUR = 3_600.0  # seconds


class Racer(Protocol):
    """What each contestant can do. Moments are seconds since 1970, and the handler is `arrivals.work`."""

    OVERDUE: str
    """The query that counts the jobs that are due at a moment, and of which no run is on record."""

    can_add_in_bulk: bool

    async def open(self, path: Path) -> None:
        """Open the file, or make it. Nothing runs yet."""

    async def add_at(self, id: str, moment: float) -> None:
        """Add a one-shot job."""

    async def add_all_at(self, jobs: Sequence[tuple[str, float]]) -> None:
        """Add one-shot jobs in the fastest way that is documented."""

    async def add_every(self, seconds: int, jobs: Mapping[str, float]) -> None:
        """Add jobs that run at their moment and again after so many seconds."""

    async def start(self) -> None:
        """Let jobs run."""

    async def close(self) -> None:
        """Return when all that ran is on record, and the file is closed."""

    async def give_up(self) -> None:
        """Stop at once, whatever is not yet on record."""


async def fill(racer: Racer, path: str, count: int, fill_limit: float, due: int = 0, name: str = "far") -> Figures:
    """Store *count* far jobs, and *due* that are due at once, unless it would take longer than *fill_limit* seconds."""
    now = time.time()
    await racer.open(Path(path))
    await racer.add_all_at([(f"due-{number}", now) for number in range(due)])
    begun = time.perf_counter()
    filled = 0
    while filled < count:
        # A few first: they tell whether the rest is worth the while.
        step = min(10_000 if filled else 200, count - filled)
        await racer.add_all_at([(f"{name}-{number}", now + FAR + number) for number in range(filled, filled + step)])
        filled += step
        if (would_take := (time.perf_counter() - begun) * count / filled) > fill_limit:
            await racer.close()
            return {"filled": 0, "would_take_s": would_take}
    await racer.close()
    return {"filled": count, "took_s": time.perf_counter() - begun}


async def ticks(racer: Racer, path: str, probes: int, gap: float) -> Figures:
    """Lateness of *probes* jobs that come due one after another, *gap* seconds apart."""
    await racer.open(Path(path))
    due = await _prepared(racer, "tick", probes + WARM_UP, lambda number: number * gap)
    await arrivals.all_here()
    lateness = [moment - due[job] for moment, job in arrivals.begun][WARM_UP:]
    await racer.close()
    return {**spread_of(lateness), "lateness_ms": [round(late * 1000, 4) for late in lateness]}


async def burst(racer: Racer, path: str, count: int, comes_again: bool) -> Figures:
    """All jobs are due at one instant: how long until the last has run, and until all of that is on record."""
    await racer.open(Path(path))
    due = await _prepared(racer, "burst", count, lambda _: 0.0, every=3_600 if comes_again else None)
    moment = next(iter(due.values()))
    assert (known := _overdue(racer, path, moment)) == count, f"{known} of {count} jobs are known to be due"
    await asyncio.sleep(moment - time.time() - 0.05)
    async with Heartbeat() as heart:
        await arrivals.all_here()
        last = arrivals.begun[-1][0] - moment
        await racer.close()
        durable = time.time() - moment
    assert len({job for _, job in arrivals.begun}) == count, "a job has run twice"
    assert not (missing := _overdue(racer, path, moment)), f"{missing} jobs have no run on record"
    return {
        "last_handler_s": last,
        "durable_s": durable,
        "durable_per_s": count / durable,
        "stall_ms": heart.stalled,
        "worked_ms": heart.worked,
    }


def _overdue(racer: Racer, path: str, moment: float) -> int:
    db = sqlite3.connect(path)
    (count,) = db.execute(racer.OVERDUE, {"moment": moment + 1}).fetchone()  # some keep whole seconds
    db.close()
    return int(count)


async def sustained(racer: Racer, path: str, jobs: int, seconds: int, spread: bool) -> Figures:
    """*jobs* that run each second, for some *seconds*: at the same instant, or *spread* over the second."""
    await racer.open(Path(path))
    anchor = time.time() + MARGIN + 2 * jobs / await _adds_per_second(racer) + 0.5
    offsets = {f"job-{number}": number / jobs if spread else 0.0 for number in range(jobs)}
    arrivals.expect(jobs * seconds + 1)  # it ends by the clock
    await racer.add_every(1, {job: anchor + offset for job, offset in offsets.items()})
    await racer.start()
    _in_time(anchor)
    return await watch_seconds(anchor, seconds, offsets, racer.give_up)


async def watch_seconds(
    anchor: float, seconds: int, offsets: dict[str, float], close: Callable[[], Awaitable[None]]
) -> Figures:
    """Count what begins from *anchor* on for some *seconds*, and what it costs."""
    await asyncio.sleep(anchor - 0.1 - time.time())
    cpu = time.process_time()
    await asyncio.sleep(anchor + seconds - time.time())
    cpu = time.process_time() - cpu
    fired = [(moment, job) for moment, job in arrivals.begun if moment < anchor + seconds]
    await close()
    # A run that is late by more than a second is taken for the next occurrence: then an occurrence is missing instead.
    lateness = [(moment - anchor - offsets[job]) % 1.0 for moment, job in fired]
    return {"fired": len(fired), "expected": len(offsets) * seconds, "cpu_s": cpu, **spread_of(lateness)}


async def lone(racer: Racer, path: str, jobs: int, seconds: int) -> Figures:
    """*jobs* that run each second, one after another: what one run costs, and how late it is."""
    await racer.open(Path(path))
    anchor = time.time() + MARGIN + 2 * jobs / await _adds_per_second(racer) + 0.5
    offsets = spread_over_a_second(jobs)
    await racer.add_every(1, {job: anchor + offset for job, offset in offsets.items()})
    await racer.start()
    _in_time(anchor)
    return await watch_lone_runs(anchor, seconds, offsets, racer.give_up)


def spread_over_a_second(jobs: int) -> dict[str, float]:
    """When each of them runs within each second. No two runs are due at once."""
    return {f"job-{number}": (number + 0.5) / jobs for number in range(jobs)}


async def watch_lone_runs(
    anchor: float, seconds: int, offsets: dict[str, float], close: Callable[[], Awaitable[None]]
) -> Figures:
    """What begins during some *seconds*, and what it costs: the thread of the event loop, and all others."""
    anchor += WARM_UP_SECONDS
    await asyncio.sleep(anchor - time.time())
    arrivals.begun.clear()
    everything, own = time.process_time(), time.thread_time()
    await asyncio.sleep(anchor + seconds - time.time())
    everything, own = time.process_time() - everything, time.thread_time() - own
    fired = list(arrivals.begun)
    await close()
    runs = len(fired)
    lateness = [(moment - anchor - offsets[job]) % 1.0 for moment, job in fired]
    return {
        "fired": runs,
        "expected": len(offsets) * seconds,
        "cpu_us": everything / runs * 1e6,
        "loop_us": own / runs * 1e6,
        "others_us": (everything - own) / runs * 1e6,
        **spread_of(lateness),
    }


async def backlog(racer: Racer, path: str, count: int) -> Figures:
    """All jobs were due an hour ago. The time is that from the start of the scheduler until all is on record."""
    await racer.open(Path(path))
    moment = time.time() - HOUR
    arrivals.expect(count)
    await racer.add_all_at([(f"late-{number}", moment) for number in range(count)])
    assert (known := _overdue(racer, path, moment)) == count, f"{known} of {count} jobs are known to be due"
    await asyncio.sleep(MARGIN)
    begun, cpu = time.perf_counter(), time.process_time()
    async with Heartbeat() as heart:
        await racer.start()
        await arrivals.all_here()
        last = time.perf_counter() - begun
        await racer.close()
    durable, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert len({job for _, job in arrivals.begun}) == count, "a job has run twice"
    assert not (missing := _overdue(racer, path, moment)), f"{missing} jobs have no run on record"
    return {
        "last_handler_s": last,
        "durable_s": durable,
        "durable_per_s": count / durable,
        "cpu_us": cpu / count * 1e6,
        "stall_ms": heart.stalled,
    }


async def add(racer: Racer, path: str, one_at_a_time: int, in_bulk: int) -> Figures:
    """Jobs per second: added one after another, and in bulk where there is a way."""
    await racer.open(Path(path))
    far = time.time() + FAR
    await racer.add_at("warm-up", far)
    begun = time.perf_counter()
    for number in range(one_at_a_time):
        await racer.add_at(f"one-{number}", far + number)
    single = one_at_a_time / (time.perf_counter() - begun)
    bulk = None
    if racer.can_add_in_bulk:
        names = [(f"bulk-{number}", far + number) for number in range(in_bulk)]
        begun = time.perf_counter()
        await racer.add_all_at(names)
        bulk = in_bulk / (time.perf_counter() - begun)
    await racer.close()
    return {"one_at_a_time_per_s": single, "in_bulk_per_s": bulk}


async def cold_start(racer: Racer, path: str) -> Figures:
    """From opening the file until the first due job begins; modules are loaded by then."""
    arrivals.expect(1)
    begun = time.time()
    await racer.open(Path(path))
    await racer.start()
    await arrivals.all_here()
    took = arrivals.begun[0][0] - begun
    peak = peak_memory()
    await racer.close()
    return {"first_start_s": took, "peak_mb": peak}


async def idle(racer: Racer, path: str, seconds: float) -> Figures:
    """What waiting costs."""
    await racer.open(Path(path))
    await racer.start()
    return await watch_idling(seconds, racer.close)


async def watch_idling(seconds: float, close: Callable[[], Awaitable[None]]) -> Figures:
    await asyncio.sleep(1)
    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    cpu, took = time.process_time() - cpu, time.perf_counter() - begun
    await close()
    return {"cpu_s": cpu, "percent_of_a_core": cpu / took * 100}


async def growth(racer: Racer, path: str, passes: int, gap: float, runs: int) -> Figures:
    """CPU time of a pass that starts one job, and of each run when many are due at once."""
    await racer.open(Path(path))
    alone = WARM_UP + passes
    due = await _prepared(racer, "job", alone + runs, lambda n: (n if n < alone else alone + 5) * gap)
    moments = sorted(set(due.values()))
    await asyncio.sleep(moments[WARM_UP] - 0.02 - time.time())
    begun = time.process_time()
    await asyncio.sleep(moments[-1] - 0.02 - time.time())
    after_passes = time.process_time()
    await arrivals.all_here()
    await racer.close()
    after_runs = time.process_time()
    return {
        "pass_us": (after_passes - begun) / passes * 1e6,
        "run_us": (after_runs - after_passes) / runs * 1e6,
    }


async def _prepared(
    racer: Racer, name: str, count: int, offset: Callable[[int], float], every: int | None = None
) -> dict[str, float]:
    """Add jobs that come due soon, each by its *offset*, and start; return when each of them is due.

    They run once, or again after *every* so many seconds.
    """
    lead = MARGIN + 1.5 * count / await _adds_per_second(racer)
    first = time.time() + lead + 0.5
    due = {f"{name}-{number}": first + offset(number) for number in range(count)}
    arrivals.expect(count)
    if every is None:
        await racer.add_all_at(list(due.items()))
    else:
        await racer.add_every(every, due)
    await racer.start()
    _in_time(first)
    return due


async def _adds_per_second(racer: Racer) -> float:
    """Measure with a few far jobs how long adding takes, because that is unknown beforehand."""
    far = time.time() + FAR
    begun = time.perf_counter()
    await racer.add_all_at([(f"trial-{number}", far) for number in range(TRIALS)])
    return TRIALS / (time.perf_counter() - begun)


def _in_time(first: float) -> None:
    if time.time() > first - 0.1:
        raise TimeoutError(f"The jobs were ready {time.time() - first + 0.1:.1f} s too late to be measured.")
