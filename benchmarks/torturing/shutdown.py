"""Asked to end, at any moment, once or twice."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

from scheduler_async import Every, Run, Scheduler, SQLiteStore
from scheduler_async.services import LAST_WORDS
from scheduler_async.stores.messages import Claims, ClaimTerms
from torturing.accounts import MILLISECOND, Goals, Line, percentile
from torturing.crew import PATIENCE, Log, wait_until

KINDS = ("TERM", "INT", "TERM TERM", "INT INT", "TERM INT", "INT TERM")

# So many at a time: each keeps a core busy.
LANES = 2

# What a handler takes at most that ends by itself.
LONGEST = 3.0  # seconds

# The handlers that are plain functions. A thread does not notice that it is no longer wanted, and runs to its end.
PLAIN = ("thread", "crowd")

# What the interpreter may need to end, on a machine that is busy with other things.
LEAVING = 1.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Terms:
    """How a program works."""

    timeout: float
    """What runs get to finish, in seconds."""
    endless: bool
    """Whether one of the handlers never ends by itself."""
    crowd: int
    """How many plain functions end at the same moment, again and again: much is said to the event loop then."""
    slots: int | None
    """How many runs at a time. As many more are queued."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One program and how it is asked to end."""

    number: int
    kind: str
    terms: Terms
    on_a_new_file: bool
    """Or on that which the one before has left."""
    delay: float
    gap: float
    """Seconds from the beginning to the first signal, and from that to the second."""

    @property
    def signals(self) -> list[signal.Signals]:
        """What is sent."""
        return [signal.Signals[f"SIG{name}"] for name in self.kind.split()]

    @property
    def stated(self) -> float:
        """How long it may take to end, from the last signal on."""
        return LAST_WORDS + (self.terms.timeout if len(self.signals) == 1 else 0.0)


@dataclass(frozen=True, kw_only=True)
class Shutdown:
    """How a program ended, and what it left."""

    kind: str
    code: int
    took: float
    stated: float
    while_starting: bool
    in_a_pass: bool
    too_late: bool
    """A signal came when the scheduler had stopped, and the program was on its way out."""
    complained: bool
    begun: int
    cancelled: int
    without_outcome: int
    wrong_outcomes: int
    open_rows: int
    claimed: int
    nodes: int
    damaged: int


def shutdown(directory: Path, quick: bool, random: Random, goals: Goals) -> dict[str, object]:
    """Programs with hundreds of runs per second that are asked to end: in a pass, while they start, once, twice.

    They end within the time that was given, silently, and leave nothing to be done by others: each run that began has
    the outcome that the log tells of, nothing is claimed, and no node is left whose lease another one had to wait for.
    """
    directory = directory / "shutdown"
    directory.mkdir()
    plans = [planned(number, random) for number in range(8 if quick else 60)]
    with ThreadPoolExecutor(LANES) as pool:
        lanes = [
            pool.submit(end_one_after_another, directory / f"lane-{lane}", plans[lane::LANES]) for lane in range(LANES)
        ]
        ends = [end for lane in lanes for end in lane.result()]
    titles = ["signals", "asked", "starting", "in a pass", "exit 0", "late", "p50", "max", "slow", "traces", "runs"]
    titles += ["cancelled", "no outcome", "wrong", "open", "claimed", "nodes", "damaged"]
    layout = "{:>9} " + " ".join(f"{{:>{max(len(title), 6)}}}" for title in titles[1:])
    print(f"\nshutdown: asked to end\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for kind in KINDS:
        row = counted([end for end in ends if end.kind == kind])
        figures[kind] = row
        print(
            layout.format(
                kind,
                row["shutdowns"],
                row["while_starting"],
                row["in_a_pass"],
                row["exit_0"],
                row["too_late"],
                f"{row['took_p50_s']:.2f} s",
                f"{row['took_max_s']:.2f} s",
                row["too_slow"],
                row["complained"],
                row["runs"],
                row["cancelled"],
                row["without_outcome"],
                row["wrong_outcomes"],
                row["open_rows"],
                row["claimed"],
                row["nodes"],
                row["damaged"],
            )
        )
        goals.expect_none(f"shutdown, {kind}: exit codes other than 0", row["bad_exits"])
        took = f"at most {row['took_max_s']:.2f} s"
        goals.expect(f"shutdown, {kind}: within the stated time: {took}", row["too_slow"] == 0)
        goals.expect_none(f"shutdown, {kind}: stack traces, or anything else on stderr", row["complained"])
        goals.expect_none(f"shutdown, {kind}: runs without an outcome", row["without_outcome"])
        goals.expect_none(f"shutdown, {kind}: outcomes that are not what happened", row["wrong_outcomes"])
        left = row["open_rows"] + row["claimed"] + row["nodes"]
        goals.expect_none(f"shutdown, {kind}: rows left open, jobs left claimed, nodes left behind", left)
        goals.expect_none(f"shutdown, {kind}: damaged files", row["damaged"])
    for words, some in {
        "while it starts": sum(end.while_starting for end in ends),
        "in the middle of a pass": sum(end.in_a_pass for end in ends),
        "with runs to cancel": sum(end.cancelled > 0 for end in ends),
    }.items():
        goals.expect(f"shutdown: some of {len(ends)} {words}: {some}", quick or some > 0)
    return figures


def counted(ends: Sequence[Shutdown]) -> dict[str, float]:
    """One row of the table."""
    took = [end.took for end in ends]
    return {
        "shutdowns": len(ends),
        "while_starting": sum(end.while_starting for end in ends),
        "in_a_pass": sum(end.in_a_pass for end in ends),
        "exit_0": sum(end.code == 0 for end in ends),
        "bad_exits": sum(end.code != 0 and not end.too_late for end in ends),
        "too_late": sum(end.too_late for end in ends),
        "took_p50_s": percentile(took, 50),
        "took_max_s": max(took, default=0.0),
        "too_slow": sum(end.took > end.stated + LEAVING for end in ends),
        "complained": sum(end.complained for end in ends),
        "runs": sum(end.begun for end in ends),
        "cancelled": sum(end.cancelled for end in ends),
        "without_outcome": sum(end.without_outcome for end in ends),
        "wrong_outcomes": sum(end.wrong_outcomes for end in ends),
        "open_rows": sum(end.open_rows for end in ends),
        "claimed": sum(end.claimed for end in ends),
        "nodes": sum(end.nodes for end in ends),
        "damaged": sum(end.damaged for end in ends),
    }


def planned(number: int, random: Random) -> Plan:
    """The kinds take turns, and the rest is left to chance."""
    kind = KINDS[number % len(KINDS)]
    once = " " not in kind
    # After one signal, runs are cut short, or all of them can finish. The second cancels what would never end, if that
    # has not been done already.
    timeout = random.choice((0.2, 0.8, LONGEST + 1) if once else (0.1, 10 * LONGEST, 10 * LONGEST))
    return Plan(
        number=number,
        kind=kind,
        terms=Terms(
            timeout=timeout,
            endless=not once,
            crowd=random.choice((0, 0, 600)),
            slots=random.choice((None, None, 40)),
        ),
        on_a_new_file=random.random() < 0.4,
        delay=random.uniform(0, 0.03) if random.random() < 0.4 else random.uniform(0, 1.5),
        gap=random.uniform(0, 0.02) if random.random() < 0.5 else random.uniform(0, 0.2),
    )


def end_one_after_another(directory: Path, plans: Sequence[Plan]) -> list[Shutdown]:
    """What comes of *plans*. Each program has a file to itself, or what the one before has left of it."""
    directory.mkdir()
    ends: list[Shutdown] = []
    store = directory / "jobs.db"
    for plan in plans:
        if plan.on_a_new_file:
            store = directory / f"jobs-{plan.number}.db"
        ends.append(end_one(store, Log(directory / f"log-{plan.number}"), plan))
    return ends


def end_one(store: Path, log: Log, plan: Plan) -> Shutdown:
    """Start a program, ask it to end, and look at what it left."""
    command = [sys.executable, "-m", "torturing.shutdown", str(store), str(log.path), json.dumps(asdict(plan.terms))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    try:
        wait_until(lambda: bool(log.read()), "a program to start", pause=0.001)
        time.sleep(plan.delay)
        sent: list[int] = []
        for number in plan.signals:
            if sent:
                wait_until(lambda: is_gone_or_told(process), "a signal to be delivered", pause=0.0005)
                time.sleep(max(plan.gap - (time.monotonic_ns() - sent[0]) / 1e9, 0.0))
            sent.append(time.monotonic_ns())
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=PATIENCE)
        ended_at = time.monotonic_ns()
    finally:
        process.kill()
        _, errors = process.communicate()
    lines = log.read()
    stopped_at = next((line.at for line in lines if line.what == "stopped"), ended_at)
    # A signal that comes when the program is almost there may be sent before and arrive afterwards.
    too_late = sent[-1] > stopped_at or (process.returncode == -plan.signals[-1] and lines[-1].what == "stopped")
    return Shutdown(
        kind=plan.kind,
        code=process.returncode,
        took=(ended_at - sent[-1]) / 1e9,
        stated=plan.stated,
        while_starting=all(line.at > sent[0] for line in lines if line.what == "claiming"),
        in_a_pass=is_between("claiming", "claimed", lines, sent[0]),
        too_late=too_late,
        complained=not too_late and complained(errors),
        **what_is_left(store, lines),
    )


def is_gone_or_told(process: subprocess.Popen[str]) -> bool:
    """Whether no signal waits to be delivered any more: a second one of the same kind would be lost."""
    if process.poll() is None:
        with suppress(OSError):  # not Linux
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            return not any(line.startswith(("SigPnd:", "ShdPnd:")) and int(line.split()[1], 16) for line in lines)
    return True


def is_between(begin: str, end: str, lines: Sequence[Line], at: int) -> bool:
    """Whether *at* lies between a *begin* and its *end*."""
    before = [line.what for line in lines if line.at <= at and line.what in (begin, end)]
    return before[-1:] == [begin]


def complained(errors: str) -> bool:
    """Whether a program said anything: a stack trace, an error, a warning of the interpreter."""
    if errors:
        print(errors[:2000])
    return errors != ""


def what_is_left(store: Path, lines: Sequence[Line]) -> dict[str, int]:
    """What the file says about the runs that the log tells of, and what was left behind."""
    with closing(sqlite3.connect(store)) as db:
        rows = db.execute("SELECT job.id, scheduled_for, attempt, outcome FROM run JOIN job USING (uid)").fetchall()
        (claimed,) = db.execute("SELECT COUNT(*) FROM state WHERE activity <> 'idle'").fetchone()
        (nodes,) = db.execute("SELECT COUNT(*) FROM node").fetchone()
        health = db.execute("PRAGMA integrity_check").fetchall()
    outcomes = {(job, due, attempt): outcome for job, due, attempt, outcome in rows if attempt}
    begun = [line[1:4] for line in lines if line.what == "begin"]
    happened = {line[1:4]: line.what for line in lines if line.what in ("end", "cancelled")}
    return {
        "begun": len(begun),
        "cancelled": sum(outcomes.get(run) == "cancelled" for run in begun),
        "without_outcome": sum(outcomes.get(run) is None for run in begun),
        "wrong_outcomes": sum(not fits(run[0], happened.get(run), outcomes.get(run)) for run in begun),
        "open_rows": sum(outcome is None for outcome in outcomes.values()),
        "claimed": claimed,
        "nodes": nodes,
        "damaged": int(health != [("ok",)]),
    }


def fits(job: str, happened: str | None, outcome: str | None) -> bool:
    """Whether a run ended as its row says."""
    if happened == "end" and job.startswith(PLAIN):
        return outcome in ("success", "cancelled")
    return (happened, outcome) in (("end", "success"), ("cancelled", "cancelled"))


# ============================================================ the program


class ObservedStore(SQLiteStore):
    """A store that tells when something is claimed."""

    def __init__(self, path: Path, write: Callable[[str, Run | None], None]) -> None:
        super().__init__(path)
        self._write_line = write

    async def claim_due(self, now: int, terms: ClaimTerms) -> Claims:
        """As the store does."""
        self._write_line("claiming", None)
        try:
            return await super().claim_due(now, terms)
        finally:
            self._write_line("claimed", None)


async def work(path: Path, log: Log, terms: Terms) -> None:
    """Run jobs until asked to end: hundreds that are short, and a few of every kind that takes its time."""
    write, random = log.writer(), Random()
    scheduler = Scheduler(
        ObservedStore(path, write), min_interval=MILLISECOND, max_concurrent=terms.slots, queue_size=terms.slots
    )

    def declare(handler: Callable[[Run], object], count: int, milliseconds: int, priority: str) -> None:
        name = handler.__name__
        for number in range(count):
            every = Every(timedelta(milliseconds=milliseconds), immediately=True)
            scheduler.job(every, id=f"{name}-{number}", handler=name, priority=priority)(handler)

    async def take(run: Run, seconds: float, tidying: float = 0.0) -> None:
        write("begin", run)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(tidying)
            write("cancelled", run)
            raise
        write("end", run)

    async def short(run: Run) -> None:
        await take(run, 0.002)

    async def long(run: Run) -> None:
        await take(run, random.uniform(0.05, LONGEST))

    async def endless(run: Run) -> None:
        await take(run, 3600)

    async def tidy(run: Run) -> None:
        await take(run, LONGEST, tidying=0.4)

    async def deaf(run: Run) -> None:
        write("begin", run)
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until - time.monotonic())
        write("end", run)

    def thread(run: Run) -> None:
        write("begin", run)
        time.sleep(random.uniform(0.05, 1.0))
        write("end", run)

    def crowd(run: Run) -> None:
        write("begin", run)
        time.sleep(0.2)
        write("end", run)

    # Those that take long begin first, so that there is something to wait for.
    declare(short, 300, 50, "low")
    declare(crowd, terms.crowd, 500, "low")
    declare(thread, 4, 200, "high")
    declare(long, 6, 200, "high")
    declare(tidy, 1, 200, "high")
    declare(deaf, 1, 200, "high")
    declare(endless, int(terms.endless), 200, "high")
    # Comes when the call below waits for the first time: from then on, signals are its business.
    asyncio.get_running_loop().call_soon(write, "ready", None)
    await scheduler.run_until_signal(timeout=terms.timeout)
    write("stopped", None)


def main() -> None:
    store, log, terms = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(process)d %(message)s")
    asyncio.run(work(Path(store), Log(Path(log)), Terms(**json.loads(terms))))


if __name__ == "__main__":
    main()
