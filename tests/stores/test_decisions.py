"""What both stores decide about the jobs in their hands: claims, endings, recoveries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_async import (
    At,
    Cron,
    Every,
    Job,
    JobSpec,
    Outcome,
    Retry,
    Schedule,
    SkipReason,
    Status,
    Trigger,
    UnknownScheduleError,
)
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import ClaimedRun, EndedRun, Ending, Skip
from scheduler_async.jobs.unreadable import Unreadable
from scheduler_async.rules.claim_ahead import EARLIEST_CLAIM
from scheduler_async.rules.edits import add, disable, pause
from scheduler_async.rules.terms import Rules
from scheduler_async.schedules.unknown import UnknownSchedule
from scheduler_async.stores.decided import Decisions
from scheduler_async.stores.decisions import (
    after,
    after_repeat,
    can_be_claimed,
    claimed,
    claimed_by_hand,
    disabled_by,
    earliest_of,
    interrupted,
    process_gone,
    put_back,
    resumed_by_itself,
    reviewed_all,
)
from scheduler_async.stores.messages import NodeRow
from scheduler_async.timekeeping.instants import HOUR, LAST, MINUTE, SECOND, Micros, from_micros, to_micros
from tests.cast import NOON

NOW = to_micros(NOON)
RULES = Rules()
SUCCESS = Ending(outcome=Outcome.SUCCESS)
EVERY_MINUTE = Cron("* * * * *", tz="UTC")


def a_job(schedule: Schedule | None = None, **fields: Any) -> Job:
    """A job that was added an hour ago and is due now, unless *schedule* says otherwise."""
    spec = JobSpec(schedule or Every("1h"), handler="work", **fields)
    return replace(add(spec, id="a", handler="work", now=NOW - HOUR), uid=1)


def unreadable(job: Job) -> Job:
    return replace(job, unreadable_state=Unreadable("attempts", "it is not a number"))


def a_run(job: Job, now: Micros = NOW) -> ClaimedRun:
    taken = claimed(job, now, RULES, Status.RUNNING)
    assert taken.attempt is not None
    return ClaimedRun.of(7, taken.job, taken.attempt, job.description.payload_json, job.state)


@pytest.fixture
def broken_cron(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Cron schedules fail from here on: a library or a zone may have changed under a stored job."""

    def fail(*_: object) -> None:
        raise OverflowError("no such year")

    with monkeypatch.context() as broken:
        for name in ("next_micros", "count_micros", "latest_micros"):
            broken.setattr(Cron, name, fail)
        yield


BROKEN = replace(a_job(), description=replace(a_job().description, schedule=EVERY_MINUTE))
"""A job that is due, whose schedule fails in the tests that use `broken_cron`."""

# ---------------------------------------------------------------- claims


@pytest.mark.parametrize(
    ("job", "handlers", "expected"),
    [
        pytest.param(a_job(), None, True, id="any handler"),
        pytest.param(a_job(), {"work"}, True, id="its handler is here"),
        pytest.param(a_job(), {"mail"}, False, id="its handler is not here"),
        pytest.param(disable(a_job(), "enough", NOW).job, {"mail"}, True, id="disabled, which needs no handler"),
        pytest.param(unreadable(a_job()), None, False, id="an unreadable state"),
    ],
)
def test_a_claim_needs_the_handler_and_a_readable_state(job: Job, handlers: set[str] | None, expected: bool) -> None:
    assert can_be_claimed(job, handlers) is expected


@pytest.mark.parametrize(
    ("ahead", "claimed_at"),
    [
        pytest.param(0, NOW, id="on time"),
        pytest.param(SECOND, NOW, id="a second ahead, as of its time"),
        pytest.param(-SECOND, NOW + SECOND, id="a second late, as of now"),
    ],
)
def test_a_job_is_claimed_as_of_its_time_or_later(ahead: Micros, claimed_at: Micros) -> None:
    taken = claimed(a_job(), NOW - ahead, RULES, Status.RUNNING)

    assert taken.attempt is not None
    assert (taken.attempt.scheduled_for, taken.attempt.claimed_at) == (NOW, claimed_at)
    assert taken.job.status is Status.RUNNING
    assert taken.kind is None


@pytest.mark.usefixtures("broken_cron")
def test_a_schedule_that_fails_disables_the_job_that_is_claimed() -> None:
    taken = claimed(BROKEN, NOW + MINUTE, RULES)

    assert (taken.attempt, taken.kind) == (None, EventKind.DISABLED)
    assert taken.job.disabled_reason == "its schedule fails: no such year"
    assert taken.job.state.activity is Status.IDLE


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(("given", "payload"), [(None, '"own"'), ('"other"', '"other"')])
def test_a_run_by_hand_has_the_payload_it_was_given_or_that_of_the_job(
    given: str | None, payload: str, queued: bool
) -> None:
    job = a_job(payload="own")

    run = claimed_by_hand(job, 7, given, NOW + MINUTE, queued=queued)

    assert (run.id, run.trigger, run.scheduled_for) == (7, Trigger.MANUAL, NOW + MINUTE)
    assert (run.payload_json, run.before, run.is_queued) == (payload, job.state, queued)
    assert run.job.state.next_run_at == job.state.next_run_at


@pytest.mark.parametrize(
    ("moments", "at", "count", "expected"),
    [
        pytest.param([], None, 0, (None, 0), id="nothing is due"),
        pytest.param([], 5, 2, (5, 2), id="only others are due"),
        pytest.param([None], 5, 2, (5, 2), id="these are never due"),
        pytest.param([7, 7, 9], None, 0, (7, 2), id="only these are due"),
        pytest.param([7, 7], 5, 1, (5, 1), id="others are due first"),
        pytest.param([7, 7], 9, 4, (7, 2), id="these are due first"),
        pytest.param([7, 7], 7, 3, (7, 3), id="these are among the others"),
        pytest.param([7, 7], 7, 1, (7, 2), id="more of these than were counted"),
    ],
)
def test_the_earliest_moment_and_the_number_of_jobs_due_then(
    moments: list[Micros | None], at: Micros | None, count: int, expected: tuple[Micros | None, int]
) -> None:
    jobs = [a_job().with_state(replace(a_job().state, next_run_at=moment)) for moment in moments]

    assert earliest_of(jobs, at, count) == expected


def test_a_job_whose_occurrence_has_a_row_goes_on_after_the_latest_row() -> None:
    run = a_run(a_job())

    job = after_repeat(run, NOW + 2 * HOUR, NOW)

    assert (job.status, job.state.next_run_at) == (Status.IDLE, NOW + 3 * HOUR)
    assert job.state.last_run_at == run.before.last_run_at


def test_a_job_whose_row_belongs_to_another_run_stays_as_it_was() -> None:
    job = a_job()

    assert after_repeat(a_run(job), None, NOW) == job


@pytest.mark.usefixtures("broken_cron")
def test_a_job_that_cannot_go_on_since_its_schedule_fails_is_disabled() -> None:
    run = replace(a_run(a_job()), job=BROKEN)

    assert after_repeat(run, NOW, NOW).disabled_reason == "its schedule fails: no such year"


# ---------------------------------------------------------------- endings


def test_an_ended_run_leaves_its_job_with_a_next_run() -> None:
    run = a_run(a_job())

    left = after(run.job, EndedRun(run, SUCCESS, NOW + 1, NOW + MINUTE), RULES)

    assert (left.job.status, left.state.next_run_at, left.kind) == (Status.IDLE, NOW + HOUR, None)
    assert (left.state.last_run_at, left.state.last_success_at) == (NOW + 1, NOW + MINUTE)


def test_observers_hear_that_a_run_was_the_last() -> None:
    run = a_run(a_job(At(from_micros(NOW))))

    left = after(run.job, EndedRun(run, SUCCESS, NOW, NOW + MINUTE), RULES)

    assert (left.job.disabled_reason, left.kind) == (ENDED, EventKind.DISABLED)


def test_observers_do_not_hear_again_of_a_job_that_was_disabled_before_its_run_ended() -> None:
    run = a_run(a_job())
    job = disable(run.job, "enough", NOW + 1).job

    left = after(job, EndedRun(run, SUCCESS, NOW, NOW + MINUTE), RULES)

    assert (left.job.disabled_reason, left.kind) == ("enough", None)


@pytest.mark.usefixtures("broken_cron")
def test_a_schedule_that_fails_disables_the_job_whose_run_ended() -> None:
    run = a_run(a_job())
    job = replace(run.job, description=BROKEN.description)

    left = after(job, EndedRun(run, SUCCESS, NOW, NOW + MINUTE), RULES)

    assert (left.kind, left.state.activity) == (EventKind.DISABLED, Status.IDLE)
    assert left.job.disabled_reason == "its schedule fails: no such year"


def test_a_review_that_fails_changes_nothing() -> None:
    def fail(_: Job) -> Job:
        raise OverflowError("no such year")

    assert reviewed_all(Decisions(), [a_job()], NOW, lambda job: job) == [(a_job(), a_job())]
    assert reviewed_all(Decisions(), [a_job()], NOW, fail) == []


# ---------------------------------------------------------------- recoveries


def test_the_row_of_a_lost_run_names_its_node() -> None:
    assert process_gone(NodeRow.missing(3, "web-1")) == "The process of this run has died (web-1)."


def test_a_lost_run_is_recorded_as_interrupted_and_repeated() -> None:
    run = a_run(a_job())
    row = (NOW, 2, "retry", NOW + 1, NOW + 2)

    left, ended = interrupted(Decisions(), run.job, 7, row, "gone", NOW + MINUTE, RULES)

    assert (ended.run.id, ended.run.scheduled_for, ended.run.attempt) == (7, NOW, 2)
    assert (ended.run.trigger, ended.run.claimed_at) == (Trigger.RETRY, NOW + 1)
    assert (ended.ending.outcome, ended.ending.error) == (Outcome.INTERRUPTED, "gone")
    assert (ended.started_at, ended.finished_at) == (NOW + 2, NOW + MINUTE)
    assert (left.state.next_run_at, left.state.retry_of, left.state.attempts) == (NOW + MINUTE, NOW, 2)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param((None, None, None, None, None), id="no row"),
        pytest.param((LAST + 1, -1, "sometimes", "then", None), id="a row that cannot be read"),
    ],
)
def test_a_lost_run_without_a_readable_row_is_known_by_the_state_of_its_job(row: tuple[Any, ...]) -> None:
    run = a_run(a_job())

    _, ended = interrupted(Decisions(), run.job, None, row, "gone", NOW + MINUTE, RULES)

    assert (ended.run.id, ended.run.scheduled_for, ended.run.claimed_at) == (0, NOW, NOW)
    assert (ended.run.attempt, ended.run.trigger) == (1, Trigger.SCHEDULE)


def test_a_lost_run_leaves_a_job_alone_whose_state_cannot_be_read() -> None:
    job = unreadable(a_run(a_job()).job)

    left, ended = interrupted(Decisions(), job, 7, (NOW, 1, "schedule", NOW, NOW), "gone", NOW + MINUTE, RULES)

    assert left.job == job
    assert ended.ending.outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize(
    ("ahead", "finished_at"),
    [
        pytest.param(EARLIEST_CLAIM, NOW, id="claimed ahead: as of its time"),
        pytest.param(EARLIEST_CLAIM + 1, NOW - EARLIEST_CLAIM - 1, id="too far ahead: the clock went back"),
        pytest.param(-MINUTE, NOW + MINUTE, id="begun: now"),
    ],
)
def test_a_lost_run_ends_no_earlier_than_it_was_claimed_for(ahead: Micros, finished_at: Micros) -> None:
    run = a_run(a_job())

    _, ended = interrupted(Decisions(), run.job, 7, (NOW, 1, "schedule", NOW, None), "gone", NOW - ahead, RULES)

    assert ended.finished_at == finished_at


# ---------------------------------------------------------------- put back, disable


def test_a_run_that_is_put_back_leaves_its_job_as_it_was() -> None:
    job = a_job()
    run = a_run(job)

    freed, skips, _ = put_back(run.job, run)

    assert (freed, skips) == (job, ())


def test_a_job_that_was_paused_since_its_claim_stays_paused_when_the_run_is_put_back() -> None:
    run = a_run(a_job())
    paused = replace(pause(run.job, NOW + 1).job, updated=NOW + 1)

    freed, skips, at = put_back(paused, run)

    assert (freed.status, freed.state.next_run_at) == (Status.PAUSED, NOW + HOUR)
    assert (skips, at) == ((Skip(reason=SkipReason.PAUSED, scheduled_for=NOW, missed=1),), NOW + 1)


@pytest.mark.usefixtures("broken_cron")
def test_a_run_is_put_back_although_its_schedule_fails() -> None:
    run = replace(a_run(a_job()), before=BROKEN.state)
    paused = replace(run.job.state, phase=Phase.PAUSED, counted_until=NOW + MINUTE)
    job = replace(run.job, description=BROKEN.description, updated=NOW + MINUTE, state=paused)

    freed, skips, at = put_back(job, replace(run, job=job))

    assert (freed.status, freed.state.next_run_at) == (Status.PAUSED, NOW)
    assert (skips, at) == ((Skip(reason=SkipReason.PAUSED, scheduled_for=NOW, missed=1),), NOW + MINUTE)


def test_a_disabled_job_leaves_a_row_for_the_occurrences_it_owes() -> None:
    change = disabled_by(Decisions(), a_job(), "enough", NOW + HOUR)

    assert (change.job.disabled_reason, change.kind) == ("enough", EventKind.DISABLED)
    assert change.skips == (Skip(reason=SkipReason.DISABLED, scheduled_for=NOW, missed=2),)


@pytest.mark.usefixtures("broken_cron")
def test_a_job_can_be_disabled_although_its_schedule_fails() -> None:
    change = disabled_by(Decisions(), BROKEN, "enough", NOW + HOUR)

    assert (change.job.disabled_reason, change.kind) == ("enough", EventKind.DISABLED)
    assert change.skips == (Skip(reason=SkipReason.DISABLED, scheduled_for=NOW, missed=1),)


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.INTERRUPTED, Outcome.CANCELLED])
def test_what_passed_between_the_end_of_a_pause_and_of_a_run_has_a_row(outcome: Outcome) -> None:
    """A process that died is missed only later, and its run ends then: before the end of the pause is noticed."""
    run = a_run(a_job(EVERY_MINUTE, on_interrupt="skip"))
    paused = pause(run.job, NOW + 30 * SECOND, until=NOW + 5 * MINUTE + 30 * SECOND).job
    noticed = NOW + 20 * MINUTE
    left = after(paused, EndedRun(run, Ending(outcome=outcome), NOW, noticed), RULES)

    resumed = resumed_by_itself(left.job, noticed)

    assert resumed.state.phase is Phase.ACTIVE
    assert resumed.state.next_run_at == NOW + 21 * MINUTE
    assert [(skip.reason, skip.scheduled_for, skip.missed) for skip in left.skips + resumed.skips] == [
        (SkipReason.PAUSED, NOW + MINUTE, 5),
        (SkipReason.ALREADY_RUNNING, NOW + 6 * MINUTE, 15),
    ]


def test_a_pause_that_ends_late_leaves_no_row_for_what_is_still_owed() -> None:
    paused = pause(a_job(EVERY_MINUTE), NOW, until=NOW + 5 * MINUTE).job

    resumed = resumed_by_itself(paused, NOW + HOUR)

    assert resumed.state.next_run_at == NOW + 5 * MINUTE
    assert [(skip.reason, skip.missed) for skip in resumed.skips] == [(SkipReason.PAUSED, 4)]


# ---------------------------------------------------------------- schedules that this process does not know


def unknown(job: Job) -> Job:
    """The job as a process reads it that does not know the class of its schedule."""
    schedule = UnknownSchedule.of('{"version":1,"kind":"sunrise"}', UnknownScheduleError("not known", "sunrise"))
    return replace(job, description=replace(job.description, schedule=schedule))


def test_a_job_with_an_unknown_schedule_is_not_claimed() -> None:
    job = unknown(a_job())

    assert not can_be_claimed(job, None)
    assert can_be_claimed(disable(job, "enough", NOW).job, None)  # only to be shown as disabled


@pytest.mark.parametrize("on_interrupt", ["rerun", "skip"])
@pytest.mark.parametrize("outcome", [Outcome.INTERRUPTED, Outcome.SUCCESS, Outcome.ERROR])
def test_the_ending_of_its_run_leaves_the_next_run_to_a_process_that_knows_it(
    outcome: Outcome, on_interrupt: str
) -> None:
    """It neither ends the job nor disables it, and no run is made up."""
    known = a_job(Every("1h"), on_interrupt=on_interrupt, retry=Retry.in_window(1))
    run = a_run(known)
    ended = EndedRun(run, Ending(outcome=outcome, error="gone"), NOW, NOW + MINUTE)

    left = after(unknown(run.job), ended, RULES).job
    assert left.enabled
    assert left.state.next_run_at is not None

    taken = claimed(replace(left, description=known.description), NOW + 2 * MINUTE, RULES)
    if left.state.retry_of is not None:
        assert taken.attempt is not None
        assert (taken.attempt.trigger, taken.attempt.scheduled_for) == (Trigger.RETRY, NOW)
    else:
        assert taken.attempt is None
        assert taken.state.next_run_at == NOW + HOUR
    assert taken.skips == ()


def test_a_manual_run_leaves_its_next_run_as_it_was() -> None:
    job = unknown(a_job(Every("30m")))
    run = claimed_by_hand(job, 7, None, NOW - 40 * MINUTE, queued=False)

    left = after(run.job, EndedRun(run, SUCCESS, NOW, NOW), RULES)

    assert left.state.next_run_at == job.state.next_run_at
    assert left.job.enabled
