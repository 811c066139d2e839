"""The program: its commands in the order of the help, and the handling of errors. The commands are in `commands`.

Start-up time matters: each command is built, and its modules are loaded, only when it is called.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NoReturn

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_from_info
from typer.models import CommandInfo

from scheduler_async.cli import INTERRUPTED
from scheduler_async.cli.exits import fail, misused
from scheduler_async.cli.options import ARGUMENTS, TRUST_HELP, StoreOption
from scheduler_async.cli.printing import put
from scheduler_async.cli.store_access import remember_store, trust

# The module of each command in `commands`, and its function there.
COMMANDS = {
    "add": ("jobs", "add"),
    "edit": ("jobs", "edit"),
    "remove": ("jobs", "remove"),
    "pause": ("jobs", "pause"),
    "resume": ("jobs", "resume"),
    "status": ("status", "status"),
    "list": ("reading", "list_jobs"),
    "show": ("reading", "show"),
    "log": ("reading", "log"),
    "stats": ("reading", "stats"),
    "changes": ("history", "changes"),
    "preview": ("outlook", "preview"),
    "explain": ("reading", "explain"),
    "nodes": ("reading", "nodes"),
    "next": ("outlook", "following"),
    "copy": ("copying", "copy"),
    "trigger": ("running", "trigger"),
    "backfill": ("backfills", "backfill"),
    "cancel": ("steering", "cancel"),
    "cron": ("running", "cron"),
    "run": ("running", "run"),
    "web": ("web", "web"),
}

SETTINGS = {"help_option_names": ["-h", "--help"]}

READER_LEFT = 141  # as shells count: the code of a program that SIGPIPE ends


class ReaderLeft(Exception):  # noqa: N818 - it is not an error
    """The reader of the output has left, as in `scheduler-async list | head -1`."""


@contextmanager
def noticing_readers() -> Iterator[None]:
    """Raise `ReaderLeft` for a broken pipe, which click would turn into exit code 1."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeft from error


class Group(TyperGroup):
    """All commands, each of which is built when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Build a command."""
        if name not in COMMANDS:
            return None
        module, function = COMMANDS[name]
        callback = getattr(import_module(f"scheduler_async.cli.commands.{module}"), function)
        info = CommandInfo(name, cls=Command, callback=callback, context_settings=SETTINGS)
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or fail with the names of similar ones."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            similar = [f'"{command}"' for command in get_close_matches(name, COMMANDS)]
            ctx.fail(f'No such command "{name}".' + (f" Did you mean {' or '.join(similar)}?" if similar else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the first sentence of each docstring, without building them."""
        rows = []
        for name, (module, function) in COMMANDS.items():
            callback = getattr(import_module(f"scheduler_async.cli.commands.{module}"), function)
            rows.append((name, callback.__doc__.partition("\n")[0].partition(". ")[0].rstrip(".") + "."))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the arguments before the command."""
        with noticing_readers():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with noticing_readers():
            return super().invoke(ctx)


class Command(TyperCommand):
    """A command with help for its arguments, which click 8.5 loses, with --trust beside --store, and with examples."""

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
        """Print nothing: typer lists the arguments before the options, whatever the version of click."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the examples of the command."""
        from scheduler_async.cli.examples import EXAMPLES

        with formatter.section("Examples"):
            for example in EXAMPLES[str(ctx.info_name)]:
                formatter.write(f"  {example}\n")


app = typer.Typer(
    cls=Group,
    name="scheduler-async",
    help="Schedule shell commands, see when they run, and run them.",
    epilog='"scheduler-async COMMAND --help" shows the options of a command, and examples.',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    suggest_commands=False,  # `Group` does
    context_settings=SETTINGS,
)


def show_version(asked: bool) -> None:
    """Print the version and end, if --version is given."""
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
    """Take the options before the command."""
    remember_store(store)


def run_app() -> None:
    """Run the program. It ends silently if the reader of its output leaves."""
    # The parent process may have closed the streams.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the end
    sys.stderr = sys.stderr or sys.stdout
    try:
        run_command_line()
    except (ReaderLeft, BrokenPipeError):
        forget_output(1, 2)
        sys.exit(READER_LEFT)


def run_command_line() -> None:
    """Run the command, and turn an error into a sentence and an exit code."""
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
    except Exception as error:  # a bug; its text may hold anything
        from scheduler_async.texts import traceback_of

        put(traceback_of(error), stderr=True, keep="\n")
        sys.exit(1)


def forget_output(*streams: int) -> None:
    """Drop the text that could not be written to *streams*: Python would write it again at its end, and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nothing, stream)


def check_arguments(arguments: list[str]) -> None:
    """Refuse text that a store could not keep and a terminal could not show."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            misused(f"{os.fsencode(argument)!r} is not valid UTF-8.")


def refuse(error: click.UsageError) -> NoReturn:
    """Print an error of click as one sentence, where click prints four lines."""
    message = error.format_message()
    if "\n" in message:  # the help, for a command line without a command
        put(message, stderr=True, keep="\n")
        sys.exit(2)
    program = "scheduler-async" if error.ctx is None else error.ctx.command_path
    sentence = message if message.endswith("?") else f"{message.rstrip('.')}."
    misused(f'{sentence} See "{program} --help".')
