"""How the future looks on a terminal: the runs that `preview` expects, and the occurrences that `next` computes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.console import RenderableType

from scheduler_async.cli.job_views import names_of_jobs
from scheduler_async.cli.program_rules import RETRIES_UNKNOWN
from scheduler_async.cli.safe_text import Text
from scheduler_async.cli.tables import Cell, Row
from scheduler_async.cli.terminal import HERE, coloured, console, laid_out, now, print_line, say
from scheduler_async.jobs.answers import Upcoming
from scheduler_async.jobs.json_forms import plain
from scheduler_async.schedules.at import At
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping import time_format
from scheduler_async.timekeeping.instants import LAST, from_micros, span, to_micros

# More runs than a reader wants to see one by one, and more jobs than a timeline shows at a glance.
MANY_RUNS, MANY_JOBS = 20, 30


# ---------------------------------------------------------------- preview


def show_preview(upcoming: Sequence[Upcoming], window: timedelta) -> None:
    """Print a timeline, and a table of the runs on it."""
    from scheduler_async.cli.timeline import draw_timeline

    if not upcoming:
        say("Nothing is due in that time.")
        return
    screen = console()
    begin = now()
    keys = list(dict.fromkeys(one.job.key for one in upcoming))
    drawn = set(keys[:MANY_JOBS])
    timeline = draw_timeline(
        [one for one in upcoming if one.job.key in drawn],
        begin,
        from_micros(min(to_micros(begin) + span(window), LAST)),
        width=min(screen.width, 120),
        zone=HERE,
        ascii=screen.encoding.lower() != "utf-8",
    )
    for line in timeline:
        screen.print(Text(line), soft_wrap=True)
    if len(keys) > MANY_JOBS:
        say(f"The timeline shows the first {MANY_JOBS} of {len(keys):,} jobs. The table has them all.")
    screen.print()
    screen.print(runs_table(upcoming) if len(upcoming) <= MANY_RUNS else summary_table(upcoming))
    if any(RETRIES_UNKNOWN in one.warnings for one in upcoming):
        say('Retries "-": the program of the job decides how often it is retried.')


def runs_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """Return a table with a line for each run."""
    rows = [
        (one.at, name, coloured(one.job.priority), _left(one), _warnings([one]))
        for name, one in zip(names_of_jobs([one.job for one in upcoming]), upcoming, strict=True)
    ]
    return laid_out(("at", "slug", "priority", "retries_left", "warnings"), rows)


def summary_table(upcoming: Sequence[Upcoming]) -> RenderableType:
    """Return a table with a line for each job."""
    by_job: dict[str, list[Upcoming]] = {}
    for one in upcoming:
        by_job.setdefault(one.job.key, []).append(one)
    rows: list[Row] = []
    names = names_of_jobs([runs[0].job for runs in by_job.values()])
    for name, runs in zip(names, by_job.values(), strict=True):
        first, last = runs[0], runs[-1]
        until: Cell = last.at if len(runs) > 1 else "-"
        priority = coloured(first.job.priority)
        rows.append((name, str(len(runs)), first.at, until, priority, _left(first), _warnings(runs)))
    return laid_out(("slug", "runs", "first", "last", "priority", "retries_left", "warnings"), rows)


def _warnings(runs: Sequence[Upcoming]) -> str:
    """Return the warnings of *runs*, each once, without the one that stands below the table."""
    found = dict.fromkeys(warning for one in runs for warning in one.warnings)
    return "; ".join(warning for warning in found if warning != RETRIES_UNKNOWN)


def _left(one: Upcoming) -> str:
    return "-" if one.retries_left is None else str(one.retries_left)


# ---------------------------------------------------------------- next


def following_form(schedule: Schedule, count: int) -> dict[str, Any]:
    """Return the next *count* occurrences of *schedule* as JSON."""
    from scheduler_async.cli.cron_traps import traps
    from scheduler_async.schedules.next_runs import following

    return {
        "schedule": schedule.to_json(),
        "description": schedule.describe(HERE),
        "occurrences": [
            {
                "at": plain(one.at),
                "there": one.there.isoformat(),
                "here": one.here.isoformat(),
                "note": one.note,
            }
            for one in following(schedule, now(), count, HERE)
        ],
        "warnings": traps(schedule, now()),
    }


def show_following(schedule: Schedule, count: int) -> None:
    """Print the next *count* occurrences of *schedule*, in its zone and in the reader's, and warnings about it."""
    from scheduler_async.cli.cron_traps import traps
    from scheduler_async.schedules.next_runs import following, has_zone

    described = schedule.describe(HERE)
    say(f"{described[:1].upper()}{described[1:]}.")
    found = following(schedule, now(), count, HERE)
    is_zoned = has_zone(schedule)
    is_elsewhere = is_zoned and any(one.there.utcoffset() != one.here.utcoffset() for one in found)
    heads = ("when", "there", "here", "note") if is_elsewhere else ("when", "at", "note")
    rows: list[Row] = []
    for one in found:
        clocks = (one.there, one.here) if is_elsewhere else (one.there if is_zoned else one.here,)
        cells = (f"{at:%a %Y-%m-%d %H:%M:%S %Z}" for at in clocks)
        rows.append((time_format.relative(one.at, now()), *cells, one.note or ""))
    if found:
        console().print(laid_out(heads, rows))
    elif schedule.follows_runs:
        say("It has no times of its own: it runs when a run of that job ends.")
    else:
        is_over = isinstance(schedule, At) or schedule.end is not None
        say("Its time has passed." if is_over else "Its times cannot be computed in advance.")
    if 0 < len(found) < count and not schedule.runs_once and schedule.next_after(found[-1].at) is not None:
        say("Later occurrences are left out: after 400 years the calendar repeats itself.")
    for trap in traps(schedule, now()):
        print_line(Text.assemble(("Warning: ", "yellow"), trap))
