"""The logger of the package. A log handler that fails never stops the scheduler.

A record about a job has the attribute `job`, its namespace and id. A record about a run also has `run` and `attempt`,
and after the run `outcome` and `duration_ms`, for programs that read logs.

Names, errors and tracebacks may contain any text. Characters that could forge another line of the log or control a
terminal are escaped. The lines of a traceback are indented.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import partial
from textwrap import indent
from traceback import print_exc

from scheduler_async.outbox import call_without_locks
from scheduler_async.texts import escaped, message_of, traceback_of

logger = logging.getLogger("scheduler_async")


def is_heard(level: int) -> bool:
    """Return whether the logger is enabled for *level*, to avoid formatting frequent messages for nothing."""
    return logger.isEnabledFor(level)


# A user's exception class may override the attribute.
_traceback_in = BaseException.__dict__["__traceback__"].__get__


def say(
    level: int,
    message: str,
    *values: object,
    extra: Mapping[str, object] | None = None,
    exc_info: bool | BaseException | None = False,
    traceback: str | None = None,
) -> None:
    """Log *message* as soon as no lock of the scheduler is held. Report a log handler that raises on stderr.

    *exc_info* works as in `logging`, with a traceback of at most 64 KiB. Pass *traceback* if it is already formatted.
    """
    if is_heard(level):
        error = exc_info if isinstance(exc_info, BaseException) else sys.exception() if exc_info else None
        place = logger.findCaller(stacklevel=2)
        call_without_locks(partial(_log, level, message, values, extra, error, traceback, place))


def _log(
    level: int,
    message: str,
    values: tuple[object, ...],
    extra: Mapping[str, object] | None,
    error: BaseException | None,
    traceback: str | None,
    place: tuple[str, int, str, str | None],
) -> None:
    """Log *message* with a *place* in the source code."""
    try:
        harmless = tuple(map(_harmless, values))
        attributes = None if extra is None else {name: _harmless(value) for name, value in extra.items()}
        raised = None if error is None else (type(error), error, _traceback_in(error))
        file, line, function, _ = place
        record = logger.makeRecord(logger.name, level, file, line, message, harmless, raised, function, attributes)
        if error is not None:
            text = escaped(traceback or traceback_of(error), keep="\n\t")
            record.exc_text = indent(text, "  ", lambda _: True)
        logger.handle(record)
    except (Exception, SystemExit):  # raised by a log handler, or by a user's class that it formats
        print_exc()


def _harmless(value: object) -> object:
    if isinstance(value, int | float | None):
        return value
    return escaped(message_of(value) if isinstance(value, BaseException) else str(value))
