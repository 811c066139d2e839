"""The clock jumps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

from scheduler_async import At, Cron, Delay, Every, Job, JobSpec, RunRow
from scheduler_async.rules.missed import MAX_MISSED
from scheduler_async.schedules.base import Schedule
from torturing.accounts import (
    MILLISECOND,
    PATIENT,
    SECOND,
    Goals,
    Line,
    Period,
    instant,
    micros_of,
    now_micros,
    overlaps,
    periods,
    wall_ahead,
)
from torturing.crew import Crew, Terms, shift, wait_until

MINUTE, HOUR, DAY = 60, 3_600, 86_400  # seconds
YEAR = 365 * DAY
ABSURD = 400 * DAY

# There and back, ahead of the time and behind it. Three seconds back lead to what has just run.
JUMPS = (
    *(1, -1, -3, 3, -MINUTE, MINUTE, HOUR, -HOUR, -HOUR, HOUR, DAY, -DAY, -DAY, DAY),
    *(YEAR, -YEAR, -YEAR, YEAR, ABSURD, -ABSURD, -ABSURD, ABSURD),
)
QUICK = (-1, -3, 3, HOUR, -HOUR, -YEAR, YEAR, ABSURD, -ABSURD)

PACE = 200_000  # microseconds
# Half of that: whenever the clock jumps, many runs are in progress.
TAKES = 0.1  # seconds
# How late a run may begin, on a machine that is busy with other things.
LATE = 500_000  # microseconds
# How long nothing may be heard of a delay. A second back is no jump, and the clock is waited for.
SILENCE = 1.5  # seconds


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The time from a jump to the next. Its moments are those of the monotonic clock, in nanoseconds."""

    jump: int
    offset: int
    begun: int
    ended: int
    wall_ahead: int

    @property
    def is_absurd(self) -> bool:
        """Whether the clock is not to be believed."""
        return abs(self.offset) > YEAR + DAY

    @property
    def length(self) -> int:
        """In microseconds."""
        return (self.ended - self.begun) // 1000

    def shown(self, at: int) -> int:
        """What the workers' clocks show, in microseconds."""
        return (at + self.wall_ahead) // 1000 + self.offset * SECOND

    def has(self, at: int) -> bool:
        """Whether it was then."""
        return self.begun <= at < self.ended


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The occurrences of a job, numbered, from the beginning of time to its end."""

    phase: int
    step: int

    def number(self, moment: int) -> int:
        """The latest one up to *moment*."""
        return (moment - self.phase) // self.step


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What a row says: the occurrences of *job* from *first* to *last* are not run."""

    job: str
    first: int
    last: int
    written: int


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What there is to look at when it is over."""

    stretches: list[Stretch]
    lines: list[Line]
    runs: list[Period]
    jobs: list[Job]
    rows: list[LeftOut]
    beats: dict[str, Beat]
    delays: set[str]
    shots: dict[str, int]
    pids: set[int]
    warnings: list[str]
    errors: int


def clock(directory: Path, quick: bool, random: Random, goals: Goals) -> dict[str, object]:
    """Two processes whose wall clock jumps while they work, by up to a year, and by more than that.

    There are jobs on grids, by cron and with delays, and one-shots in what is jumped over and in what comes twice.
    An occurrence that a jump passes over may be run late, or left out with a row. One that comes again has run, or is
    run now. `still` are those that came and were not run, since their job waited for the clock to be where it was.
    """
    left = jump_about(directory / "clock", QUICK if quick else JUMPS, 1.2 if quick else 2.0, random)
    titles = ("jump", "told by", "runs", "at most", "in 1 s", "twice", "lost", "still", "at once", "shots", "all on")
    layout = "{:>8} {:>8} {:>6} {:>8} {:>8} {:>6} {:>6} {:>6} {:>8} {:>6} {:>9}"
    print(f"\nclock: two processes, and the clock jumps\n{layout.format(*titles)}")
    figures: dict[str, dict[str, float]] = {}
    total = Counter[str]()
    for number in range(1, len(left.stretches)):
        stretch, row = left.stretches[number], what_came_of(left, number)
        figures[f"{number}: {in_words(stretch.jump)}"] = row
        total.update(row)
        print(
            layout.format(
                in_words(stretch.jump),
                row["told_by"],
                row["runs"],
                row["at_most"],
                f"{row['most_in_a_second']} of {row['allowed_in_a_second']}",
                row["twice"],
                row["lost"],
                row["still"],
                row["at_once"],
                row["one_shots"],
                "held" if stretch.is_absurd else f"{row['all_on_ms']:.0f} ms",
            )
        )
    said = [line for line in left.warnings if " Held, since the wall clock jumped" in line]
    print(*said[:1], sep="\n")
    wanted = len(left.pids) * sum(stretch.is_absurd for stretch in left.stretches)
    goals.expect(f"clock: runs in progress when it jumps: {total['in_progress']}", total["in_progress"] >= 10)
    goals.expect_none("clock: occurrences run twice", total["twice"])
    goals.expect_none("clock: jobs that run in a storm", total["storms"])
    goals.expect_none("clock: jumps with more runs than there may be", total["too_many"])
    goals.expect_none("clock: occurrences neither run nor accounted for", total["lost"])
    goals.expect_none("clock: occurrences and delays that wait for the clock to be where it was", total["still"])
    goals.expect_none("clock: two runs of a job at once", total["at_once"])
    goals.expect_none("clock: one-shots lost", total["one_shots_lost"])
    goals.expect_none("clock: one-shots run before their time", one_shots_too_early(left))
    goals.expect_none("clock: runs begun while an absurd jump is held", total["begun_while_held"])
    goals.expect(f"clock: absurd jumps told in state().problem: {total['held_by']}", total["held_by"] == wanted)
    goals.expect(f"clock: absurd jumps told in a warning: {len(said)}", len(said) == wanted)
    goals.expect_none("clock: jobs disabled", sum(job.disabled_reason not in (None, "ended") for job in left.jobs))
    goals.expect_none("clock: errors and bad exits", left.errors)
    return {**figures, "errors": left.errors}


# ---------------------------------------------------------------- what is done


def jump_about(directory: Path, jumps: Sequence[int], seconds: float, random: Random) -> Aftermath:
    """Let the clock jump while two processes work, each time *seconds* after the jump before, or a little later."""
    offset = directory.with_suffix(".offset")
    shift(offset, 0)
    ahead = wall_ahead()
    with Crew(directory, Terms(offset=str(offset))) as crew:
        pids = {process.pid for process in crew.start_and_wait(2)}
        schedules = schedules_that_go_on()
        crew.add([spec_of(name, schedule) for name, schedule in schedules.items()])
        created = {job.id: micros_of(job.created_at) for job in crew.records()[0]}
        beats = {name: beat for name in schedules if (beat := beat_of(schedules[name], created[name])) is not None}
        seen = schedules.keys() - {"minute"}
        wait_until(lambda: seen <= {line.job for line in crew.log.read()}, "the first runs")

        moments = [time.monotonic_ns()]
        for jump in (0, *jumps):
            again = -jump if -MINUTE < jump < 0 else 0  # for that long it shows what has run
            moments.append(moments[-1] + int((seconds + again + random.uniform(0.0, 0.1)) * 1e9))
        plan = stretches_of(jumps, moments, ahead)
        shots = shots_in(plan, random)
        crew.add([spec_of(name, At(instant(at))) for name, at in shots.items()])

        jumped = moments[:1]
        for stretch in plan[1:]:
            sleep_until(stretch.begun)
            jumped.append(time.monotonic_ns())
            shift(offset, stretch.offset)
        sleep_until(moments[-1])
        jumped.append(time.monotonic_ns())
        bad_exits = crew.stop()
        lines, (jobs, rows) = crew.log.read(), crew.records()
        return Aftermath(
            stretches=stretches_of(jumps, jumped, ahead),
            lines=lines,
            runs=periods(lines, {}),
            jobs=jobs,
            rows=left_out(rows, beats),
            beats=beats,
            delays=schedules.keys() - beats.keys(),
            shots=shots,
            pids=pids,
            warnings=crew.errors.read_text().splitlines(),
            errors=bad_exits + crew.errors_logged(),
        )


def sleep_until(moment: int) -> None:
    """Wait for a moment of the monotonic clock."""
    time.sleep(max(moment - time.monotonic_ns(), 0) / 1e9)


def schedules_that_go_on() -> dict[str, Schedule]:
    """Grids that began long ago and grids that begin when they are added, delays, and cron."""
    long_ago = instant(now_micros() - 2 * ABSURD * SECOND)
    steps = [timedelta(microseconds=PACE) + number * 10 * MILLISECOND for number in range(10)]
    return {
        **{f"old-{number}": Every(step, anchor=long_ago) for number, step in enumerate(steps)},
        **{f"new-{number}": Every(step) for number, step in enumerate(steps)},
        **{f"delay-{number}": Delay(step) for number, step in enumerate(steps[:5])},
        "second": Cron("* * * * * *", tz="UTC"),
        "minute": Cron("* * * * *", tz="UTC"),
    }


def spec_of(name: str, schedule: Schedule) -> JobSpec:
    """A job with this schedule."""
    return JobSpec(schedule, handler="long", id=name, payload=[TAKES, TAKES], retry=PATIENT)


def beat_of(schedule: Schedule, created: int) -> Beat | None:
    """The occurrences of a job, computed here and not by the scheduler; None if they depend on what ran."""
    if isinstance(schedule, Every):
        phase = created if schedule.anchor is None else micros_of(schedule.anchor)
        return Beat(phase=phase, step=schedule.interval // timedelta(microseconds=1))
    if isinstance(schedule, Cron):
        return Beat(phase=0, step=SECOND if schedule.expression == "* * * * * *" else MINUTE * SECOND)
    return None


def stretches_of(jumps: Sequence[int], moments: Sequence[int], ahead: int) -> list[Stretch]:
    """The stretch before the first jump, and one after each."""
    offsets = [sum(jumps[:number]) for number in range(len(jumps) + 1)]
    return [
        Stretch(jump=jump, offset=offset, begun=begun, ended=ended, wall_ahead=ahead)
        for jump, offset, (begun, ended) in zip((0, *jumps), offsets, pairwise(moments), strict=True)
    ]


def shots_in(plan: Sequence[Stretch], random: Random) -> dict[str, int]:
    """One-shots in what will be jumped over, and in what the clock will show, once or twice."""
    moments: list[int] = []
    for before, stretch in pairwise(plan):
        if stretch.offset < 0:
            continue  # that is over already
        first, last = before.shown(stretch.begun), stretch.shown(stretch.begun)
        if stretch.is_absurd:
            first += (YEAR + 2 * DAY) * SECOND  # where a jump of a year does not get
        if first < last:
            moments += [random.randrange(first, last) for _ in range(5)]
        moments += [random.randrange(last, stretch.shown(stretch.ended) - LATE) for _ in range(5)]
    return {f"once-{number}": moment for number, moment in enumerate(moments)}


# ---------------------------------------------------------------- what came of it


def what_came_of(left: Aftermath, number: int) -> dict[str, float]:
    """One row of the table."""
    stretch = left.stretches[number]
    runs = [run for run in left.runs if stretch.has(run.begun)]
    in_progress = [run for run in left.runs if run.begun < stretch.begun < run.ended]
    before = {(run.job, run.scheduled_for) for run in left.runs if run.begun < stretch.begun}
    begun = Counter((run.job, run.scheduled_for) for run in runs)
    told = told_of(left, stretch)
    steps = {name: beat.step for name, beat in left.beats.items()} | dict.fromkeys(left.delays, PACE)

    soon = Counter(run.job for run in runs if run.begun < stretch.begun + 1e9)
    # What its pace allows, wherever the second begins, and one run to make up for what was missed.
    allowed = {name: SECOND // step + 2 for name, step in steps.items()} | dict.fromkeys(left.shots, 1)
    due = sum((name, at) not in before and at <= stretch.shown(stretch.ended) for name, at in left.shots.items())
    at_most = due + sum(stretch.length // step + 2 for step in steps.values())
    first = {run.job: run.begun for run in sorted(runs, key=lambda run: -run.begun)}
    went_on = [(first.get(name, stretch.ended) - stretch.begun) / 1e6 for name in steps if name != "minute"]
    row = {
        "told_by": len({line.pid for line in told}),
        "held_by": len({line.pid for line in told if line.what == "held"}),
        "in_progress": len(in_progress),
        "runs": len(runs),
        # By an absurd clock, only what was claimed before it jumped.
        "at_most": len(steps) if stretch.is_absurd else at_most,
        "most_in_a_second": max(soon.values(), default=0),
        "allowed_in_a_second": max(allowed.values()),
        "storms": sum(count > allowed[name] for name, count in soon.items()),
        "twice": sum(count - 1 for count in begun.values()) + len(begun.keys() & before),
        "lost": 0 if stretch.is_absurd else occurrences_lost(left, number),
        "still": 0 if stretch.is_absurd else stood_still(left, stretch, runs, before),
        "at_once": overlaps([*in_progress, *runs]),
        "one_shots": sum(run.job in left.shots for run in runs),
        "one_shots_lost": 0 if stretch.is_absurd else one_shots_lost(left, number),
        "begun_while_held": begun_while_held(left, stretch, runs) if stretch.is_absurd else 0,
        "all_on_ms": max(went_on),
    }
    return {**row, "too_many": int(row["runs"] > row["at_most"])}


def occurrences_lost(left: Aftermath, number: int) -> int:
    """Occurrences that were jumped over or came after the jump, of which neither the log nor a row tells."""
    stretch = left.stretches[number]
    before = next(other for other in reversed(left.stretches[:number]) if not other.is_absurd)
    since = noticed(left, stretch)
    if before.shown(before.ended) < stretch.shown(stretch.begun):
        since = max(noticed(left, before), before.shown(before.ended) - LATE)
    # What is due when the clock goes back is not due any more.
    until = stretch.shown(stretch.ended) - LATE
    return sum(
        left_open(beat.number(since) + 1, beat.number(until), accounts(name, beat, left.rows, left.runs))
        for name, beat in left.beats.items()
    )


def stood_still(left: Aftermath, stretch: Stretch, runs: Sequence[Period], before: Iterable[tuple[str, int]]) -> int:
    """Occurrences that came for the first time and were neither run nor left out then, and delays that did not end."""
    since, until = noticed(left, stretch), stretch.shown(stretch.ended) - LATE
    begun, ended = stretch.shown(stretch.begun), stretch.shown(stretch.ended)
    rows = [row for row in left.rows if begun <= row.written <= ended]
    count = 0
    for name, beat in left.beats.items():
        ran = [(beat.number(moment), beat.number(moment)) for job, moment in before if job == name]
        settled = accounts(name, beat, rows, runs) + ran
        count += left_open(beat.number(since) + 1, beat.number(until), settled)
    for name in left.delays:
        heard = [stretch.begun, *sorted(run.begun for run in runs if run.job == name), stretch.ended]
        silent = any(following - last > SILENCE * 1e9 for last, following in pairwise(heard))
        count += silent or stretch.shown(heard[-2]) < since
    return count


def told_of(left: Aftermath, stretch: Stretch) -> list[Line]:
    """What processes said of the jump."""
    return [line for line in left.lines if line.what in ("jumped", "held") and stretch.has(line.at)]


def noticed(left: Aftermath, stretch: Stretch) -> int:
    """When both processes had noticed the jump, and what was in progress then was over."""
    return stretch.shown(max((line.at for line in told_of(left, stretch)), default=stretch.begun)) + LATE // 2


def accounts(name: str, beat: Beat, rows: Iterable[LeftOut], runs: Iterable[Period]) -> list[tuple[int, int]]:
    """The occurrences of a job that were left out or run, as ranges."""
    ran = [beat.number(run.scheduled_for) for run in runs if run.job == name]
    return [(row.first, row.last) for row in rows if row.job == name] + [(number, number) for number in ran]


def left_open(first: int, last: int, settled: Iterable[tuple[int, int]]) -> int:
    """How many numbers from *first* to *last* are in none of the ranges."""
    count = 0
    for begin, end in sorted(settled):
        if begin > last:
            break
        count += max(begin - first, 0)
        first = max(first, end + 1)
    return count + max(last - first + 1, 0)


def left_out(rows: Iterable[RunRow], beats: Mapping[str, Beat]) -> list[LeftOut]:
    """The occurrences that rows account for as not run. One that counts no further means all until it was written."""
    found = []
    for row in rows:
        if row.attempt == 0 and row.job_id in beats and row.finished_at is not None:
            beat, written = beats[row.job_id], micros_of(row.finished_at)
            first = beat.number(micros_of(row.scheduled_for))
            last = beat.number(written) if row.missed == MAX_MISSED else first + row.missed - 1
            found.append(LeftOut(job=row.job_id, first=first, last=last, written=written))
    return found


def one_shots_lost(left: Aftermath, number: int) -> int:
    """One-shots that were due for the first time, and never run."""
    *earlier, reached = (
        stretch.shown(stretch.ended) - LATE for stretch in left.stretches[: number + 1] if not stretch.is_absurd
    )
    ran = {run.job for run in left.runs}
    return sum(max(earlier) < at <= reached and name not in ran for name, at in left.shots.items())


def one_shots_too_early(left: Aftermath) -> int:
    """One-shots that only an absurd clock has shown, and that do not wait for their time."""
    reached = max(stretch.shown(stretch.ended) for stretch in left.stretches if not stretch.is_absurd)
    waiting = {job.id for job in left.jobs if job.next_run_at is not None}
    return sum(at > reached and name not in waiting for name, at in left.shots.items())


def begun_while_held(left: Aftermath, stretch: Stretch, runs: Iterable[Period]) -> int:
    """Runs that began when both processes had said that they hold all, or that were not due when it jumped."""
    since, until = noticed(left, stretch), stretch.shown(stretch.begun) - stretch.jump * SECOND + LATE // 2
    return sum(stretch.shown(run.begun) > since or run.scheduled_for > until for run in runs)


def in_words(seconds: int) -> str:
    """A jump, as short as people say it."""
    for name, unit in {"y": YEAR, "d": DAY, "h": HOUR}.items():
        if seconds % unit == 0:
            return f"{seconds // unit:+d} {name}"
    return f"{seconds:+d} s"
