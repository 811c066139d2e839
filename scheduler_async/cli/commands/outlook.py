"""Commands about the future: preview, next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.options import (
    ExpressionTzOption,
    JsonOption,
    OnOption,
    OtherwiseOption,
    StoreOption,
    WholeNumber,
    moment_of,
    on_calendar,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    pass


def preview(
    window: Annotated[
        str,
        typer.Option("--window", metavar="DURATION", help="How far to look: minutes, or a duration such as 2h or 1d."),
    ] = "60",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which jobs run now and within the window, in order. It runs no job and changes nothing."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import outlook_views, terminal
    from scheduler_async.cli.program_rules import as_far_as_known
    from scheduler_async.timekeeping.durations import parse_interval
    from scheduler_async.timekeeping.instants import to_micros

    duration = parse_interval(f"{window}m" if window.strip().isdigit() else window)

    async def read() -> list[Any]:
        async with open_scheduler(store) as scheduler:
            upcoming = await scheduler.preview(duration)
            now = terminal.now()
            return as_far_as_known(upcoming, await scheduler.list_jobs(due_before=now), to_micros(now))

    upcoming = run_async(read())
    if as_json:
        put_json([json_output.upcoming_form(line) for line in upcoming])
    else:
        outlook_views.show_preview(upcoming, duration)


def following(
    expression: Annotated[str, typer.Argument(metavar="EXPR")],
    tz: ExpressionTzOption = None,
    on: OnOption = None,
    otherwise: OtherwiseOption = None,
    count: Annotated[
        int,
        typer.Option("-n", "--count", metavar="N", click_type=WholeNumber(1, 1000), help="The number of occurrences."),
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show when a schedule would run, and warn about clock changes and common mistakes."""
    from scheduler_async import AnyOf, At, Cron, parse_schedule
    from scheduler_async.cli import outlook_views
    from scheduler_async.schedules.on_calendar import OnCalendar
    from scheduler_async.timekeeping.zones import check_zone

    zone = None if tz is None else check_zone(tz)
    is_date = expression.strip()[:4].isdigit() and "-" in expression[:6] and " on " not in expression
    schedule = moment_of(expression, zone) if is_date else parse_schedule(expression, zone)
    if isinstance(schedule, OnCalendar | AnyOf):
        schedule = schedule if zone is None else schedule.in_zone(zone)
    elif zone is not None and not isinstance(schedule, Cron | At) and not on:
        misused(f"--tz applies to cron expressions and times; {expression!r} is the same in every zone.")
    schedule = on_calendar(schedule, on, otherwise, zone)
    if as_json:
        put_json(outlook_views.following_form(schedule, count))
    else:
        outlook_views.show_following(schedule, count)
