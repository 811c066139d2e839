"""The commands: what each takes, and what it does with it. How things look is in `screen`.

Start-up counts: whatever takes time to load is loaded by the command that needs it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from scheduler_async import Job, Schedule, Scheduler

T = TypeVar("T")

DEFAULT_STORE = "scheduler.db"
INTERRUPTED = 130  # as shells count

app = typer.Typer(
    name="scheduler-async",
    help="Schedule commands, see what will happen, understand what did, and leave it running.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run_app() -> None:
    """Run the program, and turn what goes wrong into a sentence and an exit code."""
    from scheduler_async.errors import (
        IntervalParseError,
        InvalidJobError,
        InvalidScheduleError,
        SchedulerError,
    )

    # Somebody may have closed what we write to.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    sys.stderr = sys.stderr or sys.stdout
    try:
        try:
            app(prog_name="scheduler-async")
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what could not be written is not tried again at the end
        where = "" if error.filename is None else f" ({error.filename})"
        fail(f"{error.strerror or error}{where}.", 1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (InvalidScheduleError, InvalidJobError, IntervalParseError) as error:
        fail(str(error), 2)
    except SchedulerError as error:
        fail(str(error), 1)


def fail(sentence: str, code: int) -> NoReturn:
    """End the program: it was asked for what makes no sense (2), or what did not work (1)."""
    print(f"Error: {sentence}", file=sys.stderr)
    sys.exit(code)


def misused(sentence: str) -> NoReturn:
    """End the program, which was asked for what makes no sense."""
    fail(sentence, 2)


# ---------------------------------------------------------------- what commands have in common

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH", envvar="SCHEDULER_ASYNC_STORE", help=f"Default: {DEFAULT_STORE}"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="Whose jobs.")]


async def until_enough(show: Callable[[asyncio.Event], Awaitable[None]]) -> NoReturn:
    """Show something until a signal says that it is enough."""
    from scheduler_async.signals import told_of_signals

    enough = asyncio.Event()
    with told_of_signals(enough.set):
        await show(enough)
    raise typer.Exit(INTERRUPTED)


def slugs() -> list[str]:
    """The names of all jobs, for a shell that completes what is typed."""

    async def read() -> list[str]:
        async with opened(None) as scheduler:
            return [job.id for job in await scheduler.list_jobs()]

    try:
        return list(ask(read()))
    except (Exception, SystemExit):  # there is no store here, or it cannot be read: nothing to complete
        return []


SlugArgument = Annotated[str, typer.Argument(metavar="SLUG", help="The name of a job.", autocompletion=slugs)]
AppOption = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:SCHEDULER", help="A program's own scheduler, with its handlers.")
]


def show_version(asked: bool) -> None:
    """Print the version and end, if that was asked for."""
    if asked:
        from scheduler_async import __version__

        print(f"scheduler-async {__version__}")
        raise typer.Exit


@app.callback()
def common(
    store: StoreOption = None,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """What comes before the command."""
    global _store_before_command  # noqa: PLW0603 - a program has one command line
    _store_before_command = store


_store_before_command: str | None = None


def store_path(given: str | None) -> str:
    """The store that was asked for, with the command or before it."""
    return given or _store_before_command or DEFAULT_STORE


def exists(path: str) -> bool:
    """Whether there is a store: a file, or a database elsewhere, which says so itself."""
    return "://" in path or Path(path).exists()


@asynccontextmanager
async def opened(store: str | None, *, create: bool = False, **options: Any) -> AsyncIterator[Scheduler]:
    """A scheduler on the store that was asked for. Only what writes to it makes a new one."""
    from scheduler_async import Scheduler
    from scheduler_async.command import HANDLER, run_command

    path = store_path(store)
    if not create and not exists(path):
        fail(f"There is no store {path} here yet. Add a job to make one, or name another with --store.", 1)
    scheduler = Scheduler(path, **options)
    scheduler.handler(HANDLER)(run_command)
    try:
        yield scheduler
    finally:
        await scheduler.stop()


def ask(work: Coroutine[Any, Any, Any]) -> Any:
    """What *work* comes to."""
    show_warnings()
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def show_warnings() -> None:
    """Let the library's warnings appear as lines, except those about single runs: the commands tell of these."""
    import logging

    def is_wanted(record: logging.LogRecord) -> bool:
        is_told = hasattr(record, "outcome") or bool(record.exc_info)
        return hasattr(record, "signal") or (record.levelno >= logging.WARNING and not is_told)

    logger, handler = logging.getLogger("scheduler_async"), logging.StreamHandler()
    handler.addFilter(is_wanted)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def print_json(value: object) -> None:
    """For programs: the same names always, one value."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


async def find(scheduler: Scheduler, slug: str, namespace: str) -> Job:
    """The job with this name."""
    from scheduler_async import JobNotFoundError

    job = await scheduler.get_job(slug, namespace=namespace)
    if job is None:
        raise JobNotFoundError(slug, namespace)
    return job


# ---------------------------------------------------------------- adding and editing

CommandArgument = Annotated[str, typer.Argument(metavar="COMMAND", help="A line for the shell.")]
CronOption = Annotated[str | None, typer.Option("--cron", metavar="EXPR", help='A cron expression: "0 9 * * *".')]
EveryOption = Annotated[str | None, typer.Option("--every", metavar="5m", help="On a fixed grid.")]
AfterOption = Annotated[str | None, typer.Option("--after", metavar="5m", help="That long after the previous run.")]
AtOption = Annotated[str | None, typer.Option("--at", metavar="TIME", help="Once: 2026-06-15T09:00, or with a zone.")]
TzOption = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="The zone of --cron and --at.")]
PriorityOption = Annotated[str | None, typer.Option("--priority", metavar="high|standard|low")]
RetriesOption = Annotated[int | None, typer.Option("--retries", metavar="2", help="Before the next regular time.")]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", metavar="10m", help="Ends it and its children.")]
MisfireOption = Annotated[str | None, typer.Option("--misfire", metavar="run_once|skip")]
PayloadOption = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="For the command, in $SCHEDULER_ASYNC_PAYLOAD.")
]
GroupOption = Annotated[str | None, typer.Option("--group", help="Jobs that share a limit.")]
CwdOption = Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where it runs. Default: here.")]
EnvOption = Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="May be repeated.")]

DEFAULT_RETRIES = 2


def schedule_of(
    cron: str | None, every: str | None, after: str | None, at: str | None, tz: str | None
) -> Schedule | None:
    """The schedule that was asked for; None if none was."""
    from scheduler_async import Cron, Delay, Every
    from scheduler_async.zones import check_zone

    given = [
        name for name, value in {"cron": cron, "every": every, "after": after, "at": at}.items() if value is not None
    ]
    if len(given) > 1:
        misused(f"--{given[0]} and --{given[1]} exclude each other: a job has one schedule.")
    if tz is not None and given and given[0] not in ("cron", "at"):
        misused(f"--tz is for --cron and --at; --{given[0]} is the same in every zone.")
    if tz is not None:
        check_zone(tz)
    if cron is not None:
        return Cron(cron, tz)
    if every is not None:
        return Every(every)
    if after is not None:
        return Delay(after)
    return None if at is None else moment_of(at, tz)


def moment_of(text: str, tz: str | None) -> Schedule:
    """A one-shot. A time without a zone is on the clock of *tz*, or of the system."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    from scheduler_async import At
    from scheduler_async.cli.words import ReadersZone
    from scheduler_async.zones import check_zone

    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return At(text)  # which says what is wrong with it
    if parsed.tzinfo is not None:
        return At(text)
    there = parsed.replace(tzinfo=ReadersZone() if tz is None else ZoneInfo(check_zone(tz)))
    try:
        shown = there.astimezone(UTC).astimezone(there.tzinfo).replace(tzinfo=None)
    except (OverflowError, ValueError):
        return At(there.replace(tzinfo=UTC))  # the end of the calendar is the same everywhere
    if shown != parsed.replace(fold=0):
        misused(f"There is no {parsed:%H:%M} on that day {f'in {tz}' if tz else 'here'}: clocks go forward.")
    return At(there)


def payload_of(payload: str | None) -> Any:
    """What is given to the command."""
    try:
        return None if payload is None else json.loads(payload)
    except (ValueError, RecursionError) as error:
        misused(f'--payload is no JSON ({error}). It looks like \'{{"to": "ops"}}\'.')


def environment_of(pairs: list[str] | None) -> dict[str, str]:
    """What is added to its environment."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            misused(f"--env is NAME=VALUE, not {pair!r}.")
        found[name] = value
    return found


@app.command()
def add(
    slug: Annotated[str, typer.Argument(metavar="SLUG", help="The name of the new job.")],
    command: CommandArgument,
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    tz: TzOption = None,
    priority: PriorityOption = None,
    retries: RetriesOption = DEFAULT_RETRIES,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it, and let it wait to be resumed.")] = False,
    namespace: NamespaceOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a job that runs COMMAND in a shell. Without a schedule, it runs when it is triggered."""
    from scheduler_async import Manual, Retry
    from scheduler_async.command import HANDLER, Command

    schedule = schedule_of(cron, every, after, at, tz) or Manual()
    where = str(Path.cwd() if cwd is None else Path(cwd).absolute())
    task = Command(command, where, environment_of(env), payload_of(payload))
    if tz is not None and isinstance(schedule, Manual):
        misused("--tz is for --cron and --at, and neither is given.")
    given: dict[str, Any] = {"priority": priority, "misfire": misfire, "timeout": timeout, "group": group}

    async def write() -> Job:
        async with opened(store, create=True) as scheduler:
            return await scheduler.add_job(
                schedule,
                handler=HANDLER,
                id=slug,
                namespace=namespace,
                payload=task.to_payload(),
                retry=Retry.in_window(DEFAULT_RETRIES if retries is None else retries),
                enabled=not disabled,
                **{name: value for name, value in given.items() if value is not None},
            )

    tell_of_job(ask(write()), "Added", as_json)


@app.command()
def edit(
    slug: SlugArgument,
    command: Annotated[str | None, typer.Argument(metavar="[COMMAND]", help="A line for the shell.")] = None,
    cron: CronOption = None,
    every: EveryOption = None,
    after: AfterOption = None,
    at: AtOption = None,
    tz: TzOption = None,
    priority: PriorityOption = None,
    retries: RetriesOption = None,
    timeout: TimeoutOption = None,
    misfire: MisfireOption = None,
    payload: PayloadOption = None,
    group: GroupOption = None,
    cwd: CwdOption = None,
    env: EnvOption = None,
    disabled: Annotated[bool | None, typer.Option("--disabled/--enabled", help="Take it out, or back in.")] = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change what is given, and nothing else. A changed schedule counts from now."""
    from dataclasses import replace

    from scheduler_async import Cron, Retry
    from scheduler_async.command import HANDLER, Command

    where = None if cwd is None else str(Path(cwd).absolute())

    async def write() -> Job:
        async with opened(store) as scheduler:
            job = await find(scheduler, slug, namespace)
            schedule = schedule_of(cron, every, after, at, tz)
            if schedule is None and tz is not None:
                if not isinstance(job.schedule, Cron):
                    misused("--tz is for jobs with --cron; give the schedule too.")
                schedule = Cron(job.schedule.expression, tz)
            given = {
                "schedule": schedule,
                "priority": priority,
                "retry": None if retries is None else Retry.in_window(retries),
                "timeout": timeout,
                "misfire": misfire,
                "group": group,
                "enabled": None if disabled is None else not disabled,
            }
            changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
            if any(part is not None for part in (command, payload, cwd, env)):
                if job.handler != HANDLER:
                    misused(f"The job {slug} runs no command: its handler is {job.handler}.")
                task = Command.from_payload(job.payload)
                task = task if command is None else replace(task, line=command)
                task = task if payload is None else replace(task, payload=payload_of(payload))
                task = task if where is None else replace(task, cwd=where)
                task = task if env is None else replace(task, env=environment_of(env))
                changes["payload"] = task.to_payload()
            if not changes:
                misused("Nothing to change was given.")
            return await scheduler.update_job(slug, namespace=namespace, **changes)

    tell_of_job(ask(write()), "Changed", as_json)


def tell_of_job(job: Job, did: str, as_json: bool) -> None:
    """What became of a job: a sentence, or all of it."""
    from scheduler_async.cli import forms, screen

    if as_json:
        print_json(forms.job_form(job))
    else:
        screen.say(f"{did} {job.id}: {screen.outlook(job)}")


def changed(slug: str, namespace: str, store: str | None, as_json: bool, call: str, did: str) -> None:
    """Do to a job what a method of the scheduler does, and say so."""

    async def write() -> Job:
        async with opened(store) as scheduler:
            job: Job = await getattr(scheduler, call)(slug, namespace=namespace)
            return job

    job = ask(write())
    if did == "Removed" and not as_json:
        from scheduler_async.cli import screen

        screen.say(f"Removed {job.id}")
    else:
        tell_of_job(job, did, as_json)


@app.command()
def remove(
    slug: SlugArgument, namespace: NamespaceOption = "default", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Forget a job and its runs."""
    changed(slug, namespace, store, as_json, "remove_job", "Removed")


@app.command()
def pause(
    slug: SlugArgument, namespace: NamespaceOption = "default", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job not start until it is resumed. A run in progress goes on."""
    changed(slug, namespace, store, as_json, "pause_job", "Paused")


@app.command()
def resume(
    slug: SlugArgument, namespace: NamespaceOption = "default", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job go on, with a clean slate: paused, disabled or failing before."""
    changed(slug, namespace, store, as_json, "resume_job", "Resumed")


# ---------------------------------------------------------------- looking


@app.command("list")
def list_jobs(
    due: Annotated[bool, typer.Option("--due", help="Only what is due now.")] = False,
    priority: PriorityOption = None,
    status: Annotated[str | None, typer.Option("--status", metavar="idle|queued|running|paused|disabled")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Whose jobs. Default: all.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The jobs, by their next run."""
    from scheduler_async.cli import forms, screen

    if watch and (as_json or not sys.stdout.isatty()):
        misused("--watch is for a terminal; a program asks again, with --json.")

    async def read(scheduler: Scheduler) -> list[Job]:
        wanted = {"priority": priority, "status": status, "namespace": namespace}
        now = screen.now()
        jobs = await scheduler.list_jobs(**wanted, due_before=now if due else None)  # type: ignore[arg-type]
        return [job for job in jobs if job.status == "idle"] if due else jobs

    async def show() -> None:
        async with opened(store) as scheduler:
            if watch:
                await until_enough(lambda enough: screen.watch(lambda: read(scheduler), enough))
            elif as_json:
                print_json([forms.listed_form(job) for job in await read(scheduler)])
            else:
                screen.show_jobs(await read(scheduler))

    ask(show())


@app.command()
def show(
    slug: SlugArgument, namespace: NamespaceOption = "default", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """All about a job."""
    from scheduler_async.cli import forms, screen

    async def read() -> tuple[Job, Any]:
        async with opened(store) as scheduler:
            return await find(scheduler, slug, namespace), await scheduler.explain(slug, namespace=namespace)

    job, explanation = ask(read())
    if as_json:
        print_json(forms.job_form(job))
    else:
        screen.show_job(job, explanation)


@app.command()
def log(
    slug: Annotated[str | None, typer.Argument(metavar="[SLUG]", help="Of one job.", autocompletion=slugs)] = None,
    limit: Annotated[int, typer.Option("--limit", min=0)] = 20,
    output: Annotated[bool, typer.Option("--output", help="With what the runs wrote.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as runs end.")] = False,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Whose jobs. Default: all.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What ran and what did not, newest first. With --follow: as it comes."""
    from scheduler_async.cli import forms, screen

    async def read() -> None:
        async with opened(store) as scheduler:
            if slug is not None:
                await find(scheduler, slug, namespace or "default")
            rows = await scheduler.run_log(slug, namespace=namespace, limit=limit)
            outputs = {row.id: await scheduler.run_output(row.id) for row in rows} if output else {}
            if as_json and not follow:
                print_json([forms.row_form(row, outputs.get(row.id), with_output=output) for row in rows])
            elif follow:
                await until_enough(
                    lambda enough: screen.follow(
                        scheduler, slug, namespace, rows, enough, as_json=as_json, with_output=output
                    )
                )
            else:
                screen.show_rows(rows, outputs)

    ask(read())


@app.command()
def stats(
    slug: Annotated[str | None, typer.Argument(metavar="[SLUG]", help="Of one job.", autocompletion=slugs)] = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How runs went: how many, how well, how long they took, and how late they were."""
    from scheduler_async.cli import forms, screen

    async def read() -> list[tuple[str, Any]]:
        async with opened(store) as scheduler:
            names = [job.id for job in await scheduler.list_jobs(namespace=namespace)] if slug is None else [slug]
            return [(name, await scheduler.run_stats(name, namespace=namespace)) for name in names]

    found = ask(read())
    if as_json:
        all_of_it = [forms.stats_form(name, of_job) for name, of_job in found]
        print_json(all_of_it if slug is None else all_of_it[0])
    else:
        screen.show_stats(found)


@app.command()
def preview(
    window: Annotated[str, typer.Option("--window", metavar="60", help="Minutes, or a duration such as 1d.")] = "60",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What would run now and within the window, in order. Nothing is run, and nothing changes."""
    from scheduler_async.cli import forms, screen
    from scheduler_async.durations import parse_interval

    duration = parse_interval(f"{window}m" if window.strip().isdigit() else window)

    async def read() -> list[Any]:
        async with opened(store) as scheduler:
            return await scheduler.preview(duration)

    upcoming = ask(read())
    if as_json:
        print_json([forms.upcoming_form(line) for line in upcoming])
    else:
        screen.show_preview(upcoming, duration)


@app.command()
def explain(
    slug: SlugArgument, namespace: NamespaceOption = "default", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Why a job is not running right now."""
    from scheduler_async.cli import forms, screen

    async def read() -> Any:
        async with opened(store) as scheduler:
            await find(scheduler, slug, namespace)
            return await scheduler.explain(slug, namespace=namespace)

    explanation = ask(read())
    if as_json:
        print_json(forms.explanation_form(explanation))
    else:
        screen.say(str(explanation))


@app.command("next")
def following(
    expression: Annotated[str, typer.Argument(metavar="EXPR", help='"0 9 * * *", "every 5m", "2026-06-15T09:00:00Z".')],
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="The zone of the expression.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1000)] = 10,
    as_json: JsonOption = False,
) -> None:
    """When a schedule runs next, what daylight saving does to it, and what to look out for."""
    from scheduler_async import parse_schedule
    from scheduler_async.cli import screen

    schedule = parse_schedule(expression, tz)
    if as_json:
        print_json(screen.following_form(schedule, count))
    else:
        screen.show_following(schedule, count)


# ---------------------------------------------------------------- running


def load(target: str) -> Scheduler:
    """A program's scheduler: "module:name", found from the working directory."""
    from importlib import import_module

    from scheduler_async import Scheduler

    name, colon, attribute = target.partition(":")
    if not name or not colon or not attribute:
        misused(f"{target!r} is not MODULE:SCHEDULER, such as myapp.jobs:scheduler.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever a program may do when it is imported
        fail(f"Cannot load {target}: {type(error).__name__}: {error}", 1)
    if not isinstance(found, Scheduler):
        fail(f"{target} is no Scheduler, but {type(found).__name__}.", 1)
    return found


@asynccontextmanager
async def ready_to_run(
    target: str | None, store: str | None, *, create: bool, **options: Any
) -> AsyncIterator[Scheduler]:
    """A scheduler with handlers: that of a program, or one on a store that runs commands."""
    from scheduler_async import InvalidJobError
    from scheduler_async.command import HANDLER, run_command

    if target is not None and (_store_before_command or store) not in (None, os.environ.get("SCHEDULER_ASYNC_STORE")):
        misused(f"{target} has a store of its own: leave out --store.")
    if target is None:
        async with opened(store, create=create, **options) as scheduler:
            yield scheduler
        return
    scheduler = load(target)
    with suppress(InvalidJobError):  # it has one of its own
        scheduler.handler(HANDLER)(run_command)
    try:
        yield scheduler
    finally:
        await scheduler.stop()


async def heeding_signals(scheduler: Scheduler, work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """What *work* comes to, and whether somebody asked to end meanwhile: then what runs is cancelled, and recorded."""
    from scheduler_async.signals import told_of_signals

    asked = asyncio.Event()
    with told_of_signals(asked.set):
        doing, asking = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
        await asyncio.wait([doing, asking], return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        if not doing.done():
            await scheduler.stop(cancel=True)
        return await doing, asked.is_set()


@app.command()
def trigger(
    slug: SlugArgument,
    target: AppOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job now, in this process, and wait for it. Its schedule stays as it is."""
    from scheduler_async.cli import forms, screen

    async def run_it() -> tuple[Any, str | None]:
        async with ready_to_run(target, store, create=False) as scheduler:

            async def to_its_end() -> int:
                number = await scheduler.trigger_job(slug, namespace=namespace)
                await scheduler.wait_for_run(number)
                return number

            number, _ = await heeding_signals(scheduler, to_its_end())
            rows = await scheduler.run_log(slug, namespace=namespace)
            (row,) = (row for row in rows if row.id == number)
            return row, await scheduler.run_output(number)

    row, output = ask(run_it())
    if as_json:
        print_json(forms.row_form(row, output, with_output=True))
    else:
        if output:
            sys.stdout.write(output if output.endswith("\n") else f"{output}\n")
        screen.tell_of_run(row)
    if row.outcome == "cancelled":
        raise typer.Exit(INTERRUPTED)
    if row.outcome.is_failure:
        raise typer.Exit(1)


@app.command()
def cron(
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many at a time.")] = 1,
    target: AppOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """One pass: run what is due, in order, and say how it went. For the system's cron, every minute."""
    from scheduler_async.cli import forms, screen

    if target is not None and jobs > 1:
        misused(f"{target} has a limit of its own: leave out --jobs.")

    async def one_pass() -> Any:
        options = {} if target is not None else {"max_concurrent": jobs if jobs > 1 else None}
        async with ready_to_run(target, store, create=False, **options) as scheduler, screen.progress(scheduler):
            return await heeding_signals(scheduler, scheduler.run_pending())

    summary, interrupted = ask(one_pass())
    if as_json:
        print_json(forms.summary_form(summary))
    else:
        screen.say(str(summary))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command()
def run(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:SCHEDULER]", help="A program's own scheduler, with its handlers.")
    ] = None,
    max_concurrent: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="How many at a time.")] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="What runs get to finish when it is asked to end.")] = "30s",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run jobs when they are due, until SIGTERM or SIGINT. The second one ends what runs."""
    from scheduler_async import SchedulerShutdownError
    from scheduler_async.cli import screen

    async def until_asked_to_end() -> None:
        options = {} if target is not None else {"max_concurrent": max_concurrent}
        async with (
            ready_to_run(target, store, create=True, **options) as scheduler,
            screen.telling(scheduler, as_json=as_json),
        ):
            try:
                await scheduler.run_until_signal(timeout)
            except SchedulerShutdownError as error:
                print(f"Error: {error}", file=sys.stderr, flush=True)
                os._exit(1)  # who does not end when told to must not keep the program; the next start records it

    if target is not None and max_concurrent is not None:
        misused(f"{target} has a limit of its own: leave out --jobs.")
    ask(until_asked_to_end())
