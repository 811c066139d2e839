"""Hide passwords in the arguments of the program, which every user of the machine can see in the list of processes."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

from scheduler_async.stores.addresses import redacted

VARIABLE = "SCHEDULER_ASYNC_ARGUMENTS"


def hide_passwords() -> None:
    """Start the program again, as the same process and without passwords, if its arguments hold any.

    The environment carries the real arguments, since only the owner of a process can see it. The program then removes
    them from there.
    """
    given = sys.argv[1:]
    shown = [redacted(argument) for argument in given]
    handed_over = os.environ.pop(VARIABLE, None)
    if handed_over is not None:
        arguments = json.loads(handed_over)
        if [redacted(argument) for argument in arguments] == shown:  # not those of another program
            sys.argv[1:] = arguments
    elif shown != given and sys.executable and sys.orig_argv[-len(given) :] == given and sys.platform != "win32":
        line = [sys.executable, *sys.orig_argv[1 : -len(given)], *shown]
        with suppress(OSError):  # the arguments may be too long for the environment
            os.execve(sys.executable, line, {**os.environ, VARIABLE: json.dumps(given)})  # noqa: S606 - this program
