"""The command line: `scheduler-async`, or `python -m scheduler_async`."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # as shells count


def main() -> None:
    """Do what the arguments of the program ask for."""
    try:
        from scheduler_async.cli.app import run_app  # with packages that the library alone does not need

        run_app()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs the package {error.name}: pip install 'scheduler-async[cli]'")
    except KeyboardInterrupt:  # as early as while it loads
        sys.exit(INTERRUPTED)
