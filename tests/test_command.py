"""Jobs that run a command line, with real shells."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler_async import InvalidJobError, Manual, Outcome, RunRow, Scheduler, command
from scheduler_async.command import Command, run_command
from scheduler_async.models import Json
from scheduler_async.output import KEPT
from tests.cast import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(":memory:")
    scheduler.handler("command")(run_command)
    async with scheduler:
        yield scheduler
        await scheduler.stop(cancel=True)


async def run(scheduler: Scheduler, task: Command, timeout: str | None = None) -> tuple[RunRow, str | None]:
    """How a command ended, and what it wrote."""
    await scheduler.add_job(
        Manual(), handler="command", id="it", payload=task.to_payload(), timeout=timeout, on_conflict="replace"
    )
    number = await scheduler.trigger_job("it")
    async with asyncio.timeout(PATIENCE):
        await scheduler.wait_for_run(number)
    (row, *_) = await scheduler.run_log("it")
    return row, await scheduler.run_output(number)


async def ends(pid: int) -> None:
    """Wait until a process is gone, or is only waited for by whoever inherited it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":
                return
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("line", "outcome", "code", "words", "output"),
    [
        pytest.param("true", Outcome.SUCCESS, 0, "Completed in ", None, id="well"),
        pytest.param("exit 3", Outcome.ERROR, 3, "Exited with 3 after ", None, id="with a code"),
        pytest.param("kill -9 $$", Outcome.ERROR, 137, "Ended by SIGKILL after ", None, id="by a signal"),
        pytest.param("echo a; echo b >&2; echo c", Outcome.SUCCESS, 0, "Completed", "a\nb\nc\n", id="both outputs"),
        pytest.param("a && || b", Outcome.ERROR, 2, "Exited with 2", None, id="not a command"),
        pytest.param("cat", Outcome.SUCCESS, 0, "Completed", None, id="there is nothing to read"),
        pytest.param(
            "printf 'a\\0b\\377'", Outcome.SUCCESS, 0, "Completed", "a␀b\N{REPLACEMENT CHARACTER}", id="bytes"
        ),
        pytest.param("set -- 'it''s'; echo \"$1\"", Outcome.SUCCESS, 0, "Completed", "its\n", id="quotes"),
    ],
)
async def test_a_command_ends(
    line: str, outcome: Outcome, code: int, words: str, output: str | None, scheduler: Scheduler
) -> None:
    row, written = await run(scheduler, Command(line))

    assert (row.outcome, row.exit_code) == (outcome, code)
    assert (row.message or "").startswith(words)
    assert (row.error is None) == (outcome is Outcome.SUCCESS)
    assert written == output or (output is None and outcome is Outcome.ERROR)
    job = await scheduler.get_job("it")
    assert job is not None
    assert (job.last_exit_code, job.last_message) == (code, row.message)


async def test_a_command_knows_its_run_and_where_it_is(scheduler: Scheduler, tmp_path: Path) -> None:
    line = 'pwd; echo "$WHO $SCHEDULER_ASYNC_JOB $SCHEDULER_ASYNC_NAMESPACE $SCHEDULER_ASYNC_ATTEMPT"; '
    line += 'echo "$SCHEDULER_ASYNC_PAYLOAD"; echo "$SCHEDULER_ASYNC_RUN"; test -n "$PATH"'

    row, written = await run(scheduler, Command(line, cwd=str(tmp_path), env={"WHO": "me"}, payload={"a": [1]}))

    assert row.outcome is Outcome.SUCCESS
    assert written == f'{tmp_path}\nme it default 1\n{{"a":[1]}}\n{row.id}\n'


async def test_a_directory_that_is_not_there_is_named(scheduler: Scheduler, tmp_path: Path) -> None:
    row, _ = await run(scheduler, Command("true", cwd=str(tmp_path / "nowhere")))

    assert row.outcome is Outcome.ERROR
    assert row.error == f"Cannot run in {tmp_path / 'nowhere'}: No such file or directory"


async def test_only_the_last_of_much_output_is_kept(scheduler: Scheduler) -> None:
    _, written = await run(scheduler, Command("yes | head -c 1000000; echo end"))

    assert written is not None
    assert len(written) == KEPT
    assert written.endswith("y\nend\n")


async def test_others_get_a_turn_while_a_command_writes_without_end(scheduler: Scheduler) -> None:
    """It is read as fast as it comes, and ended when its time is up."""
    row, written = await run(scheduler, Command("yes"), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert written is not None
    assert len(written) == KEPT


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("sleep 600 & echo $!; sleep 600", id="and its children"),
        pytest.param("trap '' TERM; sleep 600 & echo $!; wait; wait", id="however stubborn"),
        pytest.param("(trap '' TERM; sleep 600) & echo $!; sleep 600", id="however stubborn its children"),
    ],
)
async def test_a_timeout_ends_the_whole_group(line: str, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "GRACE", 0.1)

    row, written = await run(scheduler, Command(line), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert written is not None
    await ends(int(written))


async def test_a_command_has_a_moment_to_tidy_up(scheduler: Scheduler) -> None:
    row, written = await run(scheduler, Command("trap 'echo bye; exit 0' TERM; sleep 600 & wait"), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert written == "bye\n"


async def test_what_a_command_leaves_in_the_background_may_stay(scheduler: Scheduler) -> None:
    """As with a shell: the command is over when it is over."""
    row, written = await run(scheduler, Command("sleep 600 >/dev/null & echo $!"))

    assert row.outcome is Outcome.SUCCESS
    assert written is not None
    assert is_alive(int(written))
    os.kill(int(written), signal.SIGKILL)


async def test_a_stop_that_cancels_ends_commands(scheduler: Scheduler, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    task = Command(f"echo $$ > {note}.new; mv {note}.new {note}; sleep 600")
    await scheduler.add_job(Manual(), handler="command", id="it", payload=task.to_payload())
    await scheduler.trigger_job("it")
    async with asyncio.timeout(PATIENCE):
        while not note.exists():
            await asyncio.sleep(0.01)

    await scheduler.stop(cancel=True)

    await ends(int(note.read_text()))


KILLED = """
    import asyncio, sys
    from scheduler_async import Manual, Scheduler
    from scheduler_async.command import Command, run_command

    async def main():
        scheduler = Scheduler(sys.argv[1])
        scheduler.handler("command")(run_command)
        line = "sleep 600 & echo $$ $! > " + sys.argv[2] + ".new; mv " + sys.argv[2] + ".new " + sys.argv[2] + "; wait"
        await scheduler.add_job(Manual(), handler="command", id="it", payload=Command(line).to_payload())
        async with scheduler:
            await scheduler.trigger_job("it")
            await asyncio.Event().wait()

    asyncio.run(main())
"""


async def test_a_command_does_not_outlive_its_scheduler(tmp_path: Path) -> None:
    """Whoever takes up the run would run it beside the first one."""
    note = tmp_path / "pids"
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "jobs.db"), str(note)],
        stdin=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not note.exists():
                await asyncio.sleep(0.01)
    finally:
        program.kill()
        program.wait()

    shell, child = map(int, note.read_text().split())
    await ends(shell)
    await ends(child)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({"line": ""}, "A command is a line for the shell", id="empty"),
        pytest.param({"line": " \n"}, "A command is a line for the shell", id="blank"),
        pytest.param({"line": 5}, "A command is a line for the shell", id="number"),
        pytest.param({"line": "a\0b"}, "A command is a line for the shell", id="what no shell takes"),
        pytest.param({"line": "a", "cwd": ""}, "The working directory of a command is a path", id="no directory"),
        pytest.param({"line": "a", "cwd": 5}, "The working directory of a command is a path", id="number as directory"),
        pytest.param({"line": "a", "env": "X=1"}, "The environment of a command is a dict", id="text as environment"),
        pytest.param({"line": "a", "env": {"X=": "1"}}, "names without '='", id="name with ="),
        pytest.param({"line": "a", "env": {"": "1"}}, "names without '='", id="empty name"),
        pytest.param({"line": "a", "env": {5: "1"}}, "names without '='", id="number as name"),
        pytest.param({"line": "a", "env": {"X": 1}}, "only texts as values", id="number as value"),
        pytest.param({"line": "a", "payload": {1, 2}}, "JSON", id="payload that is no JSON"),
    ],
)
def test_what_is_no_command_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidJobError, match=words):
        Command(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", [None, "ls", {}, {"line": "ls"}, {"command": "ls", "shell": "bash"}, [1]], ids=str)
def test_a_payload_that_holds_no_command_is_refused(payload: Json) -> None:
    with pytest.raises(InvalidJobError, match="payload of a command job looks like"):
        Command.from_payload(payload)


@pytest.mark.parametrize(
    "task", [Command("ls"), Command("ls", "/"), Command("ls", env={"A": "b"}), Command("ls", payload=[0])], ids=str
)
def test_a_command_comes_back_from_its_payload(task: Command) -> None:
    assert Command.from_payload(task.to_payload()) == task
