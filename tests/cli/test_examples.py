"""The examples at the end of each help: every one is a command line that the program understands."""

from __future__ import annotations

import shlex
import warnings

import click
import pytest

from scheduler_async.cli.examples import EXAMPLES

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of typer, about click
    from typer.main import get_command

    from scheduler_async.cli.app import COMMANDS, app

PROGRAM = get_command(app)
NARROWEST = 88  # columns


def test_every_command_has_examples() -> None:
    assert list(EXAMPLES) == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_can_be_typed(command: str) -> None:
    for example in EXAMPLES[command]:
        program, name, *arguments = shlex.split(example.removeprefix("* * * * * "), comments=True)
        built = PROGRAM.get_command(click.Context(PROGRAM), name)  # type: ignore[attr-defined]

        assert (program, name) == ("scheduler-async", command)
        built.make_context(name, arguments)  # or it raises a UsageError
        assert len(example) < NARROWEST
