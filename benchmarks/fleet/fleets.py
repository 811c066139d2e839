"""Processes on one server: they are started together, asked together, and ended together."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from racing.contestants import BENCHMARKS, Contestant

# How long a process may take to start or to end, on a machine that is busy with other things.
PATIENCE = 60.0  # seconds


class Fleet:
    """So many processes of a contestant. Use it as a context: they are gone when it ends."""

    def __init__(self, contestant: Contestant, count: int, *arguments: object) -> None:
        self._command = [contestant.python(), "-m", f"fleet.{contestant.module}", *map(str, arguments)]
        self._count, self._is_peer = count, contestant.is_peer
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment()
            )
            self._processes.append(process)
        for line in self.hear():
            assert line == "ready", f"{' '.join(self._command)} did not start: see above"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            if self._is_peer:
                process.terminate()
        for process in self._processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def hear(self) -> list[str]:
        """A line of each."""
        return [cast(Any, process.stdout).readline().strip() for process in self._processes]

    def first_begun(self) -> float:
        """When the first of their handlers was called. Each process reports that once; an idle one reports nothing."""
        for process in self._processes:
            process.terminate()
        said = [cast(Any, process.stdout).read().split() for process in self._processes]
        return min(float(words[0]) for words in said if words)

    def ask(self) -> list[dict[str, Any]]:
        """What each has done since it was asked last."""
        for process in self._processes:
            cast(Any, process.stdin).write("\n")
        return [json.loads(line) for line in self.hear()]


def environment() -> dict[str, str]:
    """Where our own modules are found, whichever interpreter looks for them."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])}


@contextmanager
def started(contestant: Contestant, *arguments: object) -> Iterator[None]:
    """Let a contestant do something once, and wait for it in the end."""
    command = [contestant.python(), "-m", f"fleet.{contestant.module}", *map(str, arguments)]
    with subprocess.Popen(command, env=environment()) as process:
        yield
    assert process.returncode == 0, f"{' '.join(command)} failed: see above"


def cpu_of_server() -> float:
    """Seconds that the server of this program has worked, all of its processes together."""
    ticks = 0
    for pid in _descendants(os.getpid()):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        if name == "postgres":
            ticks += sum(map(int, rest.split()[11:15]))  # its own, and of those that it has seen end
    return ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> Sequence[int]:
    try:
        children = [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []
    return [*children, *(below for child in children for below in _descendants(child))]


def sleep_until(moment: float) -> None:
    """By the wall clock."""
    time.sleep(max(moment - time.time(), 0.0))
