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
    AfterJobOption,
    AfterOption,
    AtOption,
    CatchUpOption,
    CronOption,
    CwdOption,
    DelayOption,
    EnvOption,
    EveryOption,
    GraceOption,
    GroupOption,
    InstancesOption,
    JsonOption,
    ManualOption,
    MaxRunsOption,
    MisfireOption,
    NamespaceOption,
    OnOption,
    OtherwiseOption,
    OutcomeOption,
    OverlapOption,
    PayloadOption,
    PriorityOption,
    SlugArgument,
    StoreOption,
    TimeoutOption,
    TzOption,
    UnsetEnvOption,
    WhenTzOption,
    WholeNumber,
    calendar_of,
    directory_of,
    environment_of,
    moment_given,
    on_calendar,
    payload_of,
    policy_given,
    schedule_of,
    unless_none,
    zone_of,
)
from scheduler_async.cli.printing import put_json
from scheduler_async.cli.store_access import open_scheduler

if TYPE_CHECKING:
    from scheduler_async import Calendar, Job, Schedule


def add(
    slug: Annotated[str, typer.Argument(metavar="SLUG")],
    command: Annotated[str, typer.Argument(metavar="COMMAND")],
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    after_job: AfterJobOption = None,
    outcome: OutcomeOption = None,
    delay: DelayOption = None,
    manual: ManualOption = False,
    tz: TzOption = None,
    on: OnOption = None,
    otherwise: OtherwiseOption = None,
    priority: PriorityOption = None,
    retries: Annotated[
        int, typer.Option("--retries", metavar="N", click_type=WholeNumber(0), help=RETRIES_HELP)
    ] = DEFAULT_RETRIES,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    catch_up: CatchUpOption = None,
    misfire_grace: GraceOption = None,
    max_instances: InstancesOption = None,
    overlap: OverlapOption = None,
    max_runs: MaxRunsOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    disabled: Annotated[
        bool, typer.Option("--disabled", help="Add the job, and do not run it until it is resumed.")
    ] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="NAME", help="The namespace of the job.")
    ] = DEFAULT_NAMESPACE,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a job that runs COMMAND in a shell. Without a schedule, it runs only when it is triggered."""
    from scheduler_async import Manual, Retry
    from scheduler_async.command import HANDLER, Command
    from scheduler_async.jobs.names import check_name

    zone = unless_none(tz)
    follows = {"after_job": after_job, "outcome": outcome, "delay": delay}
    schedule = schedule_of(cron, every, after, at, manual, zone, has_calendar=bool(on), **follows) or Manual()
    if tz is not None and isinstance(schedule, Manual):
        misused("--tz needs --cron or --at.")
    schedule = on_calendar(schedule, on, otherwise, zone)
    where = directory_of(cwd, store) or str(Path.cwd())
    task = Command(command, where, environment_of(env), payload_of(payload))
    policy = policy_given(misfire, catch_up, misfire_grace, max_instances, overlap, max_runs)
    given: dict[str, Any] = {"priority": priority}
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
                **policy,
                **{name: value for name, value in given.items() if value is not None},
            )

    print_job(run_async(write(), about_jobs=False), "Added", as_json)


def edit(
    slug: SlugArgument,
    command: Annotated[str | None, typer.Argument(metavar="[COMMAND]")] = None,
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    after_job: AfterJobOption = None,
    outcome: OutcomeOption = None,
    delay: DelayOption = None,
    manual: ManualOption = False,
    tz: TzOption = None,
    on: OnOption = None,
    otherwise: OtherwiseOption = None,
    priority: PriorityOption = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", click_type=WholeNumber(0), help=RETRIES_HELP)
    ] = None,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    catch_up: CatchUpOption = None,
    misfire_grace: GraceOption = None,
    max_instances: InstancesOption = None,
    overlap: OverlapOption = None,
    max_runs: MaxRunsOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    unset_env: UnsetEnvOption = None,
    disabled: Annotated[bool | None, typer.Option("--disabled/--enabled", help="Disable or enable the job.")] = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a job. Only the options you pass change; a new schedule counts from now.

    To clear a setting, pass --timeout none, --group none, --tz none, --on none, --misfire-grace none, --max-runs none,
    --manual, --payload null or --unset-env.
    """
    from dataclasses import replace

    from scheduler_async import InvalidJobError, Retry
    from scheduler_async.command import HANDLER, Command

    follows = {"after_job": after_job, "outcome": outcome, "delay": delay}
    schedule = schedule_of(cron, every, after, at, manual, unless_none(tz), has_calendar=bool(on), **follows)
    keeps_none = on is not None and unless_none(on[0]) is None
    calendar = None if keeps_none else calendar_of(on)
    added, where = environment_of(env), directory_of(cwd, store)
    policy = policy_given(misfire, catch_up, misfire_grace, max_instances, overlap, max_runs)

    def changed_task(job: Job) -> Command:
        if job.handler != HANDLER:
            raise InvalidJobError(f'Job "{slug}" does not run a command: its handler is {job.handler}.', "handler")
        task = Command.from_payload(job.payload)
        missing = [name for name in unset_env or [] if name not in task.env]
        if missing:
            raise InvalidJobError(f'--unset-env {missing[0]}: job "{slug}" has no such variable.', "payload")
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
            "schedule": edited_schedule(schedule, job, tz, calendar, otherwise, keeps_none),
            "priority": priority,
            "retry": None if retries is None else Retry.in_window(retries),
            "enabled": None if disabled is None else not disabled,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        taken_away = {"timeout": timeout, "group": group}
        changes |= {name: unless_none(value) for name, value in taken_away.items() if value is not None}
        changes |= policy
        if any(part is not None for part in (command, payload, cwd, env, unset_env)):
            changes["payload"] = changed_task(job).to_payload()
        if not changes:
            raise InvalidJobError('Nothing to change. "scheduler-async edit --help" shows the options.', "changes")
        return changes

    async def write() -> Job:
        async with open_scheduler(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            return await scheduler._editor.update_by(where, job_id, changes_of)

    print_job(run_async(write(), about_jobs=False), "Changed", as_json)


def remove(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Remove a job, and cancel its run in progress. The log keeps its runs for a week."""
    changed(slug, namespace, store, as_json, "remove_job", "Removed")


def pause(
    slug: SlugArgument,
    reason: Annotated[
        str | None,
        typer.Option("--reason", metavar="TEXT", help="Why the job is paused. list, show and explain show it."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="WHEN",
            help="When the job resumes by itself: 2h (from now), 18:00 (the next), 'tomorrow 9:00', 2026-06-15T09:00.",
        ),
    ] = None,
    tz: WhenTzOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pause a job until it is resumed, or until a time. A run in progress continues.

    To change the reason or the end, pause the job again.
    """
    zone = zone_of(tz)
    if tz is not None and until is None:
        misused("--tz is the zone of --until. Pass both, or leave it out.")
    end = None if until is None else moment_given(until, "--until", zone, ahead=True)
    changed(slug, namespace, store, as_json, "pause_job", "Paused", reason=reason, until=end)


def resume(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Resume a job that was paused or disabled, and reset its count of failures."""
    changed(slug, namespace, store, as_json, "resume_job", "Resumed")


def changed(
    slug: str, namespace: str | None, store: str | None, as_json: bool, call: str, did: str, **options: Any
) -> None:
    """Change a job with the method *call* of the scheduler and its *options*, and print what it *did*."""

    async def write() -> Job:
        async with open_scheduler(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            job: Job = await getattr(scheduler, call)(job_id, namespace=where, **options)
            return job

    job = run_async(write(), about_jobs=False)
    if did == "Removed" and not as_json:
        from scheduler_async.cli import terminal

        terminal.say(f"Removed {name_of(job.namespace, job.id)}")
    else:
        print_job(job, did, as_json)


def edited_schedule(
    schedule: Schedule | None,
    job: Job,
    tz: str | None,
    calendar: Calendar | None,
    otherwise: str | None,
    keeps_none: bool,
) -> Schedule | None:
    """Return the edited schedule, on the calendar that it had unless there is another one; None if nothing changes."""
    from scheduler_async import At, InvalidJobError, Manual
    from scheduler_async.schedules.on_calendar import OnCalendar

    old = job.schedule
    plain = old.schedule if isinstance(old, OnCalendar) else old
    had = old.calendar if isinstance(old, OnCalendar) else None
    kept = None if keeps_none or isinstance(schedule, At | Manual) else had
    wanted = calendar or kept
    if otherwise is not None and wanted is None:
        raise InvalidJobError("--otherwise needs --on: it says what becomes of runs outside a calendar.", "schedule")
    is_placed = isinstance(old, OnCalendar) or calendar is not None
    if schedule is None and calendar is None and otherwise is None and not keeps_none and not (tz and is_placed):
        return zoned(None, plain, tz)
    has_interval = plain.zone_name() is None and plain.kind != "cron" and schedule is None
    base = plain if has_interval and tz is not None else zoned(schedule, plain, tz) or plain
    if wanted is None:
        return base
    was = old.otherwise if isinstance(old, OnCalendar) else "skip"
    placed = base.on(wanted, otherwise or was)
    zone = unless_none(tz) or (old.tz if isinstance(old, OnCalendar) else None)
    return placed if zone is None else placed.in_zone(zone)


def zoned(schedule: Schedule | None, old: Schedule, tz: str | None) -> Schedule | None:
    """Return the edited schedule: a new expression keeps the zone, and a new zone keeps the expression."""
    from dataclasses import replace

    from scheduler_async import Cron, InvalidJobError

    if isinstance(old, Cron) and isinstance(schedule, Cron):
        return replace(old, expression=schedule.expression, tz=old.tz if tz is None else schedule.tz)
    if schedule is not None or tz is None:
        return schedule
    if not isinstance(old, Cron):
        raise InvalidJobError("--tz alone applies to a job with a cron schedule. Pass --cron or --at too.", "schedule")
    return replace(old, tz=unless_none(tz))


def print_job(job: Job, did: str, as_json: bool) -> None:
    """Print what was done to a job: as a sentence, or the whole job as JSON."""
    from scheduler_async.cli import job_views, terminal

    if as_json:
        put_json(job.to_json())
    else:
        terminal.say(f"{did} {name_of(job.namespace, job.id)}: {job_views.outlook(job)}")
