"""The calls of the scheduler for other threads, where they block. The event loop of the scheduler does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import SchedulerError

if TYPE_CHECKING:
    from scheduler_async.calls.namespace import Namespace
    from scheduler_async.scheduler import Scheduler

P = ParamSpec("P")
T = TypeVar("T")

# How often a waiting thread looks whether the event loop still runs. An answer arrives at once.
LOOK_EVERY = 0.5  # seconds

# Between two calls of run_until_complete(), an event loop does not run for a moment.
LOOKS_BEFORE_GIVING_UP = 4


class FromThread:
    """The calls of a scheduler for other threads of its process, as `Scheduler.from_thread` returns them.

    >>> import asyncio
    >>> from scheduler_async import Manual, Scheduler
    >>> scheduler = Scheduler(":memory:")
    >>> def in_a_thread() -> None:
    ...     job = scheduler.from_thread.add_job(Manual(), handler="sync", id="sync")
    ...     print("added", job.id)
    >>> async def main() -> None:
    ...     async with scheduler:
    ...         await asyncio.to_thread(in_a_thread)
    >>> asyncio.run(main())
    added sync

    Each call has the arguments and the answer of the scheduler's, blocks its thread until the answer is there, and
    raises what the scheduler raises. The work happens in the event loop in which the scheduler was last used, with the
    context variables of the calling thread. In the thread of that event loop, a call raises `SchedulerError`: await the
    call of the scheduler there. It also raises `SchedulerError` if the event loop does not run, or ends during the
    call. A `KeyboardInterrupt` in the waiting thread cancels the call.

    `start`, `stop` and `run_until_signal` are not among the calls: they belong to the event loop.
    """

    def __init__(self, scheduler: Scheduler, engine: Engine) -> None:
        self._scheduler, self._bridge = scheduler, _Bridge(engine)
        blocking = self._bridge.blocking
        self.add_job = blocking(scheduler.add_job)
        self.add_jobs = blocking(scheduler.add_jobs)
        self.update_job = blocking(scheduler.update_job)
        self.remove_job = blocking(scheduler.remove_job)
        self.pause_job = blocking(scheduler.pause_job)
        self.resume_job = blocking(scheduler.resume_job)
        self.disable_job = blocking(scheduler.disable_job)
        self.trigger_job = blocking(scheduler.trigger_job)
        self.run_job = blocking(scheduler.run_job)
        self.cancel_run = blocking(scheduler.cancel_run)
        self.wait_for_run = blocking(scheduler.wait_for_run)
        self.backfill_job = blocking(scheduler.backfill_job)
        self.get_backfill = blocking(scheduler.get_backfill)
        self.cancel_backfill = blocking(scheduler.cancel_backfill)
        self.run_pending = blocking(scheduler.run_pending)
        self.get_job = blocking(scheduler.get_job)
        self.list_jobs = blocking(scheduler.list_jobs)
        self.run_log = blocking(scheduler.run_log)
        self.get_run = blocking(scheduler.get_run)
        self.run_output = blocking(scheduler.run_output)
        self.run_stats = blocking(scheduler.run_stats)
        self.preview = blocking(scheduler.preview)
        self.explain = blocking(scheduler.explain)
        self.health = blocking(scheduler.health)
        self.nodes = blocking(scheduler.nodes)
        self.changes = blocking(scheduler.changes)
        self.node_history = blocking(scheduler.node_history)
        self.jobs_page = blocking(scheduler.jobs_page)
        self.runs_page = blocking(scheduler.runs_page)
        self.changes_page = blocking(scheduler.changes_page)
        self.counts = blocking(scheduler.counts)
        self.recent_runs = blocking(scheduler.recent_runs)
        self.coming_runs = blocking(scheduler.coming_runs)
        self.tally = blocking(scheduler.tally)
        self.planned = blocking(scheduler.planned)
        self.attention = blocking(scheduler.attention)
        self.upcoming = blocking(scheduler.upcoming)
        self.mark = blocking(scheduler.mark)

    def namespace(
        self,
        name: str,
        *,
        user_id: str | None = None,
        handlers: Iterable[str] | None = None,
        max_jobs: int | None = None,
        max_payload: int | None = None,
    ) -> NamespaceFromThread:
        """Return a view of one namespace whose calls block. See `Scheduler.namespace`."""
        view = self._scheduler.namespace(
            name, user_id=user_id, handlers=handlers, max_jobs=max_jobs, max_payload=max_payload
        )
        return NamespaceFromThread(view, self._bridge)


class NamespaceFromThread:
    """The calls of a `Namespace` for other threads of the process, as `FromThread.namespace` returns them."""

    def __init__(self, view: Namespace, bridge: _Bridge) -> None:
        self._view, blocking = view, bridge.blocking
        self.schedule = blocking(view.schedule)
        self.cancel = blocking(view.cancel)
        self.get = blocking(view.get)
        self.list = blocking(view.list)
        self.add_job = blocking(view.add_job)
        self.add_jobs = blocking(view.add_jobs)
        self.update_job = blocking(view.update_job)
        self.remove_job = blocking(view.remove_job)
        self.pause_job = blocking(view.pause_job)
        self.resume_job = blocking(view.resume_job)
        self.disable_job = blocking(view.disable_job)
        self.trigger_job = blocking(view.trigger_job)
        self.run_job = blocking(view.run_job)
        self.cancel_run = blocking(view.cancel_run)
        self.wait_for_run = blocking(view.wait_for_run)
        self.backfill_job = blocking(view.backfill_job)
        self.get_backfill = blocking(view.get_backfill)
        self.cancel_backfill = blocking(view.cancel_backfill)
        self.get_job = blocking(view.get_job)
        self.list_jobs = blocking(view.list_jobs)
        self.run_log = blocking(view.run_log)
        self.get_run = blocking(view.get_run)
        self.run_output = blocking(view.run_output)
        self.run_stats = blocking(view.run_stats)
        self.preview = blocking(view.preview)
        self.explain = blocking(view.explain)
        self.changes = blocking(view.changes)
        self.upcoming = blocking(view.upcoming)

    @property
    def name(self) -> str:
        """The name of the namespace."""
        return self._view.name


class _Bridge:
    """Carries calls from other threads into the event loop of the scheduler, and answers back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def blocking(self, call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
        """Return *call* as a function that blocks its thread until the answer is there."""
        name = call.__name__

        def wait(*args: P.args, **kwargs: P.kwargs) -> T:
            loop = self._running_loop(name)
            pending = _Pending[T](loop)
            # In the context of the caller: the task copies it.
            begin = partial(pending.begin, partial(call, *args, **kwargs))
            try:
                loop.call_soon_threadsafe(begin, context=copy_context())
            except RuntimeError:  # it was closed a moment ago
                raise _not_running(name) from None
            return pending.answer(name)

        # The wrapped function, not the method: help() shows its text, and inspect.signature() its arguments.
        return update_wrapper(wait, call)

    def _running_loop(self, name: str) -> asyncio.AbstractEventLoop:
        loop = self._engine.event_loop
        if loop is None or not loop.is_running():
            raise _not_running(name)
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return loop
        if here is loop:
            raise SchedulerError(
                f"from_thread.{name}() would block the event loop that has to answer it. Here, await "
                f"scheduler.{name}() instead; from_thread is for other threads."
            )
        return loop


def _not_running(name: str) -> SchedulerError:
    return SchedulerError(
        f"from_thread.{name}() needs the event loop of the scheduler, which is not running. Start the scheduler in an "
        "event loop first, and call this from another thread while it runs."
    )


class _Pending(Future[T]):
    """The answer to a call, for the thread that waits for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._task: asyncio.Task[T] | None = None

    def begin(self, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Start the call in the event loop, unless its thread no longer waits."""
        if not self.set_running_or_notify_cancel():
            return
        try:
            self._task = self._loop.create_task(call(), name="call from a thread")
        except Exception as error:  # such as a misspelt argument
            self.set_exception(error)
        else:
            self._task.add_done_callback(self._take)

    def _take(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())

    def answer(self, name: str) -> T:
        """Wait for the answer. Raise `SchedulerError` if the event loop ends before."""
        missed = 0
        try:
            while not self._wait(LOOK_EVERY):
                missed = 0 if self._loop.is_running() else missed + 1
                if missed == LOOKS_BEFORE_GIVING_UP or self._loop.is_closed():
                    raise CancelledError
            return self.result()
        except CancelledError:
            self._give_up()  # the event loop may run again
            raise SchedulerError(
                f"The event loop of the scheduler ended during from_thread.{name}(). What the call was to change may "
                "have been changed or not."
            ) from None
        except BaseException:  # such as KeyboardInterrupt, in this thread
            self._give_up()
            raise

    def _wait(self, seconds: float) -> bool:
        """Return whether the answer is there, after *seconds* at most."""
        with suppress(TimeoutError):
            self.exception(seconds)
        return self.done()

    def _give_up(self) -> None:
        """Cancel the call, whether it has begun or not."""
        if not self.done() and not self.cancel():
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
