"""What a copy came to, in sentences."""

from __future__ import annotations

import pytest

from scheduler_async import MemoryStore
from scheduler_async.cli.copy_report import copied, copied_so_far
from scheduler_async.stores.copy_records import Verdict
from scheduler_async.stores.copying import Copy


def a_copy(runs_added: int, **verdicts: int) -> Copy:
    store = MemoryStore()
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
        "Interrupted after 1,200 of 1,200 jobs and 2,000 of 45,310 runs. Run the same command again to copy the rest."
    )
