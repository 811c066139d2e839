"""What needs the attention of people, in sentences with a cause and an effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_async import Every, Job, Node, NodeSpan, Retry
from scheduler_async.jobs.enums import Phase
from scheduler_async.rules import concerns
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.instants import from_micros
from tests.rules.stories import NOON, a_job

SECOND = 1_000_000


def failed(times: int, retry: Retry | None = None, **state: Any) -> Job:
    job = a_job(Every("1h"), retry=retry)
    found = {"consecutive_errors": times, "last_error": "no answer", "last_error_at": NOON, **state}
    return replace(job, state=replace(job.state, **found))


@pytest.mark.parametrize(
    ("job", "cause", "effect"),
    [
        pytest.param(
            failed(1, Retry.none()),
            "It failed once: no answer.",
            "It runs again at its next time.",
            id="once, without a limit",
        ),
        pytest.param(
            failed(3),
            "It failed 3 times in a row: no answer.",
            "It runs again at its next time. 2 more failures disable it.",
            id="two before the last",
        ),
        pytest.param(
            failed(4, last_error=None),
            "It failed 4 times in a row: no reason is known.",
            "It runs again at its next time. 1 more failure disables it.",
            id="one before the last",
        ),
        pytest.param(
            failed(2, Retry.none(), retry_of=NOON),
            "It failed 2 times in a row: no answer.",
            "It is tried again.",
            id="a retry is due",
        ),
        pytest.param(
            failed(2, Retry.none(), phase=Phase.PAUSED, last_error="Why?"),
            "It failed 2 times in a row: Why?",
            "It is paused.",
            id="paused",
        ),
    ],
)
def test_a_failing_job_says_what_happens_next(job: Job, cause: str, effect: str) -> None:
    concern = concerns.failing(job, Rules())

    assert (concern.cause, concern.effect) == (cause, effect)
    assert concern.since == from_micros(NOON)


def node(skew: timedelta) -> Node:
    return Node(
        id="web-1",
        host="web",
        pid=7,
        since=from_micros(NOON),
        lease=timedelta(seconds=30),
        running=0,
        clock_skew=skew,
    )


@pytest.mark.parametrize(
    ("skew", "words"),
    [
        (timedelta(seconds=90), "The clock of web is 1 minute 30 seconds ahead of that of the store."),
        (timedelta(seconds=-90), "The clock of web is 1 minute 30 seconds behind that of the store."),
        (timedelta(milliseconds=100), None),
    ],
    ids=["ahead", "behind", "as good as equal"],
)
def test_a_clock_that_differs_from_that_of_the_store_is_a_concern(skew: timedelta, words: str | None) -> None:
    concern = concerns.clock_skew(node(skew))

    assert (None if concern is None else concern.cause) == words


@pytest.mark.parametrize(
    ("how", "ago", "expected"),
    [("lost", timedelta(hours=1), True), ("lost", timedelta(days=3), False), ("left", timedelta(hours=1), False)],
    ids=["an hour ago", "days ago", "it signed off"],
)
def test_a_node_that_was_lost_recently_is_a_concern(how: str, ago: timedelta, expected: bool) -> None:
    now = from_micros(NOON)
    span = NodeSpan(name="web-1", host="web", pid=7, since=now - timedelta(days=9), until=now - ago, how=how)

    assert concerns.is_lost(span, now) is expected
    assert concerns.node_lost(span).cause == "The process 7 on web has died, or lost its connection."


@pytest.mark.parametrize("job", [a_job(Every("1h")), None], ids=["a handler", "something unknown"])
def test_what_has_blocked_the_event_loop_is_named(job: Job | None) -> None:
    concern = concerns.loop_blocked(NOON + SECOND, job, "blocked the event loop for 3 s")

    assert concern.cause == f"{'Something' if job is None else 'It'} blocked the event loop for 3 s."
    assert concern.job_id == (None if job is None else job.id)
