"""The options and arguments that commands share, what a shell completes for them, and the checks of their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import typer

from scheduler_async.cli.event_loop import run_async
from scheduler_async.cli.exits import misused
from scheduler_async.cli.store_access import DEFAULT_STORE, STORE_VARIABLE, is_url, open_scheduler, store_path

if TYPE_CHECKING:
    from scheduler_async import Schedule

# The values of `Priority`, `Status` and `Misfire`, without loading what they belong to.
PRIORITIES = ("high", "standard", "low")
STATUSES = ("idle", "queued", "running", "paused", "disabled")
MISFIRES = ("run_once", "skip")

NONE = "none"
"""What takes a setting away."""

ARGUMENTS = {
    "slug": "The name of the job.",
    "command": "A line for the shell, in quotes.",
    "expression": "Such as '0 9 * * *', '@daily', 'every 5m' or '2026-06-15T09:00'.",
    "target": "A program's own scheduler, with its handlers.",
    "source": "The store to copy: a path, or a URL.",
    "destination": "The store to copy to. A file is made if there is none.",
}

TRUST_HELP = "Use a store file of another user. Its commands run as you."


# ---------------------------------------------------------------- what a shell completes


def slugs(context: typer.Context) -> list[tuple[str, str]]:
    """The names of the jobs in the store that the line so far names, and when they run."""
    from scheduler_async.cli.job_names import name_of
    from scheduler_async.cli.time_format import ReadersZone

    given = context.params
    before = {} if context.parent is None else context.parent.params
    store = given.get("store") or before.get("store")

    async def read() -> list[tuple[str, str]]:
        async with open_scheduler(store) as scheduler:
            namespace = given.get("namespace")
            names = {
                job.id if namespace is not None else name_of(job.namespace, job.id): job.schedule
                for job in await scheduler.list_jobs(namespace=namespace)
            }
            return [(name, names[name].describe(ReadersZone())) for name in names if name.isprintable()]

    try:
        with redirect_stderr(StringIO()):  # warnings would appear in the middle of the line
            return list(run_async(read()))
    except (Exception, SystemExit):  # there is no store here, or it cannot be read: nothing to complete
        return []


def zones() -> list[str]:
    """The names of all time zones."""
    from zoneinfo import available_timezones

    return sorted(available_timezones())


# ---------------------------------------------------------------- kinds of values


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


# ---------------------------------------------------------------- options of most commands


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


# ---------------------------------------------------------------- options of add and edit


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


# ---------------------------------------------------------------- what the values mean


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
    from scheduler_async.cli.time_format import ReadersZone
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
