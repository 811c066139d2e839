"""The signals that end a program: SIGINT from a keyboard, SIGTERM from a supervisor."""

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
    """Call *tell* on the event loop for each signal that ends a program. Restore the previous handlers afterwards.

    Two mechanisms receive each signal, since either can miss one. The event loop reads signals from a pipe, which
    threads may have filled. The interpreter calls a handler, but only once for two signals in quick succession.
    """
    if threading.current_thread() is not threading.main_thread():
        raise SchedulerError(
            "run_until_signal() must be called in the main thread: no other receives signals. In another thread, use "
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
    # A full pipe needs no warning: the interpreter still calls the handler.
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
