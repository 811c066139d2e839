"""The program: its commands in the order of the help, and what becomes of errors. The commands are in `commands`.

Start-up counts: whatever takes time to load is loaded by the command that needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.commands import copying, jobs, outlook, reading, running
from scheduler_async.cli.exits import fail, misused
from scheduler_async.cli.options import ARGUMENTS, TRUST_HELP, StoreOption
from scheduler_async.cli.printing import put
from scheduler_async.cli.store_access import remember_store, trust

COMMANDS: dict[str, Callable[..., None]] = {
    "add": jobs.add,
    "edit": jobs.edit,
    "remove": jobs.remove,
    "pause": jobs.pause,
    "resume": jobs.resume,
    "list": reading.list_jobs,
    "show": reading.show,
    "log": reading.log,
    "stats": reading.stats,
    "preview": outlook.preview,
    "explain": outlook.explain,
    "nodes": reading.nodes,
    "next": outlook.following,
    "copy": copying.copy,
    "trigger": running.trigger,
    "cron": running.cron,
    "run": running.run,
}

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
    remember_store(store)


for name, function in COMMANDS.items():
    app.command(name, cls=Command)(function)


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
        from scheduler_async.cli.error_text import sentence_of

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


def forget_output(*streams: int) -> None:
    """Drop what could not be written to *streams*: Python would try again when it ends, and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nothing, stream)


def check_arguments(arguments: list[str]) -> None:
    """Refuse what a store could not keep and a terminal could not show."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            misused(f"{os.fsencode(argument)!r} is no text in UTF-8.")


def refuse(error: click.UsageError) -> NoReturn:
    """Say in a sentence what click has to say in four lines."""
    message = error.format_message()
    if "\n" in message:  # all of the help, for who asked for nothing
        put(message, stderr=True, keep="\n")
        sys.exit(2)
    program = "scheduler-async" if error.ctx is None else error.ctx.command_path
    sentence = message if message.endswith("?") else f"{message.rstrip('.')}."
    misused(f'{sentence} "{program} --help" shows what there is.')
