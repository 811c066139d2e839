"""Jobs that run a command line, with real shells."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler_async import InvalidJobError, Manual, Outcome, Run, RunRow, Scheduler, command
from scheduler_async.command import Command, run_command
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.output import KEPT
from tests.cast import PATIENCE, line_of, started

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


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A pipe with a name: who reads it learns when the last process that has it open is gone."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


async def heard(fifo: Path) -> str:
    """All that is written to *fifo*, until nobody has it open any more."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(fifo.read_text)


@pytest.mark.parametrize(
    ("line", "outcome", "code", "words", "output"),
    [
        pytest.param("true", Outcome.SUCCESS, 0, "Completed in ", None, id="well"),
        pytest.param("exit 3", Outcome.ERROR, 3, "Exited with 3 after ", None, id="with a code"),
        pytest.param("kill -9 $$", Outcome.ERROR, 137, "Ended by SIGKILL after ", None, id="by a signal"),
        pytest.param(
            *("kill -35 $$", Outcome.ERROR, 163, "Ended by signal 35 after ", None),
            id="by a signal without a name",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="real-time signals"),
        ),
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
        pytest.param("sleep 600 & sleep 600", id="and its children"),
        pytest.param("trap '' TERM; sleep 600 & wait; wait", id="however stubborn"),
        pytest.param("(trap '' TERM; sleep 600) & sleep 600", id="however stubborn its children"),
    ],
)
async def test_a_timeout_ends_the_whole_group(
    line: str, scheduler: Scheduler, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE", 0.1)
    until_all_are_gone = asyncio.create_task(heard(fifo))

    row, _ = await run(scheduler, Command(f"exec 9>{fifo}; {line}"), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert await until_all_are_gone == ""


async def test_a_command_has_a_moment_to_tidy_up(scheduler: Scheduler) -> None:
    row, written = await run(scheduler, Command("trap 'echo bye; exit 0' TERM; sleep 600 & wait"), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert written == "bye\n"


async def test_whoever_outlives_their_shell_may_tidy_up_too(scheduler: Scheduler) -> None:
    """A shell dies of the signal at once; what it started may have a file to finish."""
    inner = "trap 'sleep 0.2; echo tidied; exit' TERM; sleep 600 & wait"

    row, written = await run(scheduler, Command(f'sh -c "{inner}"; echo never'), timeout="1s")

    assert row.outcome is Outcome.TIMEOUT
    assert written == "tidied\n"


@pytest.mark.parametrize(
    ("output", "last_words"),
    [
        pytest.param(">/dev/null", "still here\n", id="with an output of its own"),
        pytest.param("", "", id="until it writes where nobody reads"),
    ],
)
async def test_what_a_command_leaves_in_the_background_may_stay(
    output: str, last_words: str, scheduler: Scheduler, fifo: Path, tmp_path: Path
) -> None:
    """As with a shell: the command is over when it is over."""
    go = tmp_path / "go"
    os.mkfifo(go)
    until_it_is_gone = asyncio.create_task(heard(fifo))

    row, _ = await run(scheduler, Command(f"(exec 9>{fifo}; read _ <{go}; echo; echo still here >&9) {output} &"))

    assert row.outcome is Outcome.SUCCESS
    await asyncio.to_thread(go.write_text, "go\n")
    assert await until_it_is_gone == last_words


async def test_a_stop_that_cancels_ends_commands(scheduler: Scheduler, fifo: Path) -> None:
    task = Command(f"exec 9>{fifo}; echo begun >&9; sleep 600")
    await scheduler.add_job(Manual(), handler="command", id="it", payload=task.to_payload())
    await scheduler.trigger_job("it")
    told = await asyncio.to_thread(fifo.open)
    assert await asyncio.to_thread(told.readline) == "begun\n"

    await scheduler.stop(cancel=True)

    assert await asyncio.to_thread(told.read) == ""
    told.close()


KILLED = """
    import asyncio, ctypes, multiprocessing, os, sys
    from scheduler_async import Manual, Scheduler, command
    from scheduler_async.command import Command, run_command

    command.CHECK = 1

    def child():
        os.read(0, 1)  # until the test is over
        os._exit(0)

    forks = {
        "no child": lambda: 1,
        "os.fork": os.fork,
        "multiprocessing": lambda: multiprocessing.get_context("fork").Process(target=child).start() or 1,
        "a fork in C": ctypes.PyDLL(None).fork,
    }

    async def main():
        scheduler = Scheduler(sys.argv[1])
        scheduler.handler("command")(run_command)
        line = f"exec 9>{sys.argv[2]}; sleep 600 & echo begun >&9; wait"
        await scheduler.add_job(Manual(), handler="command", id="it", payload=Command(line).to_payload())
        async with scheduler:
            await scheduler.trigger_job("it")
            await asyncio.to_thread(sys.stdin.readline)
            if forks[sys.argv[3]]() == 0:
                child()
            print("forked", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("fork", "is_reaped"),
    [
        pytest.param("no child", False, id="which nobody has reaped"),
        pytest.param("os.fork", False, id="whose child lives on"),
        pytest.param("multiprocessing", False, id="whose worker lives on"),
        pytest.param("a fork in C", True, id="whose child, forked in C, lives on"),
    ],
)
async def test_a_command_does_not_outlive_its_scheduler(fork: str, is_reaped: bool, fifo: Path, tmp_path: Path) -> None:
    """Another scheduler takes up the run, and would run it beside the first one."""
    program_line = [sys.executable, "-c", textwrap.dedent(KILLED), tmp_path / "jobs.db", fifo, fork]
    with started(program_line, stdin=subprocess.PIPE) as program:
        told = await asyncio.to_thread(fifo.open)
        assert await asyncio.to_thread(told.readline) == "begun\n"
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
        assert await asyncio.to_thread(line_of, program) == "forked"
        program.kill()
        if is_reaped:
            await asyncio.to_thread(program.wait)

        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(told.read) == ""
        told.close()


async def test_a_running_command_is_rarely_disturbed(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred commands that wait must not wake a laptop a hundred times a second."""
    checks: list[bytes] = []
    monkeypatch.setattr(command, "_forget", checks.append)

    row, _ = await run(scheduler, Command("sleep 1.5"))

    assert row.outcome is Outcome.SUCCESS
    assert checks == []


async def test_a_running_command_sees_that_its_scheduler_lives(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check is a byte on the lifeline, and the command goes on."""
    checks: list[bytes] = []
    monkeypatch.setattr(command, "_forget", checks.append)
    monkeypatch.setattr(command, "CHECK", 1)

    row, _ = await run(scheduler, Command("sleep 1.5"))

    assert row.outcome is Outcome.SUCCESS
    assert b"".join(checks).startswith(b"\n")


FULL = """
    import asyncio, os, resource, sys
    from unittest.mock import Mock
    from scheduler_async.command import run_command

    def descriptors():
        return set(os.listdir("/dev/fd"))

    async def main():
        run = Mock(payload={"command": "true"}, job_id="it", namespace="default", id=1, attempt=1)
        run.scheduled_for.isoformat = lambda: ""
        await run_command(run)  # what is opened once is open now
        before, failed = descriptors(), 0
        highest = max(int(number) for number in before) + 1
        for room in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            try:
                await run_command(run)
            except OSError as error:
                assert error.errno == 24, error
                failed += 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        await run_command(run)
        print(failed, sorted(descriptors() - before))

    asyncio.run(main())
"""


def test_a_command_that_finds_no_descriptors_leaves_none_open() -> None:
    """One failure must not be the cause of the next: it may fail at every step."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    failed, left = done.stdout.split(maxsplit=1)
    assert int(failed) > 3, done.stderr
    assert left.strip() == "[]"
    assert done.stderr == ""


async def test_a_command_that_is_cancelled_while_it_starts_leaves_nothing(
    scheduler: Scheduler, fifo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a descriptor nor a process, at whichever step it is cancelled."""
    monkeypatch.setattr(command, "GRACE", 0.1)
    cancelled: list[bool] = []

    @scheduler.handler("cancelled")
    async def cancel_early(run: Run) -> None:
        for turns in range(8):
            starting = asyncio.create_task(run_command(run))
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            cancelled.append(starting.cancelled())

    payload = Command(f"exec 9>{fifo}; sleep 600").to_payload()
    await scheduler.add_job(Manual(), handler="cancelled", id="it", payload=payload)
    before = set(Path("/dev/fd").iterdir())
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)

    number = await scheduler.trigger_job("it")
    async with asyncio.timeout(PATIENCE):
        await scheduler.wait_for_run(number)

    assert cancelled == [True] * 8
    os.set_blocking(reader, True)
    async with asyncio.timeout(PATIENCE):
        assert await asyncio.to_thread(os.read, reader, 1) == b""
    os.close(reader)
    assert set(Path("/dev/fd").iterdir()) == before


async def test_a_command_does_not_see_where_the_store_is(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URL may hold a password. A command that is given the variable has it."""
    monkeypatch.setenv("SCHEDULER_ASYNC_STORE", "postgresql://me:secret@host/db")
    line = 'echo "${SCHEDULER_ASYNC_STORE-none}"'

    _, written = await run(scheduler, Command(line))
    _, given = await run(scheduler, Command(line, env={"SCHEDULER_ASYNC_STORE": "jobs.db"}))

    assert (written, given) == ("none\n", "jobs.db\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param({"line": ""}, "command must be a shell command", id="empty"),
        pytest.param({"line": " \n"}, "command must be a shell command", id="blank"),
        pytest.param({"line": 5}, "command must be a shell command", id="number"),
        pytest.param({"line": "a\0b"}, "command must be a shell command", id="what no shell takes"),
        pytest.param({"line": "a", "cwd": ""}, "cwd must be a path", id="no directory"),
        pytest.param({"line": "a", "cwd": 5}, "cwd must be a path", id="number as directory"),
        pytest.param({"line": "a", "env": "X=1"}, "env must be a dict", id="text as environment"),
        pytest.param({"line": "a", "env": {"X=": "1"}}, "whose keys do not contain '='", id="name with ="),
        pytest.param({"line": "a", "env": {"": "1"}}, "whose keys do not contain '='", id="empty name"),
        pytest.param({"line": "a", "env": {5: "1"}}, "whose keys do not contain '='", id="number as name"),
        pytest.param({"line": "a", "env": {"X": 1}}, "must be a dict of strings", id="number as value"),
        pytest.param({"line": "a", "payload": {1, 2}}, "JSON", id="payload that is no JSON"),
    ],
)
def test_what_is_no_command_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidJobError, match=words):
        Command(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("payload", [None, "ls", {}, {"line": "ls"}, {"command": "ls", "shell": "bash"}, [1]], ids=str)
def test_a_payload_that_holds_no_command_is_refused(payload: Json) -> None:
    with pytest.raises(InvalidJobError, match="payload of a command job must look like"):
        Command.from_payload(payload)


@pytest.mark.parametrize(
    "task", [Command("ls"), Command("ls", "/"), Command("ls", env={"A": "b"}), Command("ls", payload=[0])], ids=str
)
def test_a_command_comes_back_from_its_payload(task: Command) -> None:
    assert Command.from_payload(task.to_payload()) == task
