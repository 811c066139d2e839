"""The contestants: where each of them lives, and how one is sent to do one measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from racing.courses import Figures

BENCHMARKS = Path(__file__).parents[1]
PEERS = BENCHMARKS / ".peers"


class NotMeasuredError(Exception):
    """Why there is no figure."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A module of `racing`, and what it needs. One that needs nothing runs in this environment."""

    name: str
    module: str
    colour: str
    packages: tuple[str, ...] = ()
    checkout: Path = BENCHMARKS.parent
    """Where its scheduler_async is."""

    @property
    def is_peer(self) -> bool:
        return bool(self.packages)

    def send(self, course: str, *, limit: float, **arguments: object) -> Figures:
        """One measurement in a process of its own; `NotMeasuredError` if it fails, or takes longer than *limit*."""
        command = [self.python(), "-m", "racing", self.module, course, json.dumps(arguments)]
        places = [str(BENCHMARKS), str(self.checkout)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONSAFEPATH": "1"}
        try:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            raise NotMeasuredError(f"it did not end within {limit:g} s.") from None
        if done.returncode:
            raise NotMeasuredError((done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"])[-1])
        return cast(Figures, json.loads(done.stdout.splitlines()[-1]))

    def python(self) -> str:
        """The interpreter that has what it needs; made at first use."""
        if not self.is_peer:
            return sys.executable
        home = PEERS / self.module
        python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        ready = home / "ready"
        wanted = "\n".join((sys.version, *self.packages))
        if not ready.exists() or ready.read_text() != wanted:
            print(f"An environment for {self.name} is made, once …", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *self.packages], check=True)
            ready.write_text(wanted)
        return str(python)


BARE = Contestant(name="bare limit", module="bare", colour="#888888")
BARE_TIMER = Contestant(name="bare asyncio", module="bare_timer", colour="#bbbbbb")
OURS = Contestant(name="scheduler_async", module="ours", colour="#0b6e4f")
# An older version of this project, from the checkout that `--before` names, on the courses of this one.
BEFORE = Contestant(name="version before", module="ours", colour="#7fb069")
OURS_IN_MEMORY = Contestant(name="scheduler_async, memory", module="ours_in_memory", colour="#52a58b")
APSCHEDULER_3 = Contestant(
    name="APScheduler 3.11",
    module="apscheduler3",
    colour="#d1495b",
    packages=("apscheduler==3.11.*", "sqlalchemy>=2,<3"),
)
APSCHEDULER_3_IN_MEMORY = replace(
    APSCHEDULER_3, name="APScheduler 3.11, memory", module="apscheduler3_in_memory", colour="#e39aa3"
)
APSCHEDULER_4 = Contestant(
    name="APScheduler 4.0.0a6",
    module="apscheduler4",
    colour="#edae49",
    # It imports sniffio without asking for it.
    packages=("apscheduler==4.0.0a6", "sniffio", "sqlalchemy[asyncio]>=2,<3", "aiosqlite"),
)
ASYNCZ = Contestant(name="asyncz", module="asyncz", colour="#30638e", packages=("asyncz==0.17.*", "sqlalchemy>=2,<3"))

# The two that keep their jobs in PostgreSQL, in `fleet`.
PGQUEUER = Contestant(
    name="pgqueuer 1.6", module="pgqueuer", colour="#7b5ea7", packages=("pgqueuer==1.6.*", "asyncpg", "uvloop")
)
PROCRASTINATE = Contestant(
    name="procrastinate 3.10", module="procrastinate", colour="#e07a5f", packages=("procrastinate==3.10.*",)
)

PEERS_ALL = (APSCHEDULER_3, APSCHEDULER_4, ASYNCZ)
EVERYBODY = (BARE, OURS, *PEERS_ALL)
KEEPING_OR_NOT = (BARE_TIMER, BARE, OURS, *PEERS_ALL, OURS_IN_MEMORY, APSCHEDULER_3_IN_MEMORY)
"""Everybody, and those that keep their jobs in memory."""
ON_POSTGRES = (OURS, PGQUEUER, PROCRASTINATE)
