"""Commands that steer the runs of any process: cancel."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.job_names import name_of
from scheduler_async.cli.options import JsonOption, RunArgument, StoreOption
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

# A scheduler notices the request within two seconds.
PATIENCE = 3.0  # seconds

ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why the run is cancelled. The run log keeps it.")
]


def cancel(
    run_id: RunArgument,
    reason: ReasonOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a run of any process. It is not run again; the schedule of its job continues."""
    from scheduler_async.calls import json_output
    from scheduler_async.cli import run_views, terminal
    from scheduler_async.cli.run_following import ended_soon

    async def cancel_it() -> tuple[Any, Any]:
        async with open_scheduler(store) as scheduler:
            await scheduler.cancel_run(run_id, reason=reason)
            return await ended_soon(scheduler, run_id, PATIENCE), await scheduler.get_run(run_id)

    ended, row = run_async(cancel_it())
    if as_json:
        put_json(json_output.row_form(ended or row))
    elif ended is not None:
        run_views.say_how_it_ended(ended)
    else:
        name = name_of(row.namespace, row.job_id)
        terminal.say(f"Asked to cancel run {run_id} of {name}. It ends when its handler has tidied up.")
