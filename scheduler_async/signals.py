"""How the system asks a program to end: SIGINT from a keyboard, SIGTERM from a supervisor."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_of_signals(tell: Callable[[], object]) -> Iterator[None]:
    """Call *tell* on the event loop for each signal that asks to end; how they were handled before is restored."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        try:
            loop.add_signal_handler(number, tell)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(tell))
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)
