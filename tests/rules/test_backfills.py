"""What the endings of runs mean for their backfills."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

import pytest

from scheduler_async import Every, JobSpec, Outcome
from scheduler_async.jobs.retries import MAX_INTERRUPTIONS
from scheduler_async.jobs.run import EndedRun, Ending
from scheduler_async.rules.backfills import claimed_for_backfill, endings
from scheduler_async.rules.edits import add
from scheduler_async.timekeeping.instants import HOUR, to_micros
from tests.cast import NOON

NOW = to_micros(NOON)
Counted: TypeAlias = tuple[int, int, list[tuple[int, int]]]
DONE: Counted = (1, 0, [])
FAILED: Counted = (0, 1, [])
AGAIN: Counted = (0, 0, [(7, NOW - HOUR)])


@pytest.mark.parametrize(
    ("ending", "running", "interruptions", "expected"),
    [
        pytest.param(Ending(outcome=Outcome.SUCCESS), [7], 0, DONE, id="a success"),
        pytest.param(Ending(outcome=Outcome.NOOP), [], 0, DONE, id="a success of a backfill that was cancelled"),
        pytest.param(Ending(outcome=Outcome.SKIPPED), [7], 0, FAILED, id="a run that declined has not succeeded"),
        pytest.param(Ending(outcome=Outcome.ERROR, error="no"), [7], 0, FAILED, id="a failure is not retried"),
        pytest.param(Ending(outcome=Outcome.INTERRUPTED), [7], 1, AGAIN, id="a death"),
        pytest.param(Ending(outcome=Outcome.INTERRUPTED), [7], MAX_INTERRUPTIONS, FAILED, id="one death too many"),
        pytest.param(Ending(outcome=Outcome.INTERRUPTED), [], 1, FAILED, id="a death, but the backfill was cancelled"),
        pytest.param(Ending(outcome=Outcome.CANCELLED), [7], 0, AGAIN, id="a stop"),
        pytest.param(Ending(outcome=Outcome.CANCELLED, on_request=True), [7], 0, FAILED, id="cancelled on request"),
    ],
)
def test_an_ending_counts_for_its_backfill(
    ending: Ending, running: Collection[int], interruptions: int, expected: Counted
) -> None:
    job = add(JobSpec(Every("1h"), handler="h"), id="a", handler="h", now=NOW)
    run = claimed_for_backfill(job, 1, NOW - HOUR, 1, None, NOW, queued=False)
    item = EndedRun(run, ending, NOW, NOW)

    found = endings([item], {1: 7}, running, {1: interruptions})

    assert (found.done[7], found.failed[7], found.again) == expected
    assert endings([item], {}, running, {}) == ({}, {}, []), "of a run that no backfill has"
