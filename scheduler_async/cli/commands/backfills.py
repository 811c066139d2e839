"""Commands about past occurrences: backfill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.commands.running import heeding_signals, ready_to_run
from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.job_names import find
from scheduler_async.cli.options import (
    AppOption,
    JsonOption,
    NamespaceOption,
    PeriodTzOption,
    SlugArgument,
    StoreOption,
    TriggerPayloadOption,
    WholeNumber,
    instant_of,
    payload_of,
    unless_none,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.unfinished_line import end_line

if TYPE_CHECKING:
    from scheduler_async import Backfill


def backfill(
    slug: SlugArgument,
    start: Annotated[str, typer.Argument(metavar="FROM")],
    end: Annotated[str, typer.Argument(metavar="TO")],
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", click_type=WholeNumber(1), help="How many run at once.")
    ] = 1,
    again: Annotated[bool, typer.Option("--again", help="Also run occurrences that have succeeded.")] = False,
    payload: TriggerPayloadOption = None,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="Leave the work to the running schedulers, and do not wait.")
    ] = False,
    tz: PeriodTzOption = None,
    target: AppOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the regular occurrences of a job between FROM and TO, oldest first, and show the progress.

    Occurrences that have succeeded are left out. The job runs in this process, and running schedulers take part. The
    schedule of the job does not change.
    """
    from scheduler_async.cli import live, terminal
    from scheduler_async.cli.error_text import command_for
    from scheduler_async.cli.ownership import acting_as_user
    from scheduler_async.command import HANDLER
    from scheduler_async.engine.single_pass import SinglePass
    from scheduler_async.errors import quoted

    zone = unless_none(tz)
    first, last = instant_of(start, zone, "FROM"), instant_of(end, zone, "TO")
    if first >= last:
        misused(f'FROM must be before TO, but "{start}" is not before "{end}".')
    given = payload_of(payload)
    options = {} if target else {"max_concurrent": jobs}

    async def run_it() -> tuple[Backfill, bool]:
        async with ready_to_run(target, store, create=False, **options) as scheduler:
            job = await find(scheduler, slug, namespace)
            if target is None and job.handler != HANDLER and not anywhere:
                misused(
                    f'Job "{slug}" does not run a command. Pass --app with the program that has its handler '
                    f"{quoted(job.handler)}, or --anywhere to leave it to the schedulers that are running."
                )
            value = given if payload is None or job.handler != HANDLER else {**job.payload, "payload": given}
            with acting_as_user():
                made = await scheduler.backfill_job(
                    job.id, first, last, namespace=job.namespace, max_concurrent=jobs, again=again, payload=value
                )
            if anywhere:
                return made, False
            engine = scheduler._engine
            await engine.ready_for_a_pass()
            with live.backfilling(made) as show:
                work = SinglePass(engine, engine.setting.clock.micros()).work_off(made.number, show)
                return await heeding_signals(scheduler, work)

    found, was_interrupted = run_async(run_it())
    end_line()
    if as_json:
        put_json(found.to_json())
    elif anywhere:
        terminal.say(f"Backfill {found.number}: {found.total} to run. The running schedulers run them.")
    else:
        terminal.say(f"{found}.")
        if found.failed:
            terminal.say(f"{command_for('log', found.job_id, found.namespace, '--failed')} shows why.")
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)
    if found.failed:
        raise typer.Exit(1)
