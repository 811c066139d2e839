"""The pages for people: their routes, the views that collect what they show, and the drawing of charts.

A view asks the scheduler through the visit, and hands values to a template. It changes nothing itself: forms call
`operations`, as the API does. What draws and words is pure: `sparkline`, `hours`, `waterfall`, `lanes`, `moments`,
`kinds`, `lines` and `words`; `sight` decides what a visitor sees of texts.
"""

from __future__ import annotations

from scheduler_async.web.pages import acting
from scheduler_async.web.pages.changes import changes
from scheduler_async.web.pages.job import job
from scheduler_async.web.pages.jobs import jobs
from scheduler_async.web.pages.nodes import nodes
from scheduler_async.web.pages.overview import overview
from scheduler_async.web.pages.runs import run, runs
from scheduler_async.web.pages.timeline import timeline
from scheduler_async.web.routing import Route

ROUTES = [
    Route(method="GET", path="", handler=overview),
    Route(method="GET", path="jobs", handler=jobs),
    Route(method="GET", path="jobs/{namespace}/{id}", handler=job),
    Route(method="GET", path="runs", handler=runs),
    Route(method="GET", path="runs/{run}", handler=run),
    Route(method="GET", path="timeline", handler=timeline),
    Route(method="GET", path="nodes", handler=nodes),
    Route(method="GET", path="changes", handler=changes),
    *acting.ROUTES,
]
