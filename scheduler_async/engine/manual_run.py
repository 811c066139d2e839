"""Runs by hand: start one job now, here or in any process, whatever its schedule; and cancel a run."""

from __future__ import annotations

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import (
    JobAlreadyRunningError,
    JobNotFoundError,
    RunEndedError,
    RunNotFoundError,
    SchedulerError,
    SchedulerStoppingError,
    quoted,
)
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.history import current_actor
from scheduler_async.stores.messages import AlreadyRequested, Cancellation, RunFilter
from scheduler_async.timekeeping.instants import Micros


async def trigger(engine: Engine, namespace: str, id: str, payload_json: str | None) -> int:
    """Start a run of the job in this process, and return the id of the run as soon as it has begun."""
    await engine.ready_for_a_pass()
    await _check_can_run(engine, namespace, id, payload_json)
    active = await engine.session.membership.as_node(
        lambda: engine.session.claimer.claim_one(namespace, id, payload_json)
    )
    if active is None:
        raise JobAlreadyRunningError(id, namespace)
    return active.claimed.id


async def request(engine: Engine, namespace: str, id: str, payload_json: str | None) -> int:
    """Ask for a run of the job by any scheduler on the store that has its handler, and return the id of the run."""
    await engine.ready()
    setting = engine.setting
    job = await engine.ask_unless_stopped(setting.store.get(namespace, id))
    if job is None:
        raise JobNotFoundError(id, namespace)
    if payload_json is not None:
        engine.handlers.check_payload(job.handler, payload_json)
    asked = await engine.ask_unless_stopped(
        setting.store.request_start(namespace, id, payload_json, setting.clock.micros(), current_actor())
    )
    if asked is None:
        raise JobNotFoundError(id, namespace)
    if isinstance(asked, AlreadyRequested):
        raise JobAlreadyRunningError(id, namespace, asked.run)
    if not isinstance(asked, int):
        raise JobAlreadyRunningError(id, namespace)
    engine.session.agenda.hear_of_requests()
    return asked


async def cancel(engine: Engine, run_id: int, reason: str | None) -> None:
    """Cancel a run of any process. The request survives the death of that process."""
    await engine.ready()
    session, setting = engine.session, engine.setting
    active = session.runner.find(run_id)
    if active is not None and active.has_ended:
        await active.over()
    now = setting.clock.micros()
    answer = await engine.ask_unless_stopped(setting.store.request_cancel(run_id, reason, now, current_actor()))
    if answer is Cancellation.UNKNOWN:
        raise RunNotFoundError(run_id)
    if answer is Cancellation.ENDED:
        raise RunEndedError(run_id)
    if answer is Cancellation.DONE:
        await _announce_withdrawn(engine, run_id, now)
        return
    active = session.runner.find(run_id)
    if active is not None:
        session.runner.cancel_on_request(active, reason)
    else:
        session.agenda.hear_of_requests()  # this process may have claimed it a moment ago


async def _announce_withdrawn(engine: Engine, run_id: int, now: Micros) -> None:
    """Tell observers of a run that was cancelled before any scheduler took it up."""
    if not engine.events.has_listeners:
        return
    for row in await engine.ask_unless_stopped(engine.setting.store.list_runs(RunFilter(run=run_id))):
        job = await engine.ask_unless_stopped(engine.setting.store.get(row.namespace, row.job_id))
        engine.session.announcer.tell(EventKind.RUN_FINISHED, now, job=job, run=row)


async def _check_can_run(engine: Engine, namespace: str, id: str, payload_json: str | None) -> None:
    """Raise an error unless a handler of this process can run the job with this payload."""
    if engine.session.runner.stopping.is_set():
        raise SchedulerStoppingError
    job = await engine.ask_unless_stopped(engine.setting.store.get(namespace, id))
    if job is None:
        raise JobNotFoundError(id, namespace)
    if engine.handlers.find(job.handler) is None:
        raise SchedulerError(
            f"Job {quoted(id)} cannot run here: no handler {quoted(job.handler)} is registered in this process. "
            "Register it, or pass anywhere=True to run the job in a process that has it."
        )
    if payload_json is not None:
        engine.handlers.check_payload(job.handler, payload_json)
