"""Jobs that run a shell command: their handler, and the form of their payload.

    scheduler.handler("command")(run_command)
    await scheduler.add_job(Every("1h"), handler="command", payload=Command("backup.sh").to_payload())

A command and its children form a process group. A timeout ends the group. The death of the scheduler ends it too,
because another node may run the job again. A child that leaves the group (`setsid`) keeps running.

A command gets the environment of the scheduler without `SCHEDULER_ASYNC_STORE`, which may hold a password. Set that
variable in `Command.env` for a command that needs the store.

The run ends when its shell ends, and the scheduler then stops reading its output. A background process of the command
keeps running until it writes to that output, which ends it (SIGPIPE). Redirect its output: `server >>server.log 2>&1
&`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from scheduler_async.errors import InvalidJobError, SchedulerError, quoted
from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.result import Result
from scheduler_async.jobs.run import Run
from scheduler_async.running.pipe_ends import Ends
from scheduler_async.shielding import carried_through
from scheduler_async.signals import signal_name
from scheduler_async.timekeeping.clock import SystemClock
from scheduler_async.timekeeping.durations import short_duration

HANDLER = "command"
"""The handler name of command jobs on the command line."""

# The time between SIGTERM and SIGKILL. It is shorter than the time that a stopping scheduler waits for its runs.
GRACE = 3.0  # seconds

# How often to check whether the whole group has ended. The system reports only the end of direct children.
LOOK = 0.02  # seconds

# At least the capacity of a pipe.
PIPE = 1024 * 1024  # bytes

# The group leader. Its input is a lifeline that a watcher beside the command reads. If the scheduler closes the other
# end without writing to it, the scheduler has died, and the watcher kills the group. A child forked by C code may still
# hold a copy of the other end. So after each read timeout, the watcher checks that the scheduler is alive and that the
# lifeline still has a reader, because a zombie keeps its process id.
LEADER = """
exec 3<&0 </dev/null
(trap '' PIPE; until read _ <&3; do kill -0 $PPID && echo >&3 || kill -KILL 0; done) >/dev/null 2>&1 &
exec 3<&-
exec /bin/sh -c "$1"
"""
ALL_IS_WELL = b"done\n"
# Each check wakes the shell and the scheduler. It matters only if C code forked a child and the scheduler died since:
# the command may then overlap with its rerun for this long. Otherwise the watcher notices the death at once.
CHECK = 5  # seconds

# Variables for the scheduler alone.
SECRETS = {"SCHEDULER_ASYNC_STORE"}

_clock = SystemClock()


@dataclass(frozen=True)
class Command:
    """A shell command, its directory and its environment."""

    line: str
    cwd: str | None = None
    """The working directory. None means the scheduler's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables to add to the scheduler's environment."""
    payload: Json = None
    """A value that the command receives as JSON in `SCHEDULER_ASYNC_PAYLOAD`."""

    def __post_init__(self) -> None:
        if not _is_text(self.line) or not self.line.strip():
            _refuse(f"command must be a shell command such as {quoted('backup.sh --all')}, not {quoted(self.line)}.")
        if self.cwd is not None and not _is_text(self.cwd):
            _refuse(f"cwd must be a path, not {quoted(self.cwd)}.")
        env: object = self.env
        if not isinstance(env, Mapping) or not all(map(_is_text, env)) or "=" in "".join(env):
            _refuse(f"env must be a dict whose keys do not contain '=', not {quoted(env)}.")
        if not all(isinstance(value, str) and "\0" not in value for value in env.values()):
            _refuse(f"env must be a dict of strings, not {quoted(env)}.")
        to_json_text(self.payload, "payload")

    def to_payload(self) -> dict[str, Json]:
        """Return the payload of a job that runs this command."""
        parts = {"command": self.line, "cwd": self.cwd, "env": dict(self.env) or None, "payload": self.payload}
        return {name: value for name, value in parts.items() if value is not None}

    @classmethod
    def from_payload(cls, payload: Json) -> Command:
        """Return the command whose `to_payload` is *payload*."""
        if not isinstance(payload, dict) or "command" not in payload or payload.keys() - _PARTS:
            _refuse(f'The payload of a command job must look like {{"command": "backup.sh"}}, not {quoted(payload)}.')
        parts: dict[str, Any] = {"env": {}, "cwd": None, "payload": None, **payload}
        return cls(parts["command"], parts["cwd"], parts["env"], parts["payload"])


_PARTS = {"command", "cwd", "env", "payload"}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and "\0" not in value


def _refuse(message: str) -> NoReturn:
    raise InvalidJobError(message, "payload")


async def run_command(run: Run) -> Result:
    """Run the command of a job, and store the end of its output. An exit code other than 0 is a failure."""
    if sys.platform == "win32":
        raise SchedulerError("Command jobs need process groups, which Windows does not have.")
    command = Command.from_payload(run.payload)
    begun = _clock.monotonic()
    try:
        code = await _in_group(run, command)
    except OSError as error:
        if command.cwd is None or error.filename != command.cwd:
            raise
        return Result(Outcome.ERROR, message=f"Cannot run in {command.cwd}: {error.strerror}")
    took = short_duration(_clock.monotonic() - begun)
    if code == 0:
        return Result(message=f"Completed in {took}", exit_code=0)
    if code < 0:
        words, code = f"Ended by {signal_name(-code)}", 128 - code  # as shells do
    else:
        words = f"Exited with {code}"
    return Result(Outcome.ERROR, message=f"{words} after {took}", exit_code=code)


async def _in_group(run: Run, command: Command) -> int:
    """Run *command* in a process group and return its exit code, or a negative signal number."""
    loop = asyncio.get_running_loop()
    with Ends() as ends:
        output, their_output = ends.pipe()
        their_lifeline, lifeline = ends.sockets(CHECK)
        os.set_blocking(output, False)
        os.set_blocking(lifeline, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", LEADER, "sh", command.line),
                stdin=their_lifeline,
                stdout=their_output,
                stderr=their_output,
                cwd=command.cwd,
                env={**_inherited(), **_told(run, command), **command.env},
                start_new_session=True,
            )
        finally:
            ends.close(their_output, their_lifeline)
        loop.add_reader(output, _read, output, run.write)
        loop.add_reader(lifeline, _read, lifeline, _forget)
        try:
            code = await process.wait()
            with suppress(ConnectionError):  # the watcher has ended too
                os.write(lifeline, ALL_IS_WELL)  # background processes may continue
        except asyncio.CancelledError:
            await carried_through(_end(process))
            raise
        finally:
            loop.remove_reader(lifeline)
            loop.remove_reader(output)
            _read(output, run.write)
        return code


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SECRETS}


def _told(run: Run, command: Command) -> dict[str, str]:
    """Return the variables that describe the run to the command."""
    return {
        "SCHEDULER_ASYNC_JOB": run.job_id,
        "SCHEDULER_ASYNC_NAMESPACE": run.namespace,
        "SCHEDULER_ASYNC_RUN": str(run.id),
        "SCHEDULER_ASYNC_ATTEMPT": str(run.attempt),
        "SCHEDULER_ASYNC_SCHEDULED_FOR": run.scheduled_for.isoformat(),
        "SCHEDULER_ASYNC_PAYLOAD": to_json_text(command.payload, "payload"),
    }


def _read(end: int, take: Callable[[bytes], object]) -> None:
    """Read the available bytes, at most the capacity of a pipe, so that other tasks can run in between."""
    with suppress(BlockingIOError):
        data = os.read(end, PIPE)
        take(data)
        if not data:
            asyncio.get_running_loop().remove_reader(end)  # all writers have closed the pipe


def _forget(_: bytes) -> None:
    """Drop the line that a watcher wrote to check that the scheduler is alive."""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate the whole group, and kill it after a grace period. Its processes may outlive the shell."""
    _send(process, signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(_until_all_are_gone(process), GRACE)
    _send(process, signal.SIGKILL)
    await process.wait()


async def _until_all_are_gone(process: asyncio.subprocess.Process) -> None:
    await process.wait()
    while _send(process, 0):
        await _clock.wait(asyncio.Event(), LOOK)


def _send(process: asyncio.subprocess.Process, number: int) -> bool:
    """Send a signal to the whole group. Return False if no process is left."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True
