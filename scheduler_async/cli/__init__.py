"""The command line: `scheduler-async`, or `python -m scheduler_async`.

It calls what every program can call, and prints what comes back. `app` lists the commands, which are in `commands`;
`printing` and `safe_text` make harmless whatever comes from a store. Nothing here decides about jobs. Each
command loads only what it needs: start-up counts.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130  # as shells count


def main() -> None:
    """Do what the arguments of the program ask for."""
    try:
        import signal

        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, leave)
        if any("@" in argument or "password" in argument.lower() for argument in sys.argv):
            from scheduler_async.cli.password_hiding import hide_passwords

            hide_passwords()
        from scheduler_async.cli.app import run_app  # with packages that the library alone does not need

        run_app()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs the package {error.name}: pip install 'scheduler-async[cli]'")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave(*_: object) -> None:
    """End at once, while nothing has been begun: what is loading would lose an interruption, or dress it up."""
    os._exit(INTERRUPTED)
