"""The commands: what each takes, and what it does with it. How things look is in `screen`.

Start-up counts: whatever takes time to load is loaded by the command that needs it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from scheduler_async.cli import INTERRUPTED, leave
from scheduler_async.cli.printing import put, put_json, put_output

if TYPE_CHECKING:
    import asyncio

    from scheduler_async import Job, Schedule, Scheduler, Store
    from scheduler_async.stores.messages import NodeRow

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])

DEFAULT_STORE = "scheduler.db"
DEFAULT_NAMESPACE = "default"
STORE_VARIABLE = "SCHEDULER_ASYNC_STORE"

# The values of `Priority`, `Status` and `Misfire`, without loading what they belong to.
PRIORITIES = ("high", "standard", "low")
STATUSES = ("idle", "queued", "running", "paused", "disabled")
MISFIRES = ("run_once", "skip")

NONE = "none"
"""What takes a setting away."""

READER_LEFT = 141  # as shells count: the code of a program that SIGPIPE ends


class ReaderLeft(Exception):  # noqa: N818 - nothing went wrong
    """Nobody reads the output any more, as in `scheduler-async list | head -1`."""


@contextmanager
def noticing_readers() -> Iterator[None]:
    """Raise `ReaderLeft` if the output is a pipe that nobody reads: click would end the program with 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeft from error


class Group(TyperGroup):
    """All commands. What they print, and their help, may have a reader who leaves early."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read what comes before the command."""
        with noticing_readers():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the command does."""
        with noticing_readers():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Group,
    name="scheduler-async",
    help="Schedule commands, see what will happen, understand what did, and leave it running.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,  # click does
    context_settings={"help_option_names": ["-h", "--help"]},
)

ARGUMENTS = {
    "slug": "The name of the job.",
    "command": "A line for the shell, in quotes.",
    "expression": "Such as '0 9 * * *', '@daily', 'every 5m' or '2026-06-15T09:00'.",
    "target": "A program's own scheduler, with its handlers.",
    "source": "The store to copy: a path, or a URL.",
    "destination": "The store to copy to. A file is made if there is none.",
}


TRUST_HELP = "Use a store file of another user. Its commands run as you."


class Command(TyperCommand):
    """A command that tells what its arguments are: click 8.5 loses what typer is told about them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if isinstance(parameter, TyperArgument) and parameter.name in ARGUMENTS:
                parameter.help = ARGUMENTS[parameter.name]
        if any(parameter.name in ("store", "source") for parameter in self.params):
            self.params.append(
                TyperOption(param_decls=["--trust"], is_flag=True, expose_value=False, callback=trust, help=TRUST_HELP)
            )

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave them to typer, which lists them before the options, whatever the version of click."""


def command(name: str | None = None) -> Callable[[F], F]:
    """Make a command of a function."""
    return app.command(name, cls=Command)


def run_app() -> None:
    """Run the program. A reader who leaves early ends it without a word."""
    # Somebody may have closed what we write to.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    sys.stderr = sys.stderr or sys.stdout
    try:
        run_command_line()
    except (ReaderLeft, BrokenPipeError):
        forget_output(1, 2)
        sys.exit(READER_LEFT)


def forget_output(*streams: int) -> None:
    """Drop what could not be written to *streams*: Python would try again when it ends, and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nothing, stream)


def run_command_line() -> None:
    """Do what the arguments ask for, and turn what goes wrong into a sentence and an exit code."""
    from scheduler_async.errors import InvalidJobError, InvalidScheduleError, JobEndedError, SchedulerError

    try:
        try:
            check_arguments(sys.argv[1:])
            code = app(prog_name="scheduler-async", standalone_mode=False)
        finally:
            sys.stdout.flush()
        sys.exit(code or 0)
    except click.Abort:
        sys.exit(INTERRUPTED)
    except click.UsageError as error:
        refuse(error)
    except SchedulerError as error:
        from scheduler_async.cli.sentences import sentence_of

        is_misuse = isinstance(error, InvalidScheduleError | InvalidJobError) and not isinstance(error, JobEndedError)
        fail(sentence_of(error), 2 if is_misuse else 1)
    except (ReaderLeft, BrokenPipeError):
        raise
    except OSError as error:
        forget_output(1)
        what = "Cannot write the output" if error.filename is None else f"Cannot use {error.filename}"
        fail(f"{what}: {error.strerror or error}.", 1)
    except Exception as error:  # a mistake of ours; what it says may hold anything
        from scheduler_async.texts import traceback_of

        put(traceback_of(error), stderr=True, keep="\n")
        sys.exit(1)


def check_arguments(arguments: list[str]) -> None:
    """Refuse what a store could not keep and a terminal could not show."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            misused(f"{os.fsencode(argument)!r} is no text in UTF-8.")


def fail(sentence: str, code: int) -> NoReturn:
    """End the program: it was asked for what makes no sense (2), or what did not work (1)."""
    put_error(sentence)
    sys.exit(code)


def put_error(sentence: str) -> None:
    """Print what went wrong, without the passwords of URLs that were given."""
    from scheduler_async.stores.addresses import redacted

    put(f"Error: {redacted(sentence)}", stderr=True)


def refuse(error: click.UsageError) -> NoReturn:
    """Say in a sentence what click has to say in four lines."""
    message = error.format_message()
    if "\n" in message:  # all of the help, for who asked for nothing
        put(message, stderr=True, keep="\n")
        sys.exit(2)
    program = "scheduler-async" if error.ctx is None else error.ctx.command_path
    misused(f'{message.rstrip(".")}. "{program} --help" shows what there is.')


def misused(sentence: str) -> NoReturn:
    """End the program, which was asked for what makes no sense."""
    fail(sentence, 2)


# ---------------------------------------------------------------- what a shell completes


def slugs(context: typer.Context) -> list[tuple[str, str]]:
    """The names of the jobs in the store that the line so far names, and when they run."""
    from scheduler_async.cli.forms import name_of
    from scheduler_async.cli.words import ReadersZone

    given = context.params
    before = {} if context.parent is None else context.parent.params
    store = given.get("store") or before.get("store")

    async def read() -> list[tuple[str, str]]:
        async with opened(store) as scheduler:
            namespace = given.get("namespace")
            names = {
                job.id if namespace is not None else name_of(job.namespace, job.id): job.schedule
                for job in await scheduler.list_jobs(namespace=namespace)
            }
            return [(name, names[name].describe(ReadersZone())) for name in names if name.isprintable()]

    try:
        with redirect_stderr(StringIO()):  # warnings would appear in the middle of the line
            return list(ask(read()))
    except (Exception, SystemExit):  # there is no store here, or it cannot be read: nothing to complete
        return []


def zones() -> list[str]:
    """The names of all time zones."""
    from zoneinfo import available_timezones

    return sorted(available_timezones())


# ---------------------------------------------------------------- what commands have in common


class WholeNumber(click.ParamType):  # type: ignore[type-arg]
    """An option that takes a whole number, no smaller than *least* and no larger than *most*."""

    name = "number"

    def __init__(self, least: int, most: int = 1_000_000) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or what is wrong with it."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is no whole number", param, ctx)
        if not self.least <= number <= self.most:
            self.fail(f"{number} is not between {self.least} and {self.most:,}", param, ctx)
        return number


def one_of(values: Sequence[str]) -> click.Choice[str]:
    """An option that takes one of *values*, however they are written."""
    return click.Choice(values, case_sensitive=False)


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        envvar=STORE_VARIABLE,
        click_type=click.Path(readable=False),
        help=f"The file that holds the jobs. Default: {DEFAULT_STORE}",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="The namespace of the job, unless SLUG is NAMESPACE/SLUG."),
]
AnyNamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Only of this namespace. Default: of all.")
]
SlugArgument = Annotated[str, typer.Argument(metavar="SLUG", autocompletion=slugs)]
AnySlugArgument = Annotated[str | None, typer.Argument(metavar="[SLUG]", autocompletion=slugs)]
AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:SCHEDULER", help=ARGUMENTS["target"])]


async def until_enough(show: Callable[[asyncio.Event], Awaitable[None]]) -> NoReturn:
    """Show something until a signal says that it is enough."""
    import asyncio

    from scheduler_async.signals import told_of_signals

    enough = asyncio.Event()
    with told_of_signals(enough.set):
        await show(enough)
    raise typer.Exit(INTERRUPTED)


def trust(_context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Use a store file that belongs to somebody else, if that was asked for, before the command or with it."""
    global _is_trusted  # noqa: PLW0603 - a program has one command line
    _is_trusted = _is_trusted or asked


_is_trusted = False


def show_version(asked: bool) -> None:
    """Print the version and end, if that was asked for."""
    if asked:
        from scheduler_async import __version__

        put(f"scheduler-async {__version__}")
        raise typer.Exit


@app.callback()
def common(
    store: StoreOption = None,
    trusted: Annotated[bool, typer.Option("--trust", help=TRUST_HELP, callback=trust)] = False,  # noqa: ARG001
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
    path = given if given is not None else _store_before_command
    if path is None:
        return DEFAULT_STORE
    if not path.strip():
        misused("--store names no file. It takes a path such as jobs.db.")
    if path == ":memory:":
        misused("--store :memory: would keep nothing, since every command is a program of its own. Name a file.")
    return path


def is_url(path: str) -> bool:
    """Whether a store is a database elsewhere; `SchedulerError` if it cannot be told."""
    from scheduler_async.stores import addresses

    return addresses.is_url(path)


def store_at(path: str) -> Store:
    """Return the store at *path*, which is the path of a file or a URL."""
    from scheduler_async.scheduler import _store_of

    store = _store_of(path)
    guard_file(store)
    return store


def guard_file(store: Store) -> None:
    """Let *store* open no file of another user, unless --trust is given."""
    from scheduler_async.cli.ownership import guard
    from scheduler_async.stores.sqlite.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        guard(store, trusted=_is_trusted)


def check_there(path: str, remedy: str = "Add a job to make one, or name another with --store.") -> None:
    """Refuse to go on without a store: a file with something in it, or a database elsewhere, which says so itself."""
    if is_url(path):
        return
    if not os.path.exists(path):  # noqa: PTH110 - it takes every text
        fail(f"There is no store {path} here yet. {remedy}", 1)
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        fail(f"The file {path} is empty, and no store yet. {remedy}", 1)


@asynccontextmanager
async def opened(store: str | None, *, create: bool = False, **options: Any) -> AsyncIterator[Scheduler]:
    """A scheduler on the store that was asked for. Only what writes to it makes a new one."""
    from scheduler_async import Scheduler
    from scheduler_async.command import HANDLER, run_command

    path = store_path(store)
    if not create:
        check_there(path)
    scheduler = Scheduler(store_at(path), **options)
    scheduler.handler(HANDLER)(run_command)
    try:
        yield scheduler
    finally:
        await scheduler.stop()


def ask(work: Coroutine[Any, Any, Any], *, about_jobs: bool = True) -> Any:
    """What *work* comes to. The library's warnings appear as lines, those *about_jobs* unless the command tells."""
    import asyncio
    import signal

    show_warnings(about_jobs=about_jobs)
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which asyncio knows how to replace
    return asyncio.run(work)


def show_warnings(*, about_jobs: bool) -> None:
    """Let the library's warnings appear as lines, except those about single runs: the commands tell of these.

    The line about a migration appears too: every command migrates an older store, even one that only reads.
    """
    import logging

    from scheduler_async.stores.messages import MIGRATED

    def is_wanted(record: logging.LogRecord) -> bool:
        is_told = hasattr(record, "outcome") or bool(record.exc_info) or (hasattr(record, "job") and not about_jobs)
        is_notice = hasattr(record, "signal") or record.msg == MIGRATED
        return is_notice or (record.levelno >= logging.WARNING and not is_told)

    logger, handler = logging.getLogger("scheduler_async"), logging.StreamHandler()
    handler.addFilter(is_wanted)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


async def find(scheduler: Scheduler, slug: str, namespace: str | None) -> Job:
    """Return the job with this name, which is an id, or "namespace/id" as `list` shows it."""
    from scheduler_async import JobNotFoundError

    where, job_id = await resolve(scheduler, slug, namespace)
    job = await scheduler.get_job(job_id, namespace=where)
    if job is None:
        raise JobNotFoundError(job_id, where)
    return job


async def resolve(
    scheduler: Scheduler, slug: str, namespace: str | None, *, with_removed: bool = False
) -> tuple[str, str]:
    """Return the namespace and the id that *slug* stands for. A *namespace* that was given is the right one.

    Otherwise, a job of the default namespace with this id comes before the job that `list` shows under this name.
    *with_removed* also finds a job that was removed and has left runs.
    """
    from scheduler_async.cli.forms import parts_of_name

    async def is_there(where: str, job_id: str) -> bool:
        if await scheduler.get_job(job_id, namespace=where) is not None:
            return True
        return with_removed and bool(await scheduler.run_log(job_id, namespace=where, limit=1))

    if namespace is not None:
        return namespace, slug
    elsewhere = parts_of_name(slug)
    if elsewhere is not None and not await is_there(DEFAULT_NAMESPACE, slug) and await is_there(*elsewhere):
        return elsewhere
    return DEFAULT_NAMESPACE, slug


# ---------------------------------------------------------------- adding and editing

CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="By a cron expression, such as '0 9 * * *' or @daily.")
]
EveryOption = Annotated[
    str | None, typer.Option("--every", metavar="DURATION", help="On a fixed grid, such as 30s, 5m, 1h or 1d.")
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="DURATION", help="That long after the previous run, the first at once.")
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Once, such as 2026-06-15T09:00; with Z it is UTC.")
]
ManualOption = Annotated[bool, typer.Option("--manual", help="Only when it is triggered.")]
TzOption = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="The zone of --cron and --at; none: here.", autocompletion=zones),
]
PriorityOption = Annotated[
    str | None,
    typer.Option("--priority", click_type=one_of(PRIORITIES), help="Who goes first. Default: standard"),
]
RETRIES_HELP = "How often it is tried again before its next time."
TIMEOUT_HELP = "After that long it is ended, with its children, such as 10m; none: after 2h."
TimeoutOption = Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help=TIMEOUT_HELP)]
MisfireOption = Annotated[
    str | None,
    typer.Option("--misfire", click_type=one_of(MISFIRES), help="What becomes of a missed time. Default: run_once"),
]
PayloadOption = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="For the command, in $SCHEDULER_ASYNC_PAYLOAD; null: nothing."),
]
GroupOption = Annotated[
    str | None, typer.Option("--group", metavar="NAME", help="The jobs that share a limit; none: no group.")
]
CwdOption = Annotated[
    str | None,
    typer.Option(
        "--cwd",
        metavar="DIR",
        click_type=click.Path(file_okay=False),
        help="Where it runs; for a new job: here. If the store is a file, DIR has to be there already.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Adds a variable to its environment. May be repeated."),
]
UnsetEnvOption = Annotated[
    list[str] | None,
    typer.Option("--unset-env", metavar="NAME", help="Takes a variable away that --env added. May be repeated."),
]

DEFAULT_RETRIES = 2


def schedule_of(
    cron: str | None, every: str | None, after: str | None, at: str | None, manual: bool, tz: str | None
) -> Schedule | None:
    """The schedule that was asked for; None if none was."""
    from scheduler_async import Cron, Delay, Every, Manual
    from scheduler_async.timekeeping.zones import check_zone

    options = {"cron": cron, "every": every, "after": after, "at": at, "manual": manual or None}
    given = [name for name, value in options.items() if value is not None]
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
    if at is not None:
        return moment_of(at, tz)
    return Manual() if manual else None


def moment_of(text: str, tz: str | None) -> Schedule:
    """A one-shot. A time without a zone is on the clock of *tz*, or of the system."""
    from datetime import UTC, datetime

    from scheduler_async import At
    from scheduler_async.cli.words import ReadersZone
    from scheduler_async.timekeeping.zones import as_tzinfo

    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError as error:
        why = "" if "isoformat" in str(error) else f": {error}"
        misused(f"{text!r} is no time{why}. One is 2026-06-15T09:00, on the clock here, or 2026-06-15T09:00Z, in UTC.")
    if parsed.tzinfo is not None:
        return At(parsed)
    there = parsed.replace(tzinfo=ReadersZone() if tz is None else as_tzinfo(tz))
    try:
        shown = there.astimezone(UTC).astimezone(there.tzinfo).replace(tzinfo=None)
    except (OverflowError, ValueError):
        return At(there.replace(tzinfo=UTC))  # the end of the calendar is the same everywhere
    if shown != parsed.replace(fold=0):
        misused(f"There is no {parsed:%H:%M} on that day {f'in {tz}' if tz else 'here'}: clocks go forward.")
    return At(there)


def unless_none(text: str | None) -> str | None:
    """What was given; the word for nothing is nothing."""
    return None if text is not None and text.lower() == NONE else text


def payload_of(payload: str | None) -> Any:
    """What is given to the command."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is no number in JSON")

    try:
        value = None if payload is None else json.loads(payload, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # half a character can be written, and not kept
    except (ValueError, RecursionError) as error:
        misused(f'--payload is no JSON ({error}). It looks like \'{{"to": "ops"}}\'.')
    return value


def environment_of(pairs: list[str] | None) -> dict[str, str]:
    """What is added to its environment."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            misused(f"--env is NAME=VALUE, not {pair!r}.")
        found[name] = value
    return found


def directory_of(cwd: str | None, store: str | None) -> str | None:
    """Where a command is to run. What shares a store in a file is on this machine, and so is the directory."""
    if cwd is None:
        return None
    where = Path(cwd).absolute()
    if not where.is_dir() and not is_url(store_path(store)):
        misused(f"--cwd {cwd}: there is no such directory. Make it first, or name another.")
    return str(where)


@command()
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
        async with opened(store, create=True) as scheduler:
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

    tell_of_job(ask(write(), about_jobs=False), "Added", as_json)


@command()
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
        async with opened(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            return await scheduler._edit_job(job_id, where, changes_of)

    tell_of_job(ask(write(), about_jobs=False), "Changed", as_json)


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
    from scheduler_async.cli import forms, screen

    if as_json:
        put_json(forms.job_form(job))
    else:
        screen.say(f"{did} {forms.name_of(job.namespace, job.id)}: {screen.outlook(job)}")


def changed(slug: str, namespace: str | None, store: str | None, as_json: bool, call: str, did: str) -> None:
    """Do to a job what a method of the scheduler does, and say so."""

    async def write() -> Job:
        async with opened(store) as scheduler:
            where, job_id = await resolve(scheduler, slug, namespace)
            job: Job = await getattr(scheduler, call)(job_id, namespace=where)
            return job

    job = ask(write(), about_jobs=False)
    if did == "Removed" and not as_json:
        from scheduler_async.cli import forms, screen

        screen.say(f"Removed {forms.name_of(job.namespace, job.id)}")
    else:
        tell_of_job(job, did, as_json)


@command()
def remove(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Forget a job and its runs."""
    changed(slug, namespace, store, as_json, "remove_job", "Removed")


@command()
def pause(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job not start until it is resumed. A run in progress goes on."""
    changed(slug, namespace, store, as_json, "pause_job", "Paused")


@command()
def resume(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Let a job go on that was paused, disabled or failing. It gets a clean slate."""
    changed(slug, namespace, store, as_json, "resume_job", "Resumed")


# ---------------------------------------------------------------- looking


@command("list")
def list_jobs(
    due: Annotated[bool, typer.Option("--due", help="Only what is due now.")] = False,
    priority: Annotated[
        str | None, typer.Option("--priority", click_type=one_of(PRIORITIES), help="Only those with it.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", click_type=one_of(STATUSES), help="Only those with it.")
    ] = None,
    namespace: AnyNamespaceOption = None,
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
                put_json([forms.listed_form(job) for job in await read(scheduler)])
            else:
                screen.show_jobs(await read(scheduler))

    ask(show())


@command()
def show(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """All about a job."""
    from scheduler_async.cli import forms, screen

    async def read() -> tuple[Job, Any]:
        async with opened(store) as scheduler:
            job = await find(scheduler, slug, namespace)
            return job, await scheduler.explain(job.id, namespace=job.namespace, zone=screen.HERE)

    job, explanation = ask(read())
    if as_json:
        put_json(forms.job_form(job))
    else:
        screen.show_job(job, explanation)


@command()
def log(
    slug: AnySlugArgument = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", click_type=WholeNumber(0), help="How many runs at most.")
    ] = 20,
    output: Annotated[bool, typer.Option("--output", help="With what the runs wrote.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as runs end.")] = False,
    namespace: AnyNamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What ran and what did not, newest first. With --follow: as it comes."""
    from scheduler_async.cli import forms, screen

    async def read() -> None:
        async with opened(store) as scheduler:
            where, job_id = namespace, slug
            if slug is not None:
                where, job_id = await resolve(scheduler, slug, namespace, with_removed=True)
            rows = await scheduler.run_log(job_id, namespace=where, limit=limit)
            if job_id is not None and not rows:  # of a job that was removed, there may be rows
                await find(scheduler, job_id, where)
            outputs = {row.id: await scheduler.run_output(row.id) for row in rows} if output else {}
            if as_json and not follow:
                put_json([forms.row_form(row, outputs.get(row.id), with_output=output) for row in rows])
            elif follow:
                await until_enough(
                    lambda enough: screen.follow(
                        scheduler, job_id, where, rows, enough, as_json=as_json, with_output=output
                    )
                )
            else:
                screen.show_rows(rows, outputs)

    ask(read())


@command()
def stats(
    slug: AnySlugArgument = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How runs went: how many, how well, how long, how late."""
    from scheduler_async.cli import forms, screen

    async def read() -> list[tuple[Job, Any]]:
        async with opened(store) as scheduler:
            if slug is None:
                jobs = await scheduler.list_jobs(namespace=DEFAULT_NAMESPACE if namespace is None else namespace)
            else:
                jobs = [await find(scheduler, slug, namespace)]
            return [(job, await scheduler.run_stats(job.id, namespace=job.namespace)) for job in jobs]

    found = ask(read())
    if as_json:
        all_of_it = [forms.stats_form(job.id, of_job) for job, of_job in found]
        put_json(all_of_it if slug is None else all_of_it[0])
    else:
        screen.show_stats(found)


@command()
def preview(
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="How far: minutes, or a duration such as 2h or 1d.")
    ] = "60",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """What would run now and within the window, in order. Nothing is run, and nothing changes."""
    from scheduler_async.cli import forms, screen
    from scheduler_async.timekeeping.durations import parse_interval

    duration = parse_interval(f"{window}m" if window.strip().isdigit() else window)

    async def read() -> list[Any]:
        async with opened(store) as scheduler:
            return await scheduler.preview(duration)

    upcoming = ask(read())
    if as_json:
        put_json([forms.upcoming_form(line) for line in upcoming])
    else:
        screen.show_preview(upcoming, duration)


@command()
def explain(
    slug: SlugArgument, namespace: NamespaceOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Why a job is not running right now."""
    from scheduler_async.cli import forms, screen
    from scheduler_async.cli.sentences import explained

    async def read() -> tuple[Job, Any]:
        async with opened(store) as scheduler:
            job = await find(scheduler, slug, namespace)
            return job, await scheduler.explain(job.id, namespace=job.namespace, zone=screen.HERE)

    job, explanation = ask(read())
    if as_json:
        put_json(forms.explanation_form(explanation, explained(job, explanation)))
    else:
        screen.say_why(job, explanation)


@command()
def nodes(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The schedulers that share the store, and what each has claimed."""
    from scheduler_async.cli import forms, screen

    async def read() -> list[Any]:
        async with opened(store) as scheduler:
            return await scheduler.nodes()

    found = ask(read())
    if as_json:
        put_json([forms.node_form(node) for node in found])
    else:
        screen.show_nodes(found)


@command("next")
def following(
    expression: Annotated[str, typer.Argument(metavar="EXPR")],
    tz: Annotated[
        str | None,
        typer.Option("--tz", metavar="ZONE", help="The zone of the expression. Default: here.", autocompletion=zones),
    ] = None,
    count: Annotated[
        int, typer.Option("-n", "--count", metavar="N", click_type=WholeNumber(1, 1000), help="How many times.")
    ] = 10,
    as_json: JsonOption = False,
) -> None:
    """When a schedule would run, and what to look out for."""
    from scheduler_async import At, Cron, parse_schedule
    from scheduler_async.cli import screen
    from scheduler_async.timekeeping.zones import check_zone

    zone = None if tz is None else check_zone(tz)
    is_date = expression.strip()[:4].isdigit() and "-" in expression[:6]
    schedule = moment_of(expression, zone) if is_date else parse_schedule(expression, zone)
    if zone is not None and not isinstance(schedule, Cron | At):
        misused(f"--tz is for cron expressions and times; {expression!r} is the same in every zone.")
    if as_json:
        put_json(screen.following_form(schedule, count))
    else:
        screen.show_following(schedule, count)


# ---------------------------------------------------------------- moving to another store


def is_same_store(one: str, other: str) -> bool:
    """Whether two names are those of one store, as far as names tell."""
    if one == other:
        return True
    if is_url(one) or is_url(other):
        return False
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them is not there
        return False


@asynccontextmanager
async def opened_store(path: str) -> AsyncIterator[Store]:
    """The store itself, without a scheduler."""
    store = store_at(path)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


@command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    destination: Annotated[str, typer.Argument(metavar="TARGET")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Although a scheduler runs on SOURCE: what is running is left out.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy all jobs and their runs to another store.

    What is there already is found again: a copy that was broken off is completed by another, and a job that is newer
    there is kept.
    """
    import asyncio
    from contextlib import aclosing

    from scheduler_async.cli import forms, screen, sentences
    from scheduler_async.signals import told_of_signals
    from scheduler_async.stores.copying import Copy, take_up_the_dead
    from scheduler_async.timekeeping.clock import SystemClock

    if _store_before_command not in (None, os.environ.get(STORE_VARIABLE)):
        misused("copy names its stores by itself: leave out --store.")
    for path in (source, destination):
        if not path.strip() or path == ":memory:":
            misused(f"{path!r} names no store that is kept. SOURCE and TARGET are paths such as jobs.db, or URLs.")
    check_there(source, "SOURCE is a store that holds jobs already.")
    if is_same_store(source, destination):
        misused("SOURCE and TARGET are the same store.")

    def tell_of_silent(node: NodeRow) -> None:
        put(f"Node {node.identity.name} has been silent for long; waiting to see whether it lives …", stderr=True)

    async def work() -> tuple[Copy, bool]:
        enough = asyncio.Event()
        async with opened_store(source) as theirs:
            alive = await take_up_the_dead(theirs, SystemClock(), tell_of_silent)
            if alive and not anyway:
                fail(
                    f"A scheduler runs on the source ({alive[0].identity.name}), and what it runs from now on would be "
                    "missed. Stop it first, or copy with --anyway: then jobs that are running are left out.",
                    1,
                )
            async with opened_store(destination) as ours:
                progress = Copy(theirs, ours)
                with told_of_signals(enough.set), screen.copying(progress) as show:
                    async with aclosing(progress.slices()) as slices:
                        async for _ in slices:
                            show()
                            if enough.is_set():
                                break
                return progress, enough.is_set()

    done, was_interrupted = ask(work())
    if was_interrupted:
        put(sentences.copied_so_far(done), stderr=True)
        raise typer.Exit(INTERRUPTED)
    if as_json:
        put_json(forms.copy_form(done, sentences.copied(done)))
    else:
        screen.show_copy(done)


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
    """Yield the scheduler of a program, or one that runs commands.

    A program's scheduler keeps the handlers that the program gave it: `command` would let everyone who may add a job
    run a shell.
    """
    if target is not None and (_store_before_command or store) not in (None, os.environ.get(STORE_VARIABLE)):
        misused(f"{target} has a store of its own: leave out --store.")
    if target is None:
        async with opened(store, create=create, **options) as scheduler:
            yield scheduler
        return
    scheduler = load(target)
    guard_file(scheduler._store)
    try:
        yield scheduler
    finally:
        await scheduler.stop()


async def heeding_signals(scheduler: Scheduler, work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """What *work* comes to, and whether somebody asked to end meanwhile: then what runs is cancelled, and recorded."""
    import asyncio

    from scheduler_async.signals import told_of_signals

    asked = asyncio.Event()
    with told_of_signals(asked.set):
        doing, asking = asyncio.ensure_future(work), asyncio.ensure_future(asked.wait())
        await asyncio.wait([doing, asking], return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        if not doing.done():
            await scheduler.stop(cancel=True)
        return await doing, asked.is_set()


@command()
def trigger(
    slug: SlugArgument,
    target: AppOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job now, in this process, and wait for it. Its schedule stays as it is."""
    from scheduler_async.cli import forms, screen
    from scheduler_async.command import HANDLER

    async def run_it() -> tuple[Any, str | None, bool]:
        async with ready_to_run(target, store, create=False) as scheduler:
            job = await find(scheduler, slug, namespace)
            if target is None and job.handler != HANDLER:
                misused(f"The job {slug} runs no command; --app names the program that has its handler {job.handler}.")

            async def to_its_end() -> int:
                number = await scheduler.trigger_job(job.id, namespace=job.namespace)
                await scheduler.wait_for_run(number)
                return number

            number, was_interrupted = await heeding_signals(scheduler, to_its_end())
            row = await scheduler.get_run(number)
            if row is None:
                fail(f"The job {slug} was removed while it ran, and its run was ended.", 1)
            return row, await scheduler.run_output(number), was_interrupted

    row, output, was_interrupted = ask(run_it())
    if as_json:
        put_json(forms.row_form(row, output, with_output=True))
    else:
        if output:
            put_output(output)
        screen.tell_of_run(row)
    if row.outcome == "cancelled" and was_interrupted:
        raise typer.Exit(INTERRUPTED)
    if row.outcome.is_failure or row.outcome == "cancelled":
        raise typer.Exit(1)


@command()
def cron(
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", click_type=WholeNumber(1), help="How many at a time.")
    ] = 1,
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
        put_json(forms.summary_form(summary))
    else:
        screen.say(str(summary))
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@command()
def run(
    target: Annotated[str | None, typer.Argument(metavar="[MODULE:SCHEDULER]")] = None,
    max_concurrent: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", click_type=WholeNumber(1), help="How many at a time. Default: all."),
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="DURATION", help="What runs get to finish when it is asked to end.")
    ] = "30s",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run jobs when they are due, until SIGTERM or SIGINT. The second one ends what runs."""
    from scheduler_async import SchedulerShutdownError
    from scheduler_async.cli import screen
    from scheduler_async.cli.sentences import sentence_of
    from scheduler_async.stores.addresses import redacted
    from scheduler_async.timekeeping.durations import parse_interval

    patience = parse_interval(timeout).total_seconds()

    async def until_asked_to_end() -> None:
        where = redacted(target or store_path(store))
        screen.say_aside(f"Running the jobs of {where} when they are due, until Ctrl-C.")
        options = {} if target is not None else {"max_concurrent": max_concurrent}
        async with (
            ready_to_run(target, store, create=True, **options) as scheduler,
            screen.telling(scheduler, as_json=as_json),
        ):
            try:
                await scheduler.run_until_signal(patience)
            except SchedulerShutdownError as error:
                put_error(sentence_of(error))
                os._exit(1)  # who does not end when told to must not keep the program; the next start records it

    if target is not None and max_concurrent is not None:
        misused(f"{target} has a limit of its own: leave out --jobs.")
    ask(until_asked_to_end())
