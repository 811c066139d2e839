"""One logger for the package. Whatever handlers a user gave it, saying something never stops the scheduler."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping

logger = logging.getLogger("scheduler_async")


def say(
    level: int,
    message: str,
    *values: object,
    extra: Mapping[str, object] | None = None,
    exc_info: bool = False,
) -> None:
    """Log *message*; a log handler that raises is reported on stderr."""
    try:
        logger.log(level, message, *values, extra=extra, exc_info=exc_info)
    except Exception:  # a handler of the user's
        traceback.print_exc()
