"""Stopped and started again inside their processes, called meanwhile, and edited at the last moment."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from scheduler_async import At, Every, Job, JobSpec, Manual, RunRow
from torturing.accounts import (
    MILLISECOND,
    PATIENT,
    SECOND,
    Goals,
    Grid,
    Line,
    instant,
    key_of,
    left_out,
    micros_of,
    now_micros,
    overlaps,
    periods,
)
from torturing.crew import Crew, Terms, wait_until
from torturing.postgres import a_server, make_tables

STORES = ("file", "server")

# These never have anything left to do, or they end by themselves: the crew does not pause or remove them.
LASTING = ("every", "once", "moved")


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What there is to look at when it is over."""

    lines: list[Line]
    jobs: list[Job]
    rows: list[RunRow]
    grids: dict[str, Grid]
    shots: dict[str, int]
    nodes: int
    errors: int


def restless(
    directory: Path, quick: bool, _random: Random, goals: Goals, stores: Iterable[str] = STORES
) -> dict[str, object]:
    """Three processes that stop and start their schedulers at random moments, in every way there is.

    Meanwhile they call them: `trigger_job()` and `run_pending()` race `stop()`, and jobs are edited, moved, paused and
    removed in the last 50 ms before they are due. Lost is a one-shot that did not end well, wherever it was moved, an
    occurrence that no row tells of, and a run that a caller was told has begun and that has not. Twice is what ran
    again although no row says that it was cut short.
    """
    titles = ["store", "stops", "calls", "edits", "triggers", "due", "run", "merged", "cut short", "twice", "lost"]
    titles += ["at once", "wrong", "open", "claimed", "nodes", "hung", "raised"]
    layout = " ".join(f"{{:>{max(len(title), 6)}}}" for title in titles)
    print(f"\nrestless: three processes that stop and start\n{layout.format(*titles)}")
    figures: dict[str, object] = {}
    for store in stores:
        with an_address(store) as url:
            row = counted(unsettle(directory / f"restless-{store}", url, seconds=3 if quick else 20))
        figures[store] = row
        print(layout.format(store, *(row[title.replace(" ", "_")] for title in titles[1:])), flush=True)
        done = f"{row['stops']} stops, {row['edits']} edits, {row['triggers']} triggered runs"
        goals.expect(
            f"restless, {store}: some of each: {done}", all(row[name] for name in ("stops", "edits", "triggers"))
        )
        goals.expect_none(f"restless, {store}: one-shots, occurrences and triggered runs lost", row["lost"])
        goals.expect_none(f"restless, {store}: run twice, and no row says why", row["twice"])
        goals.expect_none(f"restless, {store}: two runs of a job at once", row["at_once"])
        goals.expect_none(f"restless, {store}: outcomes that are not what happened", row["wrong"])
        left = row["open"] + row["claimed"] + row["nodes"]
        goals.expect_none(f"restless, {store}: rows left open, jobs left running, nodes left behind", left)
        goals.expect_none(f"restless, {store}: calls without an end", row["hung"])
        goals.expect_none(f"restless, {store}: errors and bad exits", row["raised"] + row["errors"])
    return figures


@contextmanager
def an_address(store: str) -> Iterator[str | None]:
    """The URL of a new server; none for a file."""
    if store == "file":
        yield None
        return
    with a_server() as server:
        asyncio.run(make_tables(server.url))
        yield server.url


def unsettle(directory: Path, url: str | None, seconds: int) -> Aftermath:
    """Let jobs of all kinds come due for *seconds*, and the rest of them come to its end."""
    with Crew(directory, Terms(restless=True), url=url) as crew:
        crew.start_and_wait(3)
        begin, window = now_micros() + SECOND, seconds * SECOND
        grids = {
            f"every-{number}": Grid(first=begin + number * 10_000, step=250_000, count=4 * seconds)
            for number in range(15)
        }
        shots = {f"once-{number}": begin + number * 20_000 for number in range(50 * seconds)}
        others = {
            **{f"moved-{number}": At(instant(begin + number * window // 20)) for number in range(20)},
            **{f"removed-{number}": At(instant(begin + number * window // 20)) for number in range(20)},
            **{f"paused-{number}": Every(200 * MILLISECOND) for number in range(5)},
            **{f"changed-{number}": Every(200 * MILLISECOND) for number in range(5)},
            **{f"manual-{number}": Manual() for number in range(5)},
        }
        schedules = {**{name: At(instant(at)) for name, at in shots.items()}, **others}
        crew.add(
            [grid.spec(name, "long") for name, grid in grids.items()]
            + [
                JobSpec(schedule, handler="long", id=name, retry=PATIENT, payload=[0.01, 0.01])
                for name, schedule in schedules.items()
            ]
        )
        time.sleep(seconds + 1)
        wait_until(
            lambda: not any(job.enabled for job in crew.records()[0] if job.id.startswith(LASTING)),
            "the last runs",
            pause=0.5,
        )
        bad_exits = crew.stop()
        jobs, rows = crew.records()
        return Aftermath(
            lines=crew.log.read(),
            jobs=jobs,
            rows=rows,
            grids=grids,
            shots=shots,
            nodes=crew.nodes(),
            errors=bad_exits + crew.errors_logged(),
        )


def counted(left: Aftermath) -> dict[str, int]:
    """One row of the table."""
    said = Counter(line.what for line in left.lines)
    runs = periods(left.lines, {})
    begun = Counter((run.job, run.scheduled_for) for run in runs)
    well = {(line.job, line.scheduled_for, line.attempt) for line in left.lines if line.what == "end"}
    ended = {(job, at) for job, at, _ in well}
    cut_short = Counter(key_of(row) for row in left.rows if row.outcome in ("cancelled", "interrupted"))
    succeeded = {key_of(row) for row in left.rows if row.outcome == "success"}
    merged = left_out(left.rows, left.grids)
    due = {(name, moment) for name, grid in left.grids.items() for moment in grid.all()}
    told = {key_of(row) for row in left.rows if row.attempt} | merged.keys()
    moved = {(job.id, micros_of(job.schedule.at)) for job in left.jobs if isinstance(job.schedule, At)}
    shots = left.shots.items() | {shot for shot in moved if shot[0].startswith("moved")}
    kept = {job.id for job in left.jobs}
    triggered = {line.scheduled_for for line in left.lines if line.what == "triggered" and line.job in kept}
    by_id = {row.id: key_of(row) for row in left.rows}
    lost = [shot for shot in shots if shot not in ended & succeeded] + sorted(due - told)
    never_begun = [number for number in triggered if by_id.get(number) not in begun]
    return {
        "stops": said["stopped"],
        "calls": said["called"],
        "edits": said["edited"],
        "triggers": len(triggered),
        "due": len(due) + len(shots),
        "run": len(begun),
        "merged": merged.total(),
        "cut_short": cut_short.total(),
        "twice": sum(max(number - 1 - cut_short[key], 0) for key, number in begun.items()),
        "lost": len(lost) + len(never_begun),
        "at_once": overlaps(runs),
        "wrong": sum(row.outcome == "success" and (*key_of(row), row.attempt) not in well for row in left.rows),
        "open": sum(row.outcome is None for row in left.rows),
        "claimed": sum(job.status in ("running", "queued") for job in left.jobs),
        "nodes": left.nodes,
        "hung": said["hung"],
        "raised": said["raised"],
        "errors": left.errors,
    }
