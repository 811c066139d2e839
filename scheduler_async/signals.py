"""How the system asks a program to end: SIGINT from a keyboard, SIGTERM from a supervisor."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from scheduler_async.errors import SchedulerError

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def told_of_signals(tell: Callable[[], object]) -> Iterator[None]:
    """Call *tell* on the event loop for each signal that asks to end; how they were handled before is restored.

    A signal is heard in two ways, since each of them can miss one. The event loop reads it from a pipe, which may be
    full of what threads have to say. The interpreter calls us, but only once for two that come close together.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SchedulerError(
            "Signals reach only the main thread of a program. Call run_until_signal() there; in another thread, use "
            '"async with scheduler", or start() and stop().'
        )
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in ENDING}
    heard: Counter[tuple[int, str]] = Counter()
    told: Counter[int] = Counter()

    def hear(number: int, way: str) -> None:
        heard[number, way] += 1
        if heard[number, way] > told[number]:
            told[number] += 1
            tell()

    def called(number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(hear, number, "called")

    for number in ENDING:
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, hear, number, "read")
        signal.signal(number, called)
    # That the pipe is full is nothing to complain about: we are called all the same.
    signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
    try:
        yield
    finally:
        for number, handler in before.items():
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, handler)


def signal_name(number: int) -> str:
    """Return the name of a signal, or its number if it has no name: most real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
