"""The command line in processes that have it loaded already: one of them starts in a tenth of the time of a new one.

`Prepared` talks to a process of its own, which imports the program once, and then copies itself for every call. A
copy has its own arguments, directory, environment and streams, and ends as the program does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# What the commands load when they need it.
LOADED = ("cli.app", "cli.live", "schedules.next_runs", "cli.timeline", "command", "scheduler")
MESSAGE = 1024 * 1024  # bytes, at most


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Prepared:
    """The program, ready to be called."""

    def __init__(self, patience: float) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(patience)
        with theirs:
            command = [sys.executable, "-m", "tests.prepared", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=Path(__file__).parent.parent, pass_fds=[theirs.fileno()])

    def call(self, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> Ended:
        """Run the program, and wait for it."""
        with Path(os.devnull).open("rb") as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            self.begin(arguments, cwd, env, [nothing.fileno(), out.fileno(), err.fileno()])
            code = self.end()
            out.seek(0)
            err.seek(0)
            return Ended(code, out.read().decode(), err.read().decode())

    def begin(self, arguments: tuple[str, ...], cwd: Path, env: Mapping[str, str], streams: Sequence[int]) -> int:
        """Start the program with these *streams*, and return the number of its process."""
        request = json.dumps({"arguments": arguments, "cwd": str(cwd), "env": dict(env)}).encode()
        socket.send_fds(self._socket, [request], streams)
        return int(self._socket.recv(MESSAGE))

    def end(self) -> int:
        """Wait for the program that was started, and return its exit code."""
        return int(self._socket.recv(MESSAGE))

    def close(self) -> None:
        """End the process, which has nobody to wait for any more."""
        self._socket.close()
        self._process.wait()


def serve(channel: socket.socket) -> list[str]:
    """Make a copy of this process for each request; in the copy, return the arguments."""
    while True:
        request, streams, _, _ = socket.recv_fds(channel, MESSAGE, 3)
        if not request:
            sys.exit()
        copy = os.fork()
        if not copy:
            break
        for stream in streams:
            os.close(stream)
        channel.send(str(copy).encode())
        channel.send(str(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])).encode())
    channel.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - until the end
    asked = json.loads(request)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    arguments: list[str] = asked["arguments"]
    return arguments


if __name__ == "__main__":
    import gc
    from importlib import import_module

    for module in LOADED:
        import_module(f"scheduler_async.{module}")
    gc.collect()
    gc.freeze()  # a copy that leaves alone what was loaded shares it, from its first moment to its last
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    from scheduler_async.cli import main

    main()
