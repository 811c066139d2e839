"""Ten thousand jobs at one instant."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from scheduler_async import At, JobSpec, Run, Scheduler
from torturing.accounts import Goals, percentile, tell

LIMIT = 100
GROUPS = 20
GROUP_LIMIT = 8
LONGEST = 0.05  # seconds a handler takes
# A shorter block than this goes unnoticed.
BLOCKED = 50.0  # milliseconds


def load(directory: Path, quick: bool, _random: Random, goals: Goals) -> dict[str, object]:
    """All jobs are due at once, far more than may run at a time, while a heartbeat tells how free the loop is.

    On a machine with other things to do, a loop waits for its turn. So what counts is how long the loop's thread
    *worked* between two heartbeats, collecting garbage included; how long it took is told as well.
    """
    jobs = 2_000 if quick else 10_000
    # A process of its own, so that there are no other objects to collect.
    command = [sys.executable, "-m", "torturing.load", str(directory / "load.db"), str(jobs)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    tell(f"load: all due at one instant, {LIMIT} at a time, {GROUP_LIMIT} of a group", figures)
    goals.expect(f"load: jobs run: {figures['run']}", figures["run"] == jobs)
    goals.expect_none("load: jobs run twice", figures["run_twice"])
    goals.expect(f"load: never more than {LIMIT} at once: {figures['most_at_once']}", figures["most_at_once"] <= LIMIT)
    most = figures["most_of_a_group_at_once"]
    goals.expect(f"load: never more than {GROUP_LIMIT} of a group at once: {most}", most <= GROUP_LIMIT)
    worked = figures["longest_the_loop_worked_ms"]
    goals.expect(f"load: the loop is never blocked for {BLOCKED:g} ms: {worked:.0f} ms", worked < BLOCKED)
    return dict(figures)


@dataclass
class Heartbeat:
    """How long an event loop keeps others waiting, in milliseconds."""

    worked: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    async def beat(self) -> None:
        """Sleep a millisecond, again and again."""
        while True:
            begun, work = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.waited.append((time.perf_counter() - begun) * 1000 - 1)
            self.worked.append((time.thread_time() - work) * 1000)


async def run_all_at_once(store: Path, jobs: int) -> dict[str, float]:
    """Add *jobs* in one call, let all of them come due, and watch."""
    due = datetime.now(UTC) + timedelta(seconds=1)
    specs = [
        JobSpec(At(due), handler="work", id=f"job-{number}", group=f"group-{number % GROUPS}") for number in range(jobs)
    ]
    scheduler = Scheduler(store, max_concurrent=LIMIT, group_limits=GROUP_LIMIT, misfire_grace=None)
    begun, going = Counter[str](), Counter[str]()
    most = most_of_a_group = 0
    random = Random(1)
    all_done = asyncio.Event()

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        nonlocal most, most_of_a_group
        group = str(int(run.job_id.removeprefix("job-")) % GROUPS)
        begun[run.job_id] += 1
        going[group] += 1
        most, most_of_a_group = max(most, going.total()), max(most_of_a_group, going[group])
        await asyncio.sleep(random.uniform(0, LONGEST))
        going[group] -= 1
        if begun.total() >= jobs and not going.total():
            all_done.set()

    heart = Heartbeat()
    beating = asyncio.ensure_future(heart.beat())
    await asyncio.sleep(0)  # the first beat
    await scheduler.add_jobs(specs)
    del specs  # the program's own, and nothing that the scheduler has to carry
    async with scheduler:
        await all_done.wait()
        took = (datetime.now(UTC) - due).total_seconds()
    beating.cancel()
    return {
        "jobs": jobs,
        "run": len(begun),
        "run_twice": sum(count > 1 for count in begun.values()),
        "most_at_once": most,
        "most_of_a_group_at_once": most_of_a_group,
        "runs_per_second": jobs / took,
        "longest_the_loop_worked_ms": max(heart.worked),
        "longest_the_loop_kept_waiting_ms": max(heart.waited),
        "p99_the_loop_kept_waiting_ms": percentile(heart.waited, 99),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run_all_at_once(Path(sys.argv[1]), int(sys.argv[2])))))
