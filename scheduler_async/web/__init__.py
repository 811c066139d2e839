"""The operator's page and the HTTP API, one ASGI application: `scheduler.page(access=…)` returns it.

`application` takes requests, `routing` finds the route, `guards` and `access` decide whether it may go on, and `pages`
and `api` answer. `operations` is the only place that changes anything, through the public calls of `Scheduler`; nothing
here reads a store. The packages of the extra `web` are imported only by modules of this room, when a page is made.
"""

from scheduler_async.web.access import Access, everyone, token

__all__ = ["Access", "everyone", "token"]
