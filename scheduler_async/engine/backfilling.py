"""Backfills: past occurrences of a job, run by any scheduler on the store. The claimer starts their runs."""

from __future__ import annotations

from functools import partial

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import BackfillNotFoundError, JobNotFoundError
from scheduler_async.jobs.backfill import Backfill
from scheduler_async.rules.backfills import occurrences_between
from scheduler_async.stores.codec import refuse_stand_ins
from scheduler_async.timekeeping.instants import Micros

CANCELLED = "its backfill was cancelled"
"""The reason of a run whose backfill was cancelled."""


async def add(
    engine: Engine,
    name: tuple[str, str],
    start: Micros,
    end: Micros,
    payload_json: str | None,
    *,
    max_concurrent: int,
    again: bool,
) -> Backfill:
    """Add a backfill of the job with this *name*, a namespace and an id. Leave out occurrences that have not come."""
    await engine.ready()
    setting, (namespace, job_id) = engine.setting, name
    job = await engine.ask_unless_stopped(setting.store.get(namespace, job_id))
    if job is None:
        raise JobNotFoundError(job_id, namespace)
    refuse_stand_ins(job)
    if payload_json is not None:
        engine.handlers.check_payload(job.handler, payload_json)
    now = setting.clock.micros()
    find = partial(occurrences_between, job, start, min(end, now + 1))
    wanted = await engine.session.deciding.made(find) if job.schedule.may_be_slow else find()
    asked = setting.store.add_backfill(job, wanted, payload_json, now, max_concurrent=max_concurrent, again=again)
    backfill = await engine.ask_unless_stopped(asked)
    if backfill is None:
        raise JobNotFoundError(job_id, namespace)
    engine.session.agenda.hear_of_requests()
    return backfill


async def get(engine: Engine, number: int) -> Backfill:
    """Return a backfill as it is now."""
    await engine.ready()
    backfill = await engine.ask_unless_stopped(engine.setting.store.get_backfill(number))
    if backfill is None:
        raise BackfillNotFoundError(number)
    return backfill


async def cancel(engine: Engine, number: int) -> Backfill:
    """Cancel a backfill, and those of its runs that go on, in whichever process."""
    await engine.ready()
    setting = engine.setting
    asked = setting.store.cancel_backfill(number, CANCELLED, setting.clock.micros())
    backfill = await engine.ask_unless_stopped(asked)
    if backfill is None:
        raise BackfillNotFoundError(number)
    engine.session.agenda.hear_of_requests()
    return backfill
