"""Is anything lost, and does anything run twice? With real processes, on a real file.

Every handler writes a line when it begins and when it ends, with one system call, to a log that all processes append
to. What is counted is counted from that log and compared with what the store says, so the store is not its own witness.

    shared   1, 2, 4 and 8 processes share a file: each occurrence runs once, or a row says why not
    kill     processes are killed at random moments: no one-shot is lost, and what was repeated is on record
    disk     the disk is full, the file is read-only, or another process keeps it locked: only time is lost
    load     ten thousand jobs come due at one instant: limits hold, and the event loop stays free
    clock    the wall clock jumps by a second, an hour, a day, a year, and more: nothing runs twice or waits for it
    freeze   a process stands still for longer than its lease: its runs are taken over, and it writes nothing after that
    postgres eight processes on one server: killed, frozen, cut off; its connections ended, the server itself killed
    shutdown asked to end at random moments, once or twice: in time, without a word, and every outcome is on record
    steer    killed while another process asks for runs and cancels them: no run is lost, no cursor is ahead
    chain    killed between a run and the run that follows it: no run that follows another is lost
    restless stopped and started again, called meanwhile, edited in the last 50 ms: no call hangs, nothing is left open

    python benchmarks/torture.py [--parts shared,kill,freeze] [--quick] [--seed 1] [--json FILE]

It takes twelve minutes, or three with --quick, and its exit code is 1 if anything is missed. It freezes and kills
with signals, which Windows does not have.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random

from torturing.accounts import Goals
from torturing.chain import chain
from torturing.clock import clock
from torturing.disk import disk
from torturing.freeze import freeze
from torturing.kill import kill
from torturing.load import load
from torturing.postgres import TORMENTS, postgres
from torturing.restless import STORES, restless
from torturing.shared import shared
from torturing.shutdown import shutdown
from torturing.steer import steer

Part = Callable[[Path, bool, Random, Goals], dict[str, object]]
"""Works in a directory, quickly or not, and tells what it expects and what it found."""

PARTS: dict[str, Part] = {
    "shared": shared,
    "kill": kill,
    "freeze": freeze,
    "disk": disk,
    "clock": clock,
    "load": load,
    "shutdown": shutdown,
    "restless": restless,
    "steer": steer,
    "chain": chain,
    "postgres": postgres,
}
# One of its torments alone, or one of the stores: postgres-kill, postgres-freeze, …, restless-file, steer-server, …
ALONE: dict[str, Part] = {
    **{f"postgres-{name}": partial(postgres, names=[name]) for name in TORMENTS},
    **{f"restless-{name}": partial(restless, stores=[name]) for name in STORES},
    **{f"steer-{name}": partial(steer, stores=[name]) for name in STORES},
    **{f"chain-{name}": partial(chain, stores=[name]) for name in STORES},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = options.parts.split(",")
    parts = PARTS | ALONE
    if unknown := set(chosen) - parts.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    print(f"CPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores", end=", ")
    print(f"{datetime.now(UTC):%Y-%m-%d}, seed {options.seed}")
    goals = Goals()
    figures: dict[str, object] = {"seed": options.seed}
    with tempfile.TemporaryDirectory() as directory:
        for name in chosen:
            figures[name] = parts[name](Path(directory), options.quick, Random(options.seed), goals)
    print()
    for words, holds in goals.results:
        print(f"{'met' if holds else 'MISSED':<7} {words}")
    if options.json:
        figures["goals"] = dict(goals.results)
        options.json.write_text(json.dumps(figures, indent=2))
    sys.exit(0 if all(holds for _, holds in goals.results) else 1)


if __name__ == "__main__":
    main()
