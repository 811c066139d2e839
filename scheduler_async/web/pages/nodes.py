"""The nodes: the schedulers that share the store, their clocks and heartbeats, and those that were there before."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from starlette.responses import Response

from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.history import NodeFate, NodeSpan
from scheduler_async.timekeeping.time_format import lasting
from scheduler_async.web.pages.kinds import Kind, Sign
from scheduler_async.web.pages.showing import moments_of, show
from scheduler_async.web.visit import Visit

SKEW = timedelta(seconds=1)
MOST_SPANS = 40

FATES: dict[str, Sign] = {
    NodeFate.RUNNING: Sign(Kind.OK, "running"),
    NodeFate.LEFT: Sign(Kind.OFF, "left in order"),
    NodeFate.LOST: Sign(Kind.BAD, "lost"),
}


class NodeLine(NamedTuple):
    """A node in the list."""

    node: Node
    sign: Sign
    skew: str
    is_skewed: bool
    heartbeat: str


class SpanLine(NamedTuple):
    """The life of a node in the list."""

    span: NodeSpan
    sign: Sign
    lasted: str


def node_line(node: Node) -> NodeLine:
    """Return the line of a node."""
    is_skewed = abs(node.clock_skew) > SKEW
    sign = (
        Sign(Kind.BAD, "no heartbeat")
        if not node.lease
        else Sign(Kind.LATE, "clock")
        if is_skewed
        else Sign(Kind.OK, "running")
    )
    return NodeLine(node, sign, lasting(node.clock_skew), is_skewed, lasting(node.lease))


async def nodes(visit: Visit) -> Response:
    """Show the nodes."""
    moments = moments_of(visit)
    is_tenant = visit.access.namespaces is not None
    mark = await visit.scheduler.mark(namespaces=visit.access.namespaces)
    found = [] if is_tenant else await visit.scheduler.nodes()
    history = [] if is_tenant else await visit.scheduler.node_history(limit=MOST_SPANS)
    return show(
        visit,
        "nodes.html",
        moments,
        tab="nodes",
        mark=mark,
        is_tenant=is_tenant,
        nodes=[node_line(node) for node in found],
        spans=[
            SpanLine(
                span,
                FATES.get(span.how, Sign(Kind.OFF, str(span.how))),
                lasting((span.until or moments.now) - span.since) if span.until or span.how == "running" else "",
            )
            for span in history
        ],
    )
