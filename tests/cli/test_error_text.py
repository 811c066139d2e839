"""What the library says, for people who have commands and no calls."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from scheduler_async import (
    Explanation,
    InvalidJobError,
    Job,
    JobAlreadyRunningError,
    JobDisabledError,
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    JobSpec,
    Manual,
    SchedulerError,
    SchedulerShutdownError,
    SkipReason,
)
from scheduler_async.cli.error_text import explained, sentence_of
from scheduler_async.rules.edits import add, pause
from scheduler_async.timekeeping.instants import to_micros
from tests.cast import NOON


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            JobNotFoundError("a"),
            'Job "a" not found. "scheduler-async list" shows all jobs.',
        ),
        (
            JobNotFoundError("tenant/a"),
            'Job "tenant/a" not found. "scheduler-async list" shows all jobs.',
        ),
        (
            JobNotFoundError("tenant/a", "tenant"),
            (
                'Job "tenant/a" in namespace "tenant" not found. "scheduler-async list" shows all jobs. '
                "Pass either NAMESPACE/SLUG or --namespace, not both."
            ),
        ),
        (
            JobExistsError("a b", "tenant"),
            (
                'Job "a b" in namespace "tenant" already exists. Choose another name, or change the job with '
                "\"scheduler-async edit 'a b' --namespace tenant\"."
            ),
        ),
        (
            JobDisabledError("a"),
            'Job "a" is disabled, so it cannot be paused. It does not start until "scheduler-async resume a".',
        ),
        (
            JobEndedError("a"),
            (
                'Job "a" has ended: its schedule has no occurrences left. "scheduler-async edit a --every 1h" gives it '
                'a new schedule, and "scheduler-async trigger a" runs it once more.'
            ),
        ),
        (
            JobAlreadyRunningError("a"),
            'Job "a" is already running. Only one run of a job may be in progress. Try again when it has ended.',
        ),
        (
            JobAlreadyRunningError("a", requested_run=7),
            'A run of job "a" is already requested (run 7). "scheduler-async cancel 7" withdraws it.',
        ),
        (
            SchedulerShutdownError(5.0, 2),
            "2 runs have not ended in time. The next scheduler on this store records them as interrupted.",
        ),
        (InvalidJobError("That is wrong.", "id"), "That is wrong."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_says_what_to_type(error: SchedulerError, sentence: str) -> None:
    assert sentence_of(error) == sentence


@pytest.fixture
def job() -> Job:
    return add(JobSpec(Manual(), handler="command"), id="a", handler="command", now=0)


@pytest.mark.parametrize("at", [None, NOON], ids=["now", "then"])
@pytest.mark.parametrize("reason", [None, *SkipReason])
def test_no_explanation_names_a_call(reason: SkipReason | None, at: datetime | None, job: Job) -> None:
    explanation = Explanation(reason=reason, until=None, sentence='Job "a" waits.', remedy=None, at=at)

    sentence = explained(job, explanation)

    assert sentence.startswith('Job "a" waits.')
    assert not re.search(r"\(\)|_job", sentence)
    assert sentence.count("scheduler-async") == sentence.count('"scheduler-async')


def test_a_reason_of_the_past_has_a_remedy_only_if_it_still_holds(job: Job) -> None:
    """To resume a job that is not paused would reset its failures."""
    then = Explanation(reason=SkipReason.PAUSED, until=None, sentence='Job "a" was paused.', at=NOON)
    paused = pause(job, to_micros(NOON)).job

    assert explained(job, then) == 'Job "a" was paused.'
    assert explained(paused, then).endswith('was paused. "scheduler-async resume a" lets it start again.')


@pytest.mark.parametrize("reason", [SkipReason.NO_SCHEDULER, SkipReason.NO_HANDLER])
@pytest.mark.parametrize(
    ("handler", "command"),
    [
        pytest.param("command", '"scheduler-async run" starts', id="a command"),
        pytest.param("mine", "MODULE:", id="else"),
    ],
)
def test_without_a_scheduler_the_command_that_starts_one_is_named(
    handler: str, command: str, reason: SkipReason
) -> None:
    """A program that runs on the store does not run commands."""
    job = add(JobSpec(Manual(), handler=handler), id="a", handler=handler, now=0)
    explanation = Explanation(reason=reason, until=None, sentence='Job "a" is due.', remedy="Start one.")

    assert command in explained(job, explanation)
