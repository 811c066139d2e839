"""A reminder service: aiohttp, a job declared in code, and jobs that users add over HTTP.

pip install scheduler-async aiohttp
python examples/aiohttp_service.py

curl -X POST localhost:8080/reminders -H "X-User: ada" -d '{"id": "tea", "schedule": "every 5m", "text": "Tea?"}'
curl localhost:8080/reminders/tea/explain -H "X-User: ada"
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from functools import partial
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

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
    Scheduler,
    SchedulerError,
    parse_schedule,
)

scheduler = Scheduler(os.environ.get("REMINDERS", "reminders.db"), max_concurrent=20)
routes = web.RouteTableDef()


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


def user_of(request: web.Request) -> str:
    """Return the name of the user. Replace this with your authentication: a header proves nothing."""
    if "X-User" not in request.headers:
        raise web.HTTPUnauthorized(text="The header X-User is missing.")
    return request.headers["X-User"]


def space_of(request: web.Request) -> str:
    """Return the namespace of the user. It keeps the jobs of other users, and of the service itself, out of reach."""
    return f"user-{user_of(request)}"


def as_json(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "text": job.payload["text"],
        "schedule": job.schedule.describe(),
        "status": job.status,
        "next_run_at": job.next_run_at,
        "last_error": job.last_error,
    }


answer = partial(web.json_response, dumps=partial(json.dumps, default=str))


@routes.post("/reminders")
async def add(request: web.Request) -> web.Response:
    new = await request.json()
    if not isinstance(new, dict) or not isinstance(new.get("text"), str):
        raise InvalidJobError('A reminder must be a JSON object with a "schedule" and a "text".', "text")
    if not re.fullmatch(r"[\w.-]+", str(new.get("id", "-"))):
        raise InvalidJobError(
            "The id of a reminder is part of a URL: use letters, digits, '-', '_' and '.' only.", "id"
        )
    job = await scheduler.add_job(
        parse_schedule(new.get("schedule", ""), new.get("tz")),
        handler="remind",
        id=new.get("id"),
        namespace=space_of(request),
        user_id=user_of(request),
        payload={"text": new["text"]},
    )
    return answer(as_json(job), status=201)


@routes.get("/reminders")
async def list_all(request: web.Request) -> web.Response:
    return answer([as_json(job) for job in await scheduler.list_jobs(namespace=space_of(request))])


@routes.post("/reminders/{id}/trigger")
async def trigger(request: web.Request) -> web.Response:
    run_id = await scheduler.trigger_job(request.match_info["id"], namespace=space_of(request))
    return answer({"run": run_id}, status=202)


@routes.delete("/reminders/{id}")
async def remove(request: web.Request) -> web.Response:
    await scheduler.remove_job(request.match_info["id"], namespace=space_of(request))
    return web.Response(status=204)


@routes.get("/reminders/{id}/runs")
async def runs(request: web.Request) -> web.Response:
    job_id, space = request.match_info["id"], space_of(request)
    if await scheduler.get_job(job_id, namespace=space) is None:
        raise JobNotFoundError(job_id, space)
    rows = await scheduler.run_log(job_id, namespace=space, limit=20)
    return answer([asdict(row) for row in rows])


@routes.get("/reminders/{id}/explain")
async def explain(request: web.Request) -> web.Response:
    explanation = await scheduler.explain(request.match_info["id"], namespace=space_of(request))
    return answer({"reason": explanation.reason, "until": explanation.until, "sentence": str(explanation)})


@routes.get("/health")
async def health(_request: web.Request) -> web.Response:
    found = await scheduler.health()
    return answer(found.to_json(), status=200 if found.ok else 503)


@web.middleware
async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors of the scheduler into responses. Their messages say what was wrong and what to do."""
    try:
        return await handler(request)
    except JobNotFoundError as error:
        return answer({"detail": str(error)}, status=404)
    except (JobExistsError, JobAlreadyRunningError) as error:
        return answer({"detail": str(error)}, status=409)
    except (InvalidScheduleError, InvalidJobError) as error:
        return answer({"detail": str(error)}, status=422)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        return answer({"detail": f"The body is not JSON: {error}"}, status=422)
    except SchedulerError as error:  # the store has failed, or the scheduler is stopping
        return answer({"detail": str(error)}, status=503)


def build() -> web.Application:
    app = web.Application(middlewares=[refuse])
    app.add_routes(routes)
    app.cleanup_ctx.append(scheduler.cleanup_ctx)
    return app


if __name__ == "__main__":
    web.run_app(build(), host="127.0.0.1", port=int(os.environ.get("PORT", "8080")))
