"""How long does the command line take to answer? Beside `python -c pass`, in the same run.

python benchmarks/startup.py [--rounds 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter

PROGRAM = [sys.executable, "-m", "scheduler_async"]
JOBS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"CPython {platform.python_version()}, {platform.machine()}, {datetime.now(UTC):%Y-%m-%d}")
    print(f"\n{'':>28} {'fastest':>10} {'median':>10}")
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        # As after an installation, which compiles: some machines are told to write no bytecode, and compile each time.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(JOBS):
            line = [*PROGRAM, "add", f"job-{number}", "true", "--cron", f"{number} 3 * * *"]
            subprocess.run(line, cwd=directory, env=env, check=True, stdout=subprocess.DEVNULL)
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "scheduler-async --help": [*PROGRAM, "--help"],
            f"list of {JOBS} jobs": [*PROGRAM, "list"],
            "next '0 9 * * *'": [*PROGRAM, "next", "0 9 * * *"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(options.rounds + 1):
            for name, command in commands.items():
                begun = perf_counter()
                subprocess.run(command, cwd=directory, env=env, check=True, stdout=subprocess.DEVNULL)
                if number:  # the first one compiles
                    times[name].append((perf_counter() - begun) * 1000)
    for name, found in times.items():
        figures[name] = {"fastest_ms": min(found), "median_ms": median(found)}
        print(f"{name:>28} {min(found):>7.0f} ms {median(found):>7.0f} ms")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
