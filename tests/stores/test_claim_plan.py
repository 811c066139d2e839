"""What a claim does with each job that is due: start it, queue it, or pass over it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_async import At, Cron, Every, Job, JobSpec, Schedule, SkipReason, Status
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import Skip
from scheduler_async.rules.edits import add, disable
from scheduler_async.rules.terms import Rules
from scheduler_async.stores.claim_plan import ClaimPlan
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.messages import ClaimTerms
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, from_micros, to_micros
from tests.cast import NOON

NOW = to_micros(NOON)


def plan_with(slots: int | None = None) -> ClaimPlan:
    return ClaimPlan(NOW, ClaimTerms(node=1, limit=100, slots=slots, handlers=None, rules=Rules()), Decisions())


def a_job(number: int, schedule: Schedule | None = None, *, age: int = HOUR, **fields: Any) -> Job:
    """A job that was added an hour ago and is due now, unless *schedule* and *age* say otherwise."""
    spec = JobSpec(schedule or Every("1h"), handler="work", **fields)
    return replace(add(spec, id=str(number), handler="work", now=NOW - age), uid=number)


def missed_for_good(number: int) -> Job:
    """A job that claims pass over: its only run is an hour late, and its policy is to skip."""
    return a_job(number, At(from_micros(NOW - HOUR)), misfire="skip")


def late(number: int) -> Job:
    """A job that has missed two occurrences besides the one that a claim takes up."""
    return a_job(number, age=3 * HOUR)


# ---------------------------------------------------------------- slots


@pytest.mark.parametrize(
    ("slots", "running", "queued"),
    [
        pytest.param(None, 3, 0, id="any number of slots"),
        pytest.param(5, 3, 0, id="more than enough"),
        pytest.param(3, 3, 0, id="just enough"),
        pytest.param(2, 2, 1, id="one too few"),
        pytest.param(0, 0, 3, id="none"),
    ],
)
def test_runs_start_while_there_are_slots_and_are_queued_after_that(
    slots: int | None, running: int, queued: int
) -> None:
    plan = plan_with(slots)

    for number in (1, 2, 3):
        assert plan.claim(a_job(number), 10 + number)

    assert [(run.id, run.uid) for run in plan.runs] == [(11, 1), (12, 2), (13, 3)]
    activities = [run.job.state.activity for run in plan.runs]
    assert activities == [Status.RUNNING] * running + [Status.QUEUED] * queued
    assert [run.is_queued for run in plan.runs] == [False] * running + [True] * queued


def test_a_job_that_is_passed_over_takes_neither_a_slot_nor_a_run_id() -> None:
    plan = plan_with(slots=1)

    took = [plan.claim(job, 7) for job in (missed_for_good(1), a_job(2))]

    assert took == [False, True]
    assert [(run.id, run.uid, run.job.status) for run in plan.runs] == [(7, 2, Status.RUNNING)]
    assert [job.uid for job in plan.passed_over] == [1]


def test_a_plan_tells_what_the_next_run_does() -> None:
    plan = plan_with(slots=1)
    before = plan.activity()
    plan.claim(a_job(1), 1)

    assert (before, plan.activity()) == (Status.RUNNING, Status.QUEUED)


# ---------------------------------------------------------------- what a store must write


def test_a_job_that_is_due_leaves_a_run_and_nothing_else() -> None:
    job = a_job(1, payload={"to": "ops"})
    plan = plan_with()

    plan.claim(job, 7)

    (run,) = plan.runs
    assert (run.scheduled_for, run.claimed_at, run.attempt) == (NOW, NOW, 1)
    assert run.payload_json == job.description.payload_json
    assert run.before == job.state
    assert (plan.edits, plan.skipped, plan.passed_over) == ([], [], [])


def test_a_late_job_runs_once_and_leaves_a_row_for_the_rest() -> None:
    plan = plan_with()

    plan.claim(late(1), 7)

    skip = Skip(reason=SkipReason.MISFIRE, scheduled_for=NOW - HOUR, missed=2)
    assert [run.scheduled_for for run in plan.runs] == [NOW - 2 * HOUR]
    assert [(job.uid, skips, at) for job, skips, at in plan.skipped] == [(1, (skip,), NOW)]
    assert [(edit.job.uid, edit.kind) for edit in plan.edits] == [(1, None)]


def test_a_job_that_is_claimed_ahead_is_claimed_as_of_its_time() -> None:
    plan = plan_with()

    plan.claim(a_job(1, At(from_micros(NOW + SECOND))), 7)

    assert [(run.scheduled_for, run.claimed_at) for run in plan.runs] == [(NOW + SECOND, NOW + SECOND)]


def test_a_job_whose_last_occurrence_is_skipped_ends_and_observers_hear_of_it() -> None:
    plan = plan_with()

    plan.claim(missed_for_good(1), 7)

    (ended,) = plan.passed_over
    assert ended.status is Status.DISABLED
    assert [(edit.job, edit.kind) for edit in plan.edits] == [(ended, EventKind.DISABLED)]
    assert [(job, [skip.missed for skip in skips], at) for job, skips, at in plan.skipped] == [(ended, [1], NOW)]


def test_a_job_that_skips_and_goes_on_stays_idle() -> None:
    plan = plan_with()

    plan.claim(a_job(1, age=HOUR + 2 * MINUTE, misfire="skip"), 7)

    (waiting,) = plan.passed_over
    assert (waiting.status, waiting.state.next_run_at) == (Status.IDLE, NOW + HOUR - 2 * MINUTE)
    assert [edit.kind for edit in plan.edits] == [None]


def test_a_job_that_is_disabled_already_is_passed_over_as_it_is() -> None:
    job = disable(a_job(1), "enough", NOW - MINUTE).job
    plan = plan_with()

    assert not plan.claim(job, 7)

    assert plan.passed_over == [job]
    assert [edit.kind for edit in plan.edits] == [EventKind.DISABLED]


def test_a_schedule_that_fails_disables_its_job_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [a_job(1), a_job(2, Cron("* * * * *", tz="UTC")), a_job(3)]
    plan = plan_with()

    def fail(*_: object) -> None:
        raise OverflowError("no such year")

    monkeypatch.setattr(Cron, "count_micros", fail)
    took = [plan.claim(job, job.uid) for job in jobs]

    assert took == [True, False, True]
    (broken,) = plan.passed_over
    assert (broken.uid, broken.disabled_reason) == (2, "its schedule fails: no such year")
    assert [(edit.job.uid, edit.kind) for edit in plan.edits] == [(2, EventKind.DISABLED)]


# ---------------------------------------------------------------- drop


@pytest.mark.parametrize("repeated", [set(), {1}, {2}, {1, 3}, {1, 2, 3}], ids=str)
def test_a_dropped_claim_leaves_nothing_to_write(repeated: set[int]) -> None:
    """Its occurrence ran before the clock went back: neither a run nor a row may be written again."""
    plan = plan_with()
    for number in (1, 2, 3):
        plan.claim(late(number), number)

    plan.drop(repeated)

    kept = [number for number in (1, 2, 3) if number not in repeated]
    assert [run.uid for run in plan.runs] == kept
    assert [edit.job.uid for edit in plan.edits] == kept
    assert [job.uid for job, _, _ in plan.skipped] == kept
