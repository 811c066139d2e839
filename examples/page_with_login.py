"""The page for operators in an application that has a login already.

The application knows who its visitors are; the access rule says what each of them may do with jobs. Serve it with
`uvicorn page_with_login:app --app-dir examples`, then open http://127.0.0.1:8000/login?name=anna.

This program asks it without a server, as a visitor without a login, as Bob, and as Anna.

It prints:

    nobody     reads: 401   pauses: 401
    bob        reads: 200   pauses: 403
    anna       reads: 200   pauses: 200
    anna paused nightly: the disk is full
"""

import asyncio
import secrets

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from scheduler_async import Cron, Scheduler
from scheduler_async.web import Access
from scheduler_async.web.access import Asking

scheduler = Scheduler(":memory:")


@scheduler.job(Cron("0 3 * * *", tz="Europe/Stockholm"), id="nightly")
async def nightly() -> None: ...


# The login of the application. A real one asks for a password, and keeps its sessions in a database.
USERS = {"anna": "operate", "bob": "look"}
sessions: dict[str, str] = {}


async def log_in(request: Request) -> Response:
    name = request.query_params.get("name", "")
    if name not in USERS:
        return PlainTextResponse("There is no such user.", 403)
    session = secrets.token_urlsafe()
    sessions[session] = name
    response = RedirectResponse("/scheduler/", 303)
    response.set_cookie("session", session, httponly=True, samesite="lax")
    return response


# The page asks this function about every request. None refuses it.
def access(request: Asking) -> Access | None:
    name = sessions.get(request.cookies.get("session", ""))
    return None if name is None else Access(name, USERS[name])


app = Starlette(
    routes=[Route("/login", log_in), Mount("/scheduler", scheduler.page(access=access))],
    lifespan=scheduler.lifespan,
)


async def visit(name: str | None) -> None:
    transport = httpx.ASGITransport(app)
    headers = {"Sec-Fetch-Site": "same-origin"}  # as browsers send it
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as browser:
        if name is not None:
            await browser.get("/login", params={"name": name})
        jobs = "/scheduler/api/v1/jobs"
        read = await browser.get(jobs)
        paused = await browser.post(f"{jobs}/default/nightly/pause", json={"reason": "the disk is full"})
    print(f"{name or 'nobody':10} reads: {read.status_code}   pauses: {paused.status_code}")


async def main() -> None:
    async with scheduler.lifespan(app):
        for name in (None, "bob", "anna"):
            await visit(name)
        change, *_ = await scheduler.changes("nightly")
        print(f"{change.actor} {change.action}d {change.job_id}: {change.reason}")


if __name__ == "__main__":
    asyncio.run(main())
