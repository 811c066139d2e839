"""A reminder service: FastAPI, a job declared in code, and jobs that users add over HTTP.

pip install scheduler-async fastapi uvicorn
uvicorn examples.fastapi_service:app               # with --workers 4, four processes share the jobs
python examples/fastapi_service.py                 # or like this, with one process

curl -X POST localhost:8000/reminders -H "X-User: ada" -H "Content-Type: application/json" \
     -d '{"id": "tea", "schedule": "every 5m", "text": "Tea?"}'
curl localhost:8000/reminders/tea/explain -H "X-User: ada"
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from scheduler_async import (
    Cron,
    InvalidJobError,
    InvalidScheduleError,
    Job,
    JobAlreadyRunningError,
    JobExistsError,
    JobNotFoundError,
    Outcome,
    Result,
    Run,
    RunRow,
    Scheduler,
    SchedulerError,
    parse_schedule,
)

scheduler = Scheduler(os.environ.get("REMINDERS", "reminders.db"), max_concurrent=20)
app = FastAPI(title="Reminders", lifespan=scheduler.lifespan)


# ---------------------------------------------------------------- jobs


@scheduler.handler("remind")
async def remind(run: Run) -> None:
    print(f"Reminder for {run.user_id}: {run.payload['text']}", flush=True)  # send a mail instead


@scheduler.job(Cron("0 3 * * *", tz="UTC"), id="tidy")
async def tidy() -> Result:
    """Remove the reminders that are done, and those that were disabled because they kept failing."""
    over = await scheduler.list_jobs(status="disabled", handler="remind")
    for job in over:
        await scheduler.remove_job(job.id, namespace=job.namespace)
    return Result(Outcome.SUCCESS if over else Outcome.NOOP, message=f"{len(over)} reminders removed")


# ---------------------------------------------------------------- the API


class NewReminder(BaseModel):
    schedule: str
    """"every 5m", "0 9 * * 1-5", "2026-06-15T09:00:00Z" or "manual"."""
    tz: str | None = None
    text: str
    id: str | None = Field(default=None, pattern=r"^[\w.-]+$")  # it is part of a URL


class Reminder(BaseModel):
    id: str
    text: str
    schedule: str
    status: str
    next_run_at: datetime | None
    last_error: str | None

    @classmethod
    def of(cls, job: Job) -> Reminder:
        return cls(
            id=job.id,
            text=job.payload["text"],
            schedule=job.schedule.describe(),
            status=job.status,
            next_run_at=job.next_run_at,
            last_error=job.last_error,
        )


def user_of(x_user: Annotated[str, Header()]) -> str:
    """Return the name of the user. Replace this with your authentication: a header proves nothing."""
    return x_user


User = Annotated[str, Depends(user_of)]


def space_of(user: User) -> str:
    """Return the namespace of the user. It keeps the jobs of other users, and of the service itself, out of reach."""
    return f"user-{user}"


Space = Annotated[str, Depends(space_of)]


@app.post("/reminders", status_code=201)
async def add(user: User, space: Space, new: NewReminder) -> Reminder:
    job = await scheduler.add_job(
        parse_schedule(new.schedule, new.tz),
        handler="remind",
        id=new.id,
        namespace=space,
        user_id=user,
        payload={"text": new.text},
    )
    return Reminder.of(job)


@app.get("/reminders")
async def list_all(space: Space) -> list[Reminder]:
    return [Reminder.of(job) for job in await scheduler.list_jobs(namespace=space)]


@app.post("/reminders/{id}/trigger", status_code=202)
async def trigger(space: Space, id: str) -> dict[str, int]:
    return {"run": await scheduler.trigger_job(id, namespace=space)}


@app.delete("/reminders/{id}", status_code=204)
async def remove(space: Space, id: str) -> None:
    await scheduler.remove_job(id, namespace=space)


@app.get("/reminders/{id}/runs")
async def runs(space: Space, id: str, limit: int = 20) -> list[RunRow]:
    if await scheduler.get_job(id, namespace=space) is None:
        raise JobNotFoundError(id, space)
    return await scheduler.run_log(id, namespace=space, limit=limit)


@app.get("/reminders/{id}/explain")
async def explain(space: Space, id: str) -> dict[str, str | datetime | None]:
    explanation = await scheduler.explain(id, namespace=space)
    return {"reason": explanation.reason, "until": explanation.until, "sentence": str(explanation)}


@app.get("/health")
async def health(response: Response) -> dict[str, object]:
    found = await scheduler.health()
    response.status_code = 200 if found.ok else 503
    return found.to_json()


@app.exception_handler(SchedulerError)
async def refuse(_request: Request, error: SchedulerError) -> JSONResponse:
    """Turn errors of the scheduler into responses. Their messages say what was wrong and what to do."""
    match error:
        case JobNotFoundError():
            status = 404
        case JobExistsError() | JobAlreadyRunningError():
            status = 409
        case InvalidScheduleError() | InvalidJobError():
            status = 422
        case _:  # the store has failed, or the scheduler is stopping
            status = 503
    return JSONResponse({"detail": str(error)}, status)


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
