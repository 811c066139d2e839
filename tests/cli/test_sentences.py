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
    SQLiteStore,
)
from scheduler_async.cli.sentences import copied, copied_so_far, explained, sentence_of
from scheduler_async.rules.edits import add
from scheduler_async.stores.copy_records import Verdict
from scheduler_async.stores.copying import Copy


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            JobNotFoundError("a"),
            'There is no job "a". "scheduler-async list" shows the jobs there are.',
        ),
        (
            JobNotFoundError("tenant/a"),
            'There is no job "tenant/a". "scheduler-async list" shows the jobs there are.',
        ),
        (
            JobNotFoundError("tenant/a", "tenant"),
            (
                'There is no job "tenant/a" in namespace "tenant". "scheduler-async list" shows the jobs there are. '
                "Give either NAMESPACE/SLUG or --namespace, not both."
            ),
        ),
        (
            JobExistsError("a b", "tenant"),
            (
                'There is a job "a b" in namespace "tenant" already. Choose another name, or change that one with '
                "\"scheduler-async edit 'a b' --namespace tenant\"."
            ),
        ),
        (
            JobEndedError("a"),
            (
                'Job "a" has ended: nothing is left of its schedule. "scheduler-async edit a --every 1h" gives it a '
                'new one, and "scheduler-async trigger a" runs it once more.'
            ),
        ),
        (
            JobAlreadyRunningError("a"),
            'Job "a" is running already. A job runs once at a time: try again when it is done.',
        ),
        (
            SchedulerShutdownError(5.0, 2),
            "2 runs do not end: they are left behind, and recorded as interrupted by the next scheduler.",
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


def a_copy(runs_added: int, **verdicts: int) -> Copy:
    store = SQLiteStore(":memory:")
    copy = Copy(store, store)
    copy.verdicts.update({Verdict(name): count for name, count in verdicts.items()})
    copy.jobs = copy.jobs_seen = sum(verdicts.values())
    copy.runs_added, copy.runs, copy.runs_seen = runs_added, 45_310, 45_310
    return copy


@pytest.mark.parametrize(
    ("runs_added", "verdicts", "sentence"),
    [
        pytest.param(45_310, {"added": 1_200}, "Copied 1,200 jobs and 45,310 runs.", id="all is new"),
        pytest.param(
            45_310,
            {"added": 1_200, "same": 3},
            "Copied 1,200 jobs and 45,310 runs; 3 jobs were there already.",
            id="some were there",
        ),
        pytest.param(
            1,
            {"added": 1, "updated": 2, "same": 1, "kept": 1, "left_out": 2},
            "Copied 3 jobs and 1 run; 2 jobs replaced older ones, 1 job was there already, 1 job was kept, "
            "2 jobs were left out.",
            id="all that can become of one",
        ),
        pytest.param(
            0, {"same": 1_200}, "Nothing to copy: 1,200 jobs and 45,310 runs are there already.", id="all was there"
        ),
        pytest.param(0, {"kept": 2}, "Nothing was copied; 2 jobs were kept.", id="all is newer there"),
        pytest.param(0, {}, "Nothing to copy: the source has no jobs.", id="there is nothing"),
    ],
)
def test_a_copy_is_summed_up_in_a_sentence(runs_added: int, verdicts: dict[str, int], sentence: str) -> None:
    assert copied(a_copy(runs_added, **verdicts)) == sentence


def test_a_copy_that_was_broken_off_says_how_far_it_was() -> None:
    copy = a_copy(2_000, added=1_200)
    copy.runs_seen = 2_000

    assert copied_so_far(copy) == (
        "Interrupted after 1,200 of 1,200 jobs and 2,000 of 45,310 runs. The same command copies the rest."
    )
