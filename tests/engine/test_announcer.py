"""Events and log lines about jobs and runs."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from scheduler_async import EventKind, Outcome, SkipReason
from scheduler_async.jobs.events import Event
from scheduler_async.jobs.run import Skip
from scheduler_async.outbox import QuietLock
from scheduler_async.rules.terms import Transition
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import SECOND
from tests.cast import NOON
from tests.cast import SECOND as A_SECOND
from tests.engine.parts import NOON_MICROS, Parts, active_run, claimed_run, new_job


async def test_a_run_that_has_begun_has_no_ending_yet(clock: VirtualClock) -> None:
    parts = Parts(clock)
    stream = parts.setting.events.listen()

    parts.announcer.started(claimed_run(id=3), NOON_MICROS + 2 * SECOND)

    (event,) = parts.listener.events
    row = event.run
    assert row is not None
    assert (row.id, row.job_id, row.namespace, row.attempt) == (3, "a", "default", 1)
    assert (row.scheduled_for, row.started_at, row.delay_ms) == (NOON, NOON + 2 * A_SECOND, 2000)
    assert (row.outcome, row.finished_at, row.duration_ms, row.error) == (None, None, None, None)
    await stream.aclose()


def test_observers_are_not_asked_twice_about_the_beginning_of_a_run(clock: VirtualClock) -> None:
    """They learn of it by `run_begins`. Only a reader of events needs the event."""
    parts = Parts(clock)

    parts.announcer.started(claimed_run(), NOON_MICROS)

    assert parts.listener.events == []


def test_a_missing_handler_is_logged_once_for_each_revision_of_a_job(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    parts, job = Parts(clock), new_job()

    for _ in range(3):
        parts.announcer.handler_missing(job)

    assert [record.getMessage() for record in caplog.records if "no handler" in record.getMessage()] == [
        'Job default/a is due, but no handler "work" is registered here; it starts once there is one'
    ]


def test_an_edit_that_left_occurrences_out_has_an_event_for_each_and_one_for_itself(clock: VirtualClock) -> None:
    parts, job = Parts(clock), new_job()
    skip = Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON_MICROS, missed=3)

    parts.announcer.edited(Transition(job, (skip,), EventKind.UPDATED), NOON_MICROS)
    parts.announcer.edited(Transition(job), NOON_MICROS)
    parts.announcer.edited(None, NOON_MICROS)

    skipped, updated = parts.listener.events
    assert (skipped.kind, skipped.reason, skipped.run and skipped.run.missed) == ("run_skipped", "misfire", 3)
    assert (updated.kind, updated.job) == ("updated", job)


def test_a_run_that_was_interrupted_is_an_event_and_a_warning(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(clock)

    parts.announcer.interrupted([(Transition(new_job()), claimed_run(id=5))], NOON_MICROS)

    (event,) = parts.listener.events
    assert (event.kind, event.run and event.run.outcome) == ("run_finished", Outcome.INTERRUPTED)
    assert "Run 5 of default/a was interrupted" in caplog.text


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_dropped_run_has_a_line_if_it_began(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, has_begun: bool
) -> None:
    caplog.set_level(logging.INFO, "scheduler_async")
    active = active_run()
    active.began_at = NOON_MICROS if has_begun else None

    Parts(clock).announcer.dropped(active)

    assert ("was cancelled" in caplog.text) is has_begun


async def test_nothing_is_announced_under_a_lock(clock: VirtualClock) -> None:
    parts = Parts(clock)
    lock = QuietLock(parts.setting.outbox)

    async with lock:
        parts.announcer.tell(EventKind.STARTED, NOON_MICROS)
        told_under_lock = parts.listener.kinds

    assert told_under_lock == []
    assert parts.listener.kinds == ["started"]


async def test_an_observer_that_fails_holds_up_no_others(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_event: Event) -> Any:
        raise ValueError("no")

    parts = Parts(clock)
    monkeypatch.setattr(parts.listener, "heard", fail)
    lock = QuietLock(parts.setting.outbox)

    async with asyncio.timeout(1), lock:
        parts.announcer.tell(EventKind.STARTED, NOON_MICROS)

    assert "An observer failed at the event started" in caplog.text
