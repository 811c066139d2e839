"""Runs by hand: start one job now, whatever its schedule, and wait for a run to end."""

from __future__ import annotations

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import (
    JobAlreadyRunningError,
    JobNotFoundError,
    SchedulerError,
    SchedulerStoppingError,
    quoted,
)


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


async def wait_for(engine: Engine, run_id: int) -> None:
    """Wait until a run of this process has ended and is recorded."""
    runner = engine.session.runner
    for active in runner:
        if active.claimed.id == run_id:
            if active is runner.current():
                raise SchedulerError(
                    f"Run {run_id} cannot wait for itself to end. Call wait_for_run() outside of its handler."
                )
            await active.over()


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
            "Register it, or trigger the job in a process that has it."
        )
    if payload_json is not None:
        engine.handlers.check_payload(job.handler, payload_json)
