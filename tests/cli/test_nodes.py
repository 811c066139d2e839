"""Nodes on a terminal, as stores show them whose nodes have clocks of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from scheduler_async import Node
from scheduler_async.calls import json_output
from scheduler_async.cli import job_views
from tests.cast import NOON


def node(skew: float) -> Node:
    return Node(
        id="far:17:c0ffee",
        host="far",
        pid=17,
        since=NOON,
        lease=timedelta(seconds=24, milliseconds=400),
        running=2,
        clock_skew=timedelta(seconds=skew),
    )


@pytest.mark.parametrize(
    ("skew", "shown", "warning"),
    [
        pytest.param(0.0, "0s", None, id="none"),
        pytest.param(1.0, "1.0s", None, id="a second"),
        pytest.param(2.5, "2.5s", "the clock of far is 2.5s ahead of that of the store.", id="ahead"),
        pytest.param(-90.0, "-1m 30s", "the clock of far is 1m 30s behind that of the store.", id="behind"),
    ],
)
def test_more_than_a_second_of_skew_is_a_warning(
    skew: float, shown: str, warning: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    job_views.show_nodes([node(skew)])

    _, line, *warnings = capsys.readouterr().out.splitlines()
    assert line.rstrip().endswith(f"  {shown}")
    assert " 24s " in line
    assert warnings == ([] if warning is None else [f"Warning: {warning}"])


def test_for_programs_durations_are_seconds() -> None:
    assert json_output.node_form(node(-2.5)) == {
        "id": "far:17:c0ffee",
        "host": "far",
        "pid": 17,
        "since": "2026-01-05T12:00:00Z",
        "lease": 24.4,
        "running": 2,
        "clock_skew": -2.5,
        "unreadable": None,
    }


def test_a_node_that_cannot_be_read_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    job_views.show_nodes([replace(node(0.0), unreadable="pid: -5 is not a process id")])

    told = " ".join(capsys.readouterr().out.split())
    assert "the store cannot read the row of far:17:c0ffee: pid: -5 is not a process id." in told
