"""One logger for the package. Whatever handlers a user gave it, saying something never stops the scheduler.

A line about a job carries `job`, which is its namespace and id; one about a run also `run` and `attempt`, and once it
has ended `outcome` and `duration_ms`. They are attributes of the record, for those who do not want to read sentences.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping

logger = logging.getLogger("scheduler_async")


def is_heard(level: int) -> bool:
    """Whether anybody listens: what is said most often need not be put into words for nobody."""
    return logger.isEnabledFor(level)


def say(
    level: int,
    message: str,
    *values: object,
    extra: Mapping[str, object] | None = None,
    exc_info: bool | BaseException | None = False,
) -> None:
    """Log *message*; a log handler that raises is reported on stderr."""
    try:
        logger.log(level, message, *values, extra=extra, exc_info=exc_info, stacklevel=2)
    except Exception:  # a handler of the user's
        traceback.print_exc()
