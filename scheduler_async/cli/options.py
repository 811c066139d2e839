"""The options and arguments of commands, their shell completion, and the checks of their values."""

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
from scheduler_async.cli.printing import put_sentence
from scheduler_async.cli.store_access import DEFAULT_STORE, STORE_VARIABLE, is_url, open_scheduler, store_path

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from scheduler_async import Calendar, Schedule

# The values of `Priority`, `Status` with `job_views.DONE`, and `Misfire`, without loading these modules.
PRIORITIES = ("high", "standard", "low")
STATUSES = ("idle", "queued", "running", "paused", "disabled", "done")
MISFIRES = ("run_once", "skip", "run_all")
CATCH_UPS = {"once": "run_once", "none": "skip", "all": "run_all"}
OVERLAPS = ("skip", "queue", "cancel")
OTHERWISE = ("skip", "before", "after")
RUN_ENDS = ("success", "failure", "any")  # the values of `RunEnds`

NONE = "none"
"""The word that clears a setting."""

ARGUMENTS = {
    "slug": "The name of the job.",
    "command": "A shell command, in quotes.",
    "expression": "A schedule such as '0 9 * * *', '@daily', 'every 5m' or '2026-06-15T09:00'.",
    "run_id": "The id of a run, as log, run and status show it.",
    "start": "The start of the period: 2026-06-01, 2026-06-01T00:00Z, yesterday, or 7d (ago).",
    "end": "The end of the period, in the same forms. A run at this time is not included.",
    "target": "The scheduler of a program, with its handlers and its store.",
    "source": "The store to copy from: a path or a URL.",
    "destination": "The store to copy to: a path or a URL. A missing file is created.",
}

TRUST_HELP = "Use a store file that another user owns. Its commands run as you."


# ---------------------------------------------------------------- shell completion


def slugs(context: typer.Context) -> list[tuple[str, str]]:
    """Return the names of the jobs in the store of the line so far, each with its schedule."""
    from scheduler_async.cli.job_names import name_of
    from scheduler_async.timekeeping.time_format import ReadersZone

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
    except (Exception, SystemExit):  # the store does not exist or cannot be read: nothing to complete
        return []


def zones() -> list[str]:
    """Return the names of all time zones."""
    from zoneinfo import available_timezones

    return sorted(available_timezones())


# ---------------------------------------------------------------- types of values


class WholeNumber(click.ParamType):  # type: ignore[type-arg]
    """A whole number from *least* to *most*."""

    name = "number"

    def __init__(self, least: int, most: int = 1_000_000) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number; fail if *value* is not one."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if not self.least <= number <= self.most:
            self.fail(f"{number} is not between {self.least} and {self.most:,}", param, ctx)
        return number


def one_of(values: Sequence[str]) -> click.Choice[str]:
    """Return the type of an option that takes one of *values*, in any case."""
    return click.Choice(values, case_sensitive=False)


# ---------------------------------------------------------------- options of most commands


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH_OR_URL",
        envvar=STORE_VARIABLE,
        click_type=click.Path(readable=False),
        help=f"The store: a file, or a URL. Default: {DEFAULT_STORE}",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", metavar="NAME", help="The namespace of the job. Or write SLUG as NAMESPACE/SLUG."),
]
AnyNamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Only this namespace. Default: all.")
]
SlugArgument = Annotated[str, typer.Argument(metavar="SLUG", autocompletion=slugs)]
AnySlugArgument = Annotated[str | None, typer.Argument(metavar="[SLUG]", autocompletion=slugs)]
RunArgument = Annotated[int, typer.Argument(metavar="RUN", click_type=WholeNumber(1, 2**63 - 1))]
JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", click_type=WholeNumber(1), help="How many jobs run at the same time."),
]
AppOption = Annotated[str | None, typer.Option("--app", metavar="MODULE:SCHEDULER", help=ARGUMENTS["target"])]


# ---------------------------------------------------------------- options of add and edit


CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="Run by a cron expression such as '0 9 * * *' or @daily.")
]
EveryOption = Annotated[
    str | None, typer.Option("--every", metavar="DURATION", help="Run at a fixed interval such as 30s, 5m, 1h or 1d.")
]
AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="DURATION", help="Run this long after the previous run has ended. The first run is now."
    ),
]
AfterJobOption = Annotated[
    str | None,
    typer.Option(
        "--after-job", metavar="SLUG", help="Run after each run of another job. See --outcome.", autocompletion=slugs
    ),
]
OutcomeOption = Annotated[
    str | None,
    typer.Option(
        "--outcome",
        click_type=one_of(RUN_ENDS),
        help="The runs of --after-job that count: those that succeed, fail, or end in any way. Default: success",
    ),
]
DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="DURATION", help="How long to wait after the run of --after-job.")
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Run once at a time: 2026-06-15T09:00, 'tomorrow 9:00', 18:00 (the next), or 2h (from now).",
    ),
]
ExpressionTzOption = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="The time zone of EXPR. Default: the system's.", autocompletion=zones),
]
ReadersTzOption = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="The time zone of WHEN, and of the times that are shown. Default: the system's.",
        autocompletion=zones,
    ),
]
PeriodTzOption = Annotated[
    str | None,
    typer.Option(
        "--tz", metavar="ZONE", help="The time zone of FROM and TO. Default: the system's.", autocompletion=zones
    ),
]
WhenTzOption = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="The time zone of WHEN. Default: the system's.", autocompletion=zones),
]
OnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="CALENDAR",
        help="Only inside a calendar: weekdays:MON-FRI, hours:08:00-18:00, dates:2026-12-24, holidays:SE or "
        "business-days:SE. Combine with '&', '|' and '~'. May be repeated.",
    ),
]
OtherwiseOption = Annotated[
    str | None,
    typer.Option(
        "--otherwise",
        metavar="WHAT",
        click_type=one_of(OTHERWISE),
        help="Runs outside --on: skip them, or move them to the day before or after. Default: skip.",
    ),
]
ManualOption = Annotated[bool, typer.Option("--manual", help="Run only when triggered.")]
TzOption = Annotated[
    str | None,
    typer.Option(
        "--tz", metavar="ZONE", help="The time zone of --cron and --at. Default: the system's.", autocompletion=zones
    ),
]
PastTzOption = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="The time zone of times without an offset. Default: the system's.",
        autocompletion=zones,
    ),
]
RUN_NUMBER = WholeNumber(0, 2**63 - 1)
PriorityOption = Annotated[
    str | None,
    typer.Option(
        "--priority", click_type=one_of(PRIORITIES), help="Which jobs start first if not all can. Default: standard"
    ),
]
RETRIES_HELP = "How often a failed run is retried before its next regular time."
TIMEOUT_HELP = "Stop the command and its children after this time, such as 10m. Default: 2h"
TimeoutOption = Annotated[str | None, typer.Option("--timeout", metavar="DURATION", help=TIMEOUT_HELP)]
MisfireOption = Annotated[
    str | None,
    typer.Option("--misfire", click_type=one_of(MISFIRES), help="What to do about missed runs. Default: run_once"),
]
CatchUpOption = Annotated[
    str | None,
    typer.Option(
        "--catch-up",
        click_type=one_of(tuple(CATCH_UPS)),
        help="Which missed runs to make up for. The same as --misfire.",
    ),
]
GraceOption = Annotated[
    str | None,
    typer.Option("--misfire-grace", metavar="DURATION", help="How late a run may start without counting as missed."),
]
InstancesOption = Annotated[
    int | None,
    typer.Option(
        "--max-instances",
        metavar="N",
        click_type=WholeNumber(1),
        help="How many runs may be in progress at once. Default: 1",
    ),
]
OverlapOption = Annotated[
    str | None,
    typer.Option(
        "--overlap",
        click_type=one_of(OVERLAPS),
        help="What to do if a run is due while --max-instances runs are in progress. Default: skip",
    ),
]
MaxRunsOption = Annotated[
    str | None, typer.Option("--max-runs", metavar="N", help="End the job after this many regular runs.")
]
PayloadOption = Annotated[
    str | None,
    typer.Option("--payload", metavar="JSON", help="Data for the command, which finds it in $SCHEDULER_ASYNC_PAYLOAD."),
]
TriggerPayloadOption = Annotated[
    str | None, typer.Option("--payload", metavar="JSON", help="The payload to run with, instead of the job's own.")
]
AnywhereOption = Annotated[
    bool, typer.Option("--anywhere", help="Run the job in any scheduler that has its handler, and follow the run.")
]
GroupOption = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A group of jobs that share a limit.")]
CwdOption = Annotated[
    str | None,
    typer.Option(
        "--cwd",
        metavar="DIR",
        click_type=click.Path(file_okay=False),
        help="The working directory of the command. Default for a new job: the current one.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="Add a variable to the environment of the command. Repeatable."),
]
UnsetEnvOption = Annotated[
    list[str] | None,
    typer.Option("--unset-env", metavar="NAME", help="Remove a variable that --env added. Repeatable."),
]
DEFAULT_RETRIES = 2


# ---------------------------------------------------------------- checks of values


def schedule_of(
    cron: str | None,
    every: str | None,
    after: str | None,
    at: str | None,
    manual: bool,
    tz: str | None,
    *,
    has_calendar: bool = False,
    after_job: str | None = None,
    outcome: str | None = None,
    delay: str | None = None,
) -> Schedule | None:
    """Return the schedule that the options describe; None if there are none."""
    from scheduler_async import After, Cron, Delay, Every, Manual
    from scheduler_async.schedules.after import split_name
    from scheduler_async.timekeeping.zones import check_zone

    options = {"cron": cron, "every": every, "after": after, "at": at, "after-job": after_job, "manual": manual or None}
    given = [name for name, value in options.items() if value is not None]
    for name, value in (("outcome", outcome), ("delay", delay)):
        if value is not None and after_job is None:
            misused(f"--{name} needs --after-job.")
    if len(given) > 1:
        misused(f"Pass --{given[0]} or --{given[1]}, not both: a job has one schedule.")
    if tz is not None and given and given[0] not in ("cron", "at") and not has_calendar:
        misused(f"--tz applies to --cron and --at; --{given[0]} is the same in every zone.")
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
    if after_job is not None:
        namespace, job = split_name(after_job)
        return After(job, outcome or "success", delay, namespace)
    return Manual() if manual else None


def on_calendar(schedule: Schedule, on: list[str] | None, otherwise: str | None, tz: str | None) -> Schedule:
    """Return *schedule* on the calendars of --on."""
    from scheduler_async.schedules.on_calendar import OnCalendar

    calendar = calendar_of(on)
    if calendar is None:
        if otherwise is not None:
            misused("--otherwise needs --on: it says what becomes of runs outside a calendar.")
        return schedule
    if isinstance(schedule, OnCalendar):
        misused("Write the calendar once: in the schedule, or with --on.")
    placed = schedule.on(calendar, otherwise or "skip")
    return placed if tz is None else placed.in_zone(tz)


def calendar_of(on: list[str] | None) -> Calendar | None:
    """Return the calendar of all --on options: a run must be inside each of them."""
    from functools import reduce
    from operator import and_

    from scheduler_async.schedules.calendar_text import parse_calendar

    return reduce(and_, map(parse_calendar, on)) if on else None


def moment_of(text: str, tz: str | None) -> Schedule:
    """Return a one-shot schedule. A time without an offset is in the zone *tz*, or in that of the system."""
    from scheduler_async import At

    return At(instant_of(text, tz, "--at", ahead=True))


def instant_of(text: str, tz: str | None, option: str, *, ahead: bool = False) -> datetime:
    """Return the time that was passed with *option*. Without an offset, it is in the zone *tz*, or in the system's.

    An ISO 8601 text may be any time. Other texts are read as `moment_given` does.
    """
    from datetime import UTC, datetime

    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        return moment_given(text, option, zone_of(tz), ahead=ahead)
    if parsed.tzinfo is not None:
        return parsed
    there = parsed.replace(tzinfo=zone_of(tz))
    try:
        shown = there.astimezone(UTC).astimezone(there.tzinfo).replace(tzinfo=None)
    except (OverflowError, ValueError):
        return there.replace(tzinfo=UTC)  # the end of the calendar is the same everywhere
    if shown != parsed.replace(fold=0):
        misused(f"{parsed:%H:%M} does not exist on that day {f'in {tz}' if tz else 'here'}: clocks go forward.")
    return there


def zone_of(tz: str | None) -> tzinfo:
    """Return the zone *tz*, or that of the reader."""
    from scheduler_async.timekeeping.time_format import ReadersZone
    from scheduler_async.timekeeping.zones import as_tzinfo

    return ReadersZone() if tz is None else as_tzinfo(tz)


def moment_given(text: str, option: str, zone: tzinfo, *, ahead: bool = False) -> datetime:
    """Return the time that was passed with *option*, and say so if the clock shows it twice or never."""
    from scheduler_async.cli.moments import read_moment
    from scheduler_async.cli.terminal import now

    found = read_moment(text, now(), zone, ahead=ahead, what=f"time of {option}")
    if found.note is not None:
        put_sentence(f"Note: {found.note}")
    return found.at


def policy_given(
    misfire: str | None,
    catch_up: str | None,
    misfire_grace: str | None,
    max_instances: int | None,
    overlap: str | None,
    max_runs: str | None,
) -> dict[str, Any]:
    """Return the arguments of a job that the options for missed and overlapping times describe."""
    if misfire is not None and catch_up is not None:
        misused("Pass --misfire or --catch-up, not both: they say the same in other words.")
    given: dict[str, Any] = {
        "misfire": misfire if catch_up is None else CATCH_UPS[catch_up],
        "max_instances": max_instances,
        "overlap": overlap,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if misfire_grace is not None:
        given["misfire_grace"] = unless_none(misfire_grace)
    if max_runs is not None:
        given["max_runs"] = None if unless_none(max_runs) is None else _whole(max_runs, "--max-runs")
    return given


def _whole(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        misused(f"{option} must be a whole number from 1 up, or none, not {text!r}.")
    return int(text)


def unless_none(text: str | None) -> str | None:
    """Return *text*; None if it is the word that clears a setting."""
    return None if text is not None and text.lower() == NONE else text


def payload_of(payload: str | None) -> Any:
    """Return the value of --payload."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(f"{word} is not a JSON number")

    try:
        value = None if payload is None else json.loads(payload, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()  # JSON can hold half a surrogate pair, and a store cannot
    except (ValueError, RecursionError) as error:
        misused(f'--payload is not valid JSON ({error}). Write it like \'{{"to": "ops"}}\'.')
    return value


def environment_of(pairs: list[str] | None) -> dict[str, str]:
    """Return the variables of --env."""
    found = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            misused(f"--env must be NAME=VALUE, not {pair!r}.")
        found[name] = value
    return found


def directory_of(cwd: str | None, store: str | None) -> str | None:
    """Return --cwd as an absolute path. It must exist if the store is a file, since its jobs run on this machine."""
    if cwd is None:
        return None
    where = Path(cwd).absolute()
    if not where.is_dir() and not is_url(store_path(store)):
        misused(f"--cwd {cwd}: the directory does not exist. Create it first, or pass another.")
    return str(where)
