"""Commands that change jobs: add, edit, remove, pause, resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.job_names import DEFAULT_NAMESPACE, name_of, resolve
from scheduler_async.cli.options import (
    DEFAULT_RETRIES,
    RETRIES_HELP,
    AfterOption,
    AtOption,
    CronOption,
    CwdOption,
    EnvOption,
    EveryOption,
    GroupOption,
    JsonOption,
    ManualOption,
    MisfireOption,
    NamespaceOption,
    PayloadOption,
    PriorityOption,
    SlugArgument,
    StoreOption,
    TimeoutOption,
    TzOption,
    UnsetEnvOption,
    WholeNumber,
    directory_of,
    environment_of,
    payload_of,
    schedule_of,
    unless_none,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    from scheduler_async import Job, Schedule


def add(
    slug: Annotated[str, typer.Argument(metavar="SLUG")],
    command: Annotated[str, typer.Argument(metavar="COMMAND")],
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    manual: ManualOption = False,
    tz: TzOption = None,
    priority: PriorityOption = None,
    retries: Annotated[
        int, typer.Option("--retries", metavar="N", click_type=WholeNumber(0), help=RETRIES_HELP)
    ] = DEFAULT_RETRIES,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it, and let it wait to be resumed.")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="The namespace of the job.")
    ] = DEFAULT_NAMESPACE,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a job that runs COMMAND in a shell. Without a schedule, it runs when it is triggered."""
    from scheduler_async import Manual, Retry
    from scheduler_async.command import HANDLER, Command
    from scheduler_async.jobs.names import check_name

    schedule = schedule_of(cron, every, after, at, manual, unless_none(tz)) or Manual()
    if tz is not None and isinstance(schedule, Manual):
        misused("--tz is for --cron and --at, and neither is given.")
    where = directory_of(cwd, store) or str(Path.cwd())
    task = Command(command, where, environment_of(env), payload_of(payload))
    given: dict[str, Any] = {"priority": priority, "misfire": misfire}
    check_name(slug, "slug")

    async def write() -> Job:
        async with open_scheduler(store, create=True) as scheduler:
            return await scheduler.add_job(
                schedule,
                handler=HANDLER,
                id=slug,
                namespace=namespace,
                payload=task.to_payload(),
                retry=Retry.in_window(retries),
                timeout=unless_none(timeout),
                group=unless_none(group),
                enabled=not disabled,
                **{name: value for name, value in given.items() if value is not None},
            )

    tell_of_job(run_async(write(), about_jobs=False), "Added", as_json)


def edit(
    slug: SlugArgument,
    command: Annotated[str | None, typer.Argument(metavar="[COMMAND]")] = None,
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    manual: ManualOption = False,
    tz: TzOption = None,
    priority: PriorityOption = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", click_type=WholeNumber(0), help=RETRIES_HELP)
    ] = None,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    unset_env: UnsetEnvOption = None,
    disabled: Annotated[bool | None, typer.Option("--disabled/--enabled", help="Take it out, or back in.")] = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is given, and nothing else. A changed schedule counts from now.

    The word none takes away: --timeout none, --group none, --tz none. So do --manual, --payload null and --unset-env.
    """
    from dataclasses import replace

    from scheduler_async import InvalidJobError, Retry
    from scheduler_async.command import HANDLER, Command

    schedule = schedule_of(cron, every, after, at, manual, unless_none(tz))
    added, where = environment_of(env), directory_of(cwd, store)

    def changed_task(job: Job) -> Command:
        if job.handler != HANDLER:
            raise InvalidJobError(f"The job {slug} runs no command: its handler is {job.handler}.", "handler")
        task = Command.from_payload(job.payload)
        missing = [name for name in unset_env or [] if name not in task.env]
        if missing:
            raise InvalidJobError(f"--unset-env {missing[0]}: no --env has added that to {slug}.", "payload")
        kept = {name: value for name, value in task.env.items() if name not in (unset_env or [])}
        return replace(
            task,
            line=task.line if command is None else command,
            payload=task.payload if payload is None else payload_of(payload),
            cwd=where or task.cwd,
            env={**kept, **added},
        )

    def changes_of(job: Job) -> dict[str, Any]:
        given: dict[str, Any] = {
            "schedule": zoned(schedule, job, tz),
            "priority": priority,
            "retry": None if retries is None else Retry.in_window(retries),
            "misfire": misfire,
            "enabled": None if disabled is None else not disabled,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        taken_away = {"timeout": timeout, "group": group}
        changes |= {name: unless_none(value) for name, value in taken_away.items() if value is not None}
        if any(part is not None for part in (command, payload, cwd, env, unset_env)):
            changes["payload"] = changed_task(job).to_payload()
        if not changes:
            raise InvalidJobError(
                'Nothing to change was given. "scheduler-async edit --help" shows what can be.', "changes"
            )
        return changes

    async def write() -> Job:
        async with open_scheduler(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            return await scheduler._editor.update_by(where, job_id, changes_of)

    tell_of_job(run_async(write(), about_jobs=False), "Changed", as_json)


def remove(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Forget a job and its runs."""
    changed(slug, namespace, store, as_json, "remove_job", "Removed")


def pause(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job not start until it is resumed. A run in progress goes on."""
    changed(slug, namespace, store, as_json, "pause_job", "Paused")


def resume(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job go on that was paused, disabled or failing. It gets a clean slate."""
    changed(slug, namespace, store, as_json, "resume_job", "Resumed")


def changed(slug: str, namespace: str | None, store: str | None, as_json: bool, call: str, did: str) -> None:
    """Do to a job what a method of the scheduler does, and say so."""

    async def write() -> Job:
        async with open_scheduler(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            job: Job = await getattr(scheduler, call)(job_id, namespace=where)
            return job

    job = run_async(write(), about_jobs=False)
    if did == "Removed" and not as_json:
        from scheduler_async.cli import terminal

        terminal.say(f"Removed {name_of(job.namespace, job.id)}")
    else:
        tell_of_job(job, did, as_json)


def zoned(schedule: Schedule | None, job: Job, tz: str | None) -> Schedule | None:
    """What an edit makes of the schedule: another expression keeps the zone, another zone keeps the expression."""
    from dataclasses import replace

    from scheduler_async import Cron, InvalidJobError

    old = job.schedule
    if isinstance(old, Cron) and isinstance(schedule, Cron):
        return replace(old, expression=schedule.expression, tz=old.tz if tz is None else schedule.tz)
    if schedule is not None or tz is None:
        return schedule
    if not isinstance(old, Cron):
        raise InvalidJobError("--tz is for jobs with --cron; give the schedule too.", "schedule")
    return replace(old, tz=unless_none(tz))


def tell_of_job(job: Job, did: str, as_json: bool) -> None:
    """What became of a job: a sentence, or all of it."""
    from scheduler_async.cli import json_output, render, terminal

    if as_json:
        put_json(json_output.job_form(job))
    else:
        terminal.say(f"{did} {name_of(job.namespace, job.id)}: {render.outlook(job)}")
