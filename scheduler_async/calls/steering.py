"""Calls that run jobs by hand, wait for runs, and cancel them."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from scheduler_async.engine import backfilling, manual_run, run_waits
from scheduler_async.engine.engine import Engine
from scheduler_async.engine.single_pass import SinglePass
from scheduler_async.errors import InvalidJobError, JobNotFoundError, SchedulerError, quoted
from scheduler_async.jobs.answers import PassSummary
from scheduler_async.jobs.backfill import Backfill
from scheduler_async.jobs.json_text import Json, to_json_text
from scheduler_async.jobs.run import RunRow
from scheduler_async.options import (
    check_backfill_number,
    check_count,
    check_key,
    check_reason,
    check_run_id,
    check_timeout,
)
from scheduler_async.timekeeping.instants import parse_instant, to_micros


class Steering:
    """The calls of a scheduler that start runs, wait for them, and cancel them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def trigger_job(
        self, id: str, *, namespace: str = "default", payload: Json = None, anywhere: bool = False
    ) -> int:
        """Run a job now, whatever its schedule, and return the id of the run as soon as it has begun.

        Its schedule and its failure count stay as they are. *payload* replaces that of the job for this run. Raise
        `JobAlreadyRunningError` if as many runs of the job are in progress as its `max_instances` allows.

        With *anywhere*, any scheduler on the store that has the handler takes up the run, and the id is returned at
        once. The request waits until one does, even across restarts. `wait_for_run` waits for the end of the run, and
        `cancel_run` withdraws the request. Waiting requests count toward `max_instances`, too.
        """
        check_key(id, namespace)
        if not isinstance(anywhere, bool):
            raise InvalidJobError(f"anywhere must be True or False, not {quoted(anywhere)}.", "anywhere")
        payload_json = None if payload is None else to_json_text(payload, "payload")
        trigger = manual_run.request if anywhere else manual_run.trigger
        return await trigger(self._engine, namespace, id, payload_json)

    async def run_job(
        self,
        id: str,
        *,
        namespace: str = "default",
        payload: Json = None,
        timeout: float | str | timedelta | None = None,
    ) -> RunRow:
        """Run a job now, wait until it has ended, and return its row of the run log.

        It runs here if its handler is here, and otherwise in any process that has it. After *timeout*, in seconds or as
        a duration, raise `RunTimeoutError`, a `TimeoutError`; the run continues. If its process dies, the run is
        repeated as `on_interrupt` says, and the row is that of the last attempt.
        """
        check_key(id, namespace)
        seconds = check_timeout(timeout)
        await self._engine.ready()
        job = await self._engine.ask_unless_stopped(self._engine.setting.store.get(namespace, id))
        if job is None:
            raise JobNotFoundError(id, namespace)
        is_here = self._engine.handlers.find(job.handler) is not None
        run_id = await self.trigger_job(id, namespace=namespace, payload=payload, anywhere=not is_here)
        return await run_waits.wait_for(self._engine, run_id, seconds, repeats=True)

    async def cancel_run(self, run_id: int, *, reason: str | None = None) -> None:
        """Cancel a run of any process on the store.

        A handler in this process is cancelled at once, one in another process within 2 s. A run that has not begun does
        not begin. The outcome is "cancelled", with *reason* in `RunRow.reason`: it is not a failure, the run is not
        repeated, and the schedule continues. A function in a thread cannot be cancelled: it sees `run.stopping`, and
        the run ends when the function returns. Raise `RunNotFoundError` or `RunEndedError` if there is nothing to
        cancel.
        """
        check_run_id(run_id)
        if reason is not None:
            check_reason(reason)
        await manual_run.cancel(self._engine, run_id, reason)

    async def wait_for_run(self, run_id: int, timeout: float | str | timedelta | None = None) -> RunRow:
        """Wait until a run of any process has ended and is recorded, and return its row of the run log.

        After *timeout*, in seconds or as a duration, raise `RunTimeoutError`, a `TimeoutError`; the run continues. A
        run whose process died has ended as "interrupted", even if another run repeats it.
        """
        check_run_id(run_id)
        return await run_waits.wait_for(self._engine, run_id, check_timeout(timeout))

    async def backfill_job(
        self,
        id: str,
        start: datetime | str,
        end: datetime | str,
        *,
        namespace: str = "default",
        max_concurrent: int = 1,
        again: bool = False,
        payload: Json = None,
    ) -> Backfill:
        """Run the regular occurrences of a job from *start*, before *end*, oldest first, and return the backfill.

        Any scheduler on the store that has the handler runs them, also after restarts. The regular schedule continues
        and does not change. At most *max_concurrent* of them run at once; they do not count toward `max_instances`.
        Their `trigger` is "backfill", and `scheduled_for` is the occurrence. Occurrences that have succeeded are left
        out, unless *again*; those that have not come yet are left to the schedule. *payload* replaces that of the job.

        `get_backfill` returns its progress. A failed run is not retried: make the same backfill again, which leaves out
        what has succeeded. A run whose process died is run again, as `on_interrupt` says. A backfill waits while its
        job is paused. Raise `InvalidJobError` if there are more than 10,000 occurrences.
        """
        check_key(id, namespace)
        first, last = to_micros(parse_instant(start, "start")), to_micros(parse_instant(end, "end"))
        if first >= last:
            raise InvalidJobError(f"start must be before end, not {quoted(str(start))}.", "start")
        if not isinstance(again, bool):
            raise InvalidJobError(f"again must be True or False, not {quoted(again)}.", "again")
        most = check_count(max_concurrent, "max_concurrent")
        if most is None:
            raise InvalidJobError("max_concurrent must be a whole number from 1 up, not None.", "max_concurrent")
        payload_json = None if payload is None else to_json_text(payload, "payload")
        name = namespace, id
        return await backfilling.add(self._engine, name, first, last, payload_json, max_concurrent=most, again=again)

    async def get_backfill(self, number: int) -> Backfill:
        """Return a backfill as it is now. Raise `BackfillNotFoundError` if there is none with this *number*."""
        check_backfill_number(number)
        return await backfilling.get(self._engine, number)

    async def cancel_backfill(self, number: int) -> Backfill:
        """Cancel a backfill and its runs in progress, and return it. A backfill that has ended stays as it is.

        Raise `BackfillNotFoundError` if there is none with this *number*.
        """
        check_backfill_number(number)
        return await backfilling.cancel(self._engine, number)

    async def run_pending(self, now: datetime | None = None) -> PassSummary:
        """Make one pass without the loop: run what is due, wait for it, and return the counts.

        Jobs run in order, one after another or `max_concurrent` at a time. *now* decides what is due; it defaults to
        the clock's time.
        """
        if self._engine.setting.limits.max_concurrent is not None:
            self._refuse_in_handler("run_pending()", "its own run may hold the slot that it waits for")
        given = None if now is None else to_micros(parse_instant(now, "now"))
        await self._engine.ready_for_a_pass()
        return await SinglePass(self._engine, self._engine.setting.clock.micros() if given is None else given).run()

    def _refuse_in_handler(self, call: str, problem: str) -> None:
        task = asyncio.current_task()
        if any(active.task is task for active in self._engine.session.runner):
            raise SchedulerError(f"{call} must not be called in a handler: {problem}.")
