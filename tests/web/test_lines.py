"""Lines of lists: what a table says of a job, a run or a change."""

from __future__ import annotations

import pytest

from scheduler_async.jobs.history import Action, ChangeRow
from scheduler_async.web.pages.lines import LONGEST_NAME, changes_of, name_of
from scheduler_async.web.pages.moments import Choice, Moments
from tests.cast import NOON

pytestmark = pytest.mark.once  # the version of Python does not matter


def test_a_long_name_keeps_its_end() -> None:
    """Jobs of a long namespace had the same name in every list."""
    names = [name_of("n" * 100, f"job-{number}") for number in range(3)]

    assert [len(name) for name in names] == [LONGEST_NAME] * 3
    assert [name[-6:] for name in names] == ["/job-0", "/job-1", "/job-2"]
    assert name_of("n" * 100, "job-7", 13) == "nnnnnn…/job-7"


def test_a_long_reason_leaves_room_for_the_other_changes() -> None:
    row = ChangeRow(
        number=1,
        namespace="default",
        job_id="a",
        at=NOON,
        actor="w" * 200,
        via="page",
        action=Action.PAUSE,
        reason="because " * 100,
    )

    (line,) = changes_of([row], Moments(NOON, Choice("utc", None)), {})

    assert len(line.reason) <= 160
    assert len(line.author) <= 60
