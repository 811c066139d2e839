"""What a handler may report."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scheduler_async import InvalidJobError
from scheduler_async.jobs.progress import LONGEST_MESSAGE, read_report


@pytest.mark.parametrize(
    ("done", "total", "share"),
    [
        pytest.param(1, 4, 0.25, id="a part"),
        pytest.param(4, 4, 1.0, id="all"),
        pytest.param(5, 4, 1.0, id="more than all"),
        pytest.param(-1, 4, 0.0, id="less than nothing"),
        pytest.param(0, 0, 1.0, id="all of nothing"),
        pytest.param(0.5, None, 0.5, id="a share"),
        pytest.param(1.0, None, 1.0, id="a whole share"),
        pytest.param(0.0, None, 0.0, id="no share"),
        pytest.param(1, None, None, id="the first of a number that is not known"),
        pytest.param(0, None, None, id="none of a number that is not known"),
        pytest.param(1.5, None, None, id="more than a share"),
        pytest.param(1500, None, None, id="a count without a total"),
        pytest.param(10**400, 2 * 10**400, 0.5, id="huge numbers"),
    ],
)
def test_the_share_that_is_done(done: Any, total: Any, share: float | None) -> None:
    assert read_report(done, total, None) == (share, None)


@pytest.mark.parametrize(
    ("done", "total", "message", "field"),
    [
        pytest.param("1", 4, None, "done", id="a string"),
        pytest.param(True, 4, None, "done", id="a truth value"),
        pytest.param(math.nan, None, None, "done", id="not a number"),
        pytest.param(math.inf, 4, None, "done", id="without end"),
        pytest.param(-0.5, None, None, "done", id="a negative share"),
        pytest.param(1, -4, None, "total", id="a negative total"),
        pytest.param(1, "4", None, "total", id="a total that is a string"),
        pytest.param(1, 4, b"m", "message", id="a message of bytes"),
    ],
)
def test_what_is_no_report(done: Any, total: Any, message: Any, field: str) -> None:
    with pytest.raises(InvalidJobError) as error:
        read_report(done, total, message)

    assert error.value.field == field


def test_a_message_is_cut() -> None:
    _, message = read_report(1, 2, "x" * 5000)

    assert message is not None
    assert len(message) == LONGEST_MESSAGE
