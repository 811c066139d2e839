"""The logger of the package. Log handlers of the user can neither stop the scheduler nor run under its locks.

A line about a job carries `job` (its namespace and id); a line about a run also `run` and `attempt`, and once it has
ended `outcome` and `duration_ms`. They are attributes of the record, for programs that read the log.

Names, errors and tracebacks may contain anything. Characters that could forge a line of the log, or control a terminal,
are escaped; the lines of a traceback are indented.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import partial
from textwrap import indent
from traceback import print_exc

from scheduler_async.escapes import escaped
from scheduler_async.outbox import call_without_locks
from scheduler_async.texts import message_of, traceback_of

logger = logging.getLogger("scheduler_async")


def is_heard(level: int) -> bool:
    """Return whether a line of this *level* goes anywhere: frequent lines are not worth formatting otherwise."""
    return logger.isEnabledFor(level)


# An exception class of the user may redefine the attribute.
_traceback_in = BaseException.__dict__["__traceback__"].__get__


def say(
    level: int,
    message: str,
    *values: object,
    extra: Mapping[str, object] | None = None,
    exc_info: bool | BaseException | None = False,
    traceback: str | None = None,
) -> None:
    """Log *message*, once no lock of the scheduler is held; report a log handler that raises on stderr.

    *exc_info* is as for loggers, with a traceback of at most 64 KiB. Pass *traceback* if it is already known.
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
    """Log *message* as said at a *place* in the source code."""
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
    except (Exception, SystemExit):  # from a log handler, or from a user class that it examines
        print_exc()


def _harmless(value: object) -> object:
    if isinstance(value, int | float | None):
        return value
    return escaped(message_of(value) if isinstance(value, BaseException) else str(value))
