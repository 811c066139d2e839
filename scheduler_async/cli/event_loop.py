"""Run the coroutine of a command, and print the library's warnings."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from scheduler_async.cli import leave
from scheduler_async.cli.printing import put_sentence


def run_async(work: Coroutine[Any, Any, Any], *, about_jobs: bool = True) -> Any:
    """Run *work* and return its result. Print the library's warnings, but those *about_jobs* only if asked to."""
    import asyncio
    import gc
    import signal

    import scheduler_async.scheduler  # noqa: F401 - every command needs it; loading is over then

    gc.freeze()
    gc.enable()  # `main` disables it while modules are loaded
    show_warnings(about_jobs=about_jobs)
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio knows how to replace this one
    return asyncio.run(work)


def show_warnings(*, about_jobs: bool) -> None:
    """Print the library's warnings, except those about single runs, which the commands report themselves.

    The line about a migration is printed too: every command migrates an older store, even one that only reads.
    """
    import logging

    from scheduler_async.stores.messages import MIGRATED

    def is_wanted(record: logging.LogRecord) -> bool:
        about_run = hasattr(record, "outcome") or bool(record.exc_info)
        is_reported = about_run or (hasattr(record, "job") and not about_jobs)
        is_notice = hasattr(record, "signal") or record.msg == MIGRATED
        return is_notice or (record.levelno >= logging.WARNING and not is_reported)

    class Sentences(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            put_sentence(self.format(record))

    logger, handler = logging.getLogger("scheduler_async"), Sentences()
    handler.addFilter(is_wanted)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
