"""Run what a command awaits, and let the library's warnings appear as lines."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from scheduler_async.cli import leave


def run_async(work: Coroutine[Any, Any, Any], *, about_jobs: bool = True) -> Any:
    """What *work* comes to. The library's warnings appear as lines, those *about_jobs* unless the command tells."""
    import asyncio
    import signal

    show_warnings(about_jobs=about_jobs)
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which asyncio knows how to replace
    return asyncio.run(work)


def show_warnings(*, about_jobs: bool) -> None:
    """Let the library's warnings appear as lines, except those about single runs: the commands tell of these.

    The line about a migration appears too: every command migrates an older store, even one that only reads.
    """
    import logging

    from scheduler_async.stores.messages import MIGRATED

    def is_wanted(record: logging.LogRecord) -> bool:
        is_told = hasattr(record, "outcome") or bool(record.exc_info) or (hasattr(record, "job") and not about_jobs)
        is_notice = hasattr(record, "signal") or record.msg == MIGRATED
        return is_notice or (record.levelno >= logging.WARNING and not is_told)

    logger, handler = logging.getLogger("scheduler_async"), logging.StreamHandler()
    handler.addFilter(is_wanted)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
