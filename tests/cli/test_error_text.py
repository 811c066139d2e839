"""What the library says, for people who have commands and no calls."""

from __future__ import annotations

import re

import pytest

from scheduler_async import (
    Explanation,
    InvalidJobError,
    Job,
    JobAlreadyRunningError,
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
from scheduler_async.rules.edits import add


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


@pytest.mark.parametrize("reason", [None, *SkipReason])
def test_no_explanation_names_a_call(reason: SkipReason | None, job: Job) -> None:
    explanation = Explanation(reason=reason, until=None, sentence='Job "a" waits.', remedy=None)

    sentence = explained(job, explanation)

    assert sentence.startswith('Job "a" waits.')
    assert not re.search(r"\(\)|_job", sentence)
    assert sentence.count("scheduler-async") == sentence.count('"scheduler-async')
