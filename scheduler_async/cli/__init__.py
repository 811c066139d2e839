"""The command line: `scheduler-async`, or `python -m scheduler_async`.

It calls the public API and prints the results. `app` lists the commands, which are in `commands`. `printing` and
`safe_text` escape all text from a store. Nothing here decides about jobs. Each command loads only the modules that it
needs, since start-up time matters.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130  # as shells count


def main() -> None:
    """Run the program."""
    try:
        import gc
        import signal

        # Modules stay until the end. Looking for garbage among them, now or at exit, takes a tenth of a short command.
        gc.disable()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, leave)
        if any("@" in argument or "password" in argument.lower() for argument in sys.argv):
            from scheduler_async.cli.password_hiding import hide_passwords

            hide_passwords()
        from scheduler_async.cli.app import run_app  # with packages that the library alone does not need

        gc.freeze()
        run_app()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs the package {error.name}: pip install 'scheduler-async[cli]'")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave(*_: object) -> None:
    """End at once: while modules are loading, nothing has begun, and an exception could get lost."""
    os._exit(INTERRUPTED)
