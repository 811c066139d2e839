"""The page for operators behind a reverse proxy, under a prefix that the application does not know.

The links of the page are relative, so it needs no setting for the prefix. This part of an nginx configuration serves it
at https://example.com/tools/jobs/:

    location /tools/ {
        proxy_pass http://127.0.0.1:8000/;              # with the "/": nginx removes the prefix
        proxy_set_header Host $host;                    # the page compares it with the origin of a form
        proxy_set_header X-Forwarded-User $remote_user; # who has logged in at the proxy
        proxy_set_header X-Forwarded-For $remote_addr;  # of each address, five windows are updated live
    }

The access rule trusts that header, so visitors must not reach the application past the proxy: let it listen on
127.0.0.1, or at a Unix socket. `hosts` refuses requests under other names.

This program plays the proxy, without a server.

It prints:

    the page         200
    its style sheet  200   https://example.com/tools/jobs/static/page.css
    a job            200   https://example.com/tools/jobs/api/v1/jobs/default/a~1b
    run it           202   https://example.com/tools/jobs/api/v1/runs/1
    another name     421
    another site     403
"""

import asyncio
import re

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from scheduler_async import Manual, Scheduler
from scheduler_async.web import Access
from scheduler_async.web.access import Asking

scheduler = Scheduler(":memory:")


@scheduler.job(Manual(), id="a/b")
async def work() -> None: ...


def access(request: Asking) -> Access | None:
    user = request.headers.get("x-forwarded-user")
    return None if user is None else Access(user, "operate")


page = scheduler.page(access=access, hosts=["example.com"])
app = Starlette(routes=[Mount("/jobs", page)], lifespan=scheduler.lifespan)


async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
    """Do what the configuration above does."""
    path = scope["path"].removeprefix("/tools")
    headers = [*scope["headers"], (b"x-forwarded-user", b"anna")]
    await app({**scope, "path": path, "raw_path": path.encode(), "headers": headers}, receive, send)


async def main() -> None:
    here = httpx.URL("https://example.com/tools/jobs/")
    browser = httpx.AsyncClient(transport=httpx.ASGITransport(proxy), headers={"Origin": "https://example.com"})
    async with scheduler.lifespan(app), browser:
        overview = await browser.get(here)
        print(f"the page         {overview.status_code}")
        (sheet,) = re.findall(r'href="([^"]+\.css)"', overview.text)
        style = await browser.get(here.join(sheet))
        print(f"its style sheet  {style.status_code}   {style.url}")
        job = await browser.get(here.join("api/v1/jobs/default/a~1b"))
        print(f"a job            {job.status_code}   {job.url}")
        started = await browser.post(f"{job.url}/run")
        print(
            f"run it           {started.status_code}   {httpx.URL(f'{job.url}/run').join(started.headers['location'])}"
        )
        other_name = await browser.get(here, headers={"Host": "example.org"})
        print(f"another name     {other_name.status_code}")
        other_site = await browser.post(f"{job.url}/run", headers={"Origin": "https://example.org"})
        print(f"another site     {other_site.status_code}")


if __name__ == "__main__":
    asyncio.run(main())
