"""The drawings of the page as tables: from rows of the run log to the data of paths."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import html5lib
import pytest

from scheduler_async.jobs.enums import Outcome, SkipReason, Trigger
from scheduler_async.jobs.history import NodeFate, NodeSpan
from scheduler_async.jobs.pages import Planned, TallyRow
from scheduler_async.jobs.run import RunRow
from scheduler_async.timekeeping.zones import as_tzinfo
from scheduler_async.web.links import Links
from scheduler_async.web.pages import hours, lanes, sparkline, waterfall
from scheduler_async.web.pages.kinds import Kind, sign_of_run
from tests.cast import HOUR, MINUTE, NOON, SECOND

pytestmark = pytest.mark.once  # the version of Python does not matter


def a_run(at: datetime = NOON, took: timedelta | None = SECOND, **changed: Any) -> RunRow:
    """A run that was due at *at* and began then."""
    finished = None if took is None else at + took
    values: dict[str, Any] = {
        "id": 7,
        "job_id": "a",
        "namespace": "default",
        "scheduled_for": at,
        "started_at": at,
        "finished_at": finished,
        "duration_ms": None if took is None else took / timedelta(milliseconds=1),
        "delay_ms": 0.0,
        "attempt": 1,
        "trigger": Trigger.SCHEDULE,
        "outcome": None if took is None else Outcome.SUCCESS,
        "claimed_at": at,
    }
    return RunRow(**{**values, **changed})


SKIPPED: dict[str, Any] = {
    "outcome": Outcome.SKIPPED,
    "started_at": None,
    "finished_at": NOON,
    "duration_ms": None,
    "reason": SkipReason.ALREADY_RUNNING,
    "attempt": 0,
    "missed": 3,
}


def check_svg(text: str) -> None:
    """Parse a drawing strictly, as part of a page."""
    html5lib.HTMLParser(strict=True).parse(f"<!doctype html><title>-</title>{text}")
    assert "style=" not in text


# ---------------------------------------------------------------- the last runs


@pytest.mark.parametrize(
    ("rows", "paths"),
    [
        pytest.param([a_run()], {Kind.OK: "M238 0v-18"}, id="the longest run is as high as there is room"),
        pytest.param(
            [a_run(), a_run(took=SECOND / 2)], {Kind.OK: "M234 0v-18m4 18v-9"}, id="half as long, half as high"
        ),
        pytest.param(
            [a_run(), a_run(took=SECOND / 1000)], {Kind.OK: "M234 0v-18m4 18v-2"}, id="the shortest run is seen too"
        ),
        pytest.param([a_run(outcome=Outcome.ERROR)], {Kind.BAD: "M238 0v-18m0 22v-2"}, id="a failure has a mark below"),
        pytest.param([a_run(**SKIPPED)], {Kind.LEFT_OUT: "M238 0h1v-6h-2v6z"}, id="what was left out is hollow"),
        pytest.param([a_run(took=None)], {Kind.RUNNING: "M238 0h1v-18h-2v18z"}, id="what runs is hollow and high"),
        pytest.param(
            [a_run(outcome=Outcome.CANCELLED)], {Kind.CUT: "M238 0v-3m0 -2v-2"}, id="what was cancelled is broken off"
        ),
        pytest.param(
            [a_run(), a_run(outcome=Outcome.ERROR), a_run()],
            {Kind.OK: "M230 0v-18m8 18v-18", Kind.BAD: "M234 0v-18m0 22v-2"},
            id="a path for each kind",
        ),
    ],
)
def test_a_row_of_bars_has_one_path_for_each_kind(rows: list[RunRow], paths: dict[Kind, str]) -> None:
    assert sparkline.paths_of(sparkline.bars_of(rows)) == paths


def test_sixty_bars_take_little_of_a_page() -> None:
    """A list of 50 jobs must stay below 60 kB."""
    rows = [a_run(took=timedelta(seconds=1 + number % 17)) for number in range(60)]

    drawn = sparkline.sparkline(rows)

    check_svg(drawn)
    assert len(drawn) < 700


def test_only_the_last_sixty_runs_are_drawn() -> None:
    assert sparkline.sparkline([a_run()] * 70) == sparkline.sparkline([a_run()] * 60)


def test_a_sentence_tells_what_the_bars_show() -> None:
    rows = [a_run(), a_run(), a_run(outcome=Outcome.ERROR, took=2 * SECOND), a_run(**SKIPPED)]

    assert sparkline.summary(rows) == "Last 4 runs: 2 success, 1 failed, 1 left out; longest 2.0s"


def test_large_bars_lead_to_their_runs() -> None:
    drawn = sparkline.large([a_run(id=8), a_run(id=9, outcome=Outcome.TIMEOUT)], Links(2))

    check_svg(drawn)
    assert 'href="../../runs/8"' in drawn
    assert "Run 9: timed out, 1.0s" in drawn


def test_a_job_without_runs_says_so() -> None:
    assert "no runs yet" in sparkline.sparkline([])
    assert "no runs yet" in sparkline.large([], Links(0))


@pytest.mark.parametrize("outcome", [*Outcome, None], ids=str)
def test_each_outcome_has_a_sign(outcome: Outcome | None) -> None:
    sign = sign_of_run(a_run(outcome=outcome))

    assert sign.word
    assert (sign.kind is Kind.BAD) == (outcome is not None and outcome.is_failure)


# ---------------------------------------------------------------- runs per hour

STOCKHOLM = as_tzinfo("Europe/Stockholm")
NOW = NOON + 30 * MINUTE


def tallied(at: datetime, outcome: Outcome, n: int, node: str = "n") -> TallyRow:
    return TallyRow(hour=at, namespace="default", outcome=outcome, node=node, n=n)


def test_hours_add_up_nodes_and_outcomes() -> None:
    tally = [
        tallied(NOON, Outcome.SUCCESS, 5),
        tallied(NOON, Outcome.NOOP, 2, "other"),
        tallied(NOON, Outcome.TIMEOUT, 1),
        tallied(NOON, Outcome.SKIPPED, 4),
        tallied(NOON - 50 * HOUR, Outcome.SUCCESS, 100),  # too long ago
    ]

    found = hours.hours_of(tally, Planned(hours=((NOON, 3), (NOON + HOUR, 6)), exact=True), NOW)

    assert len(found) == 48
    assert [hour for hour in found if hour.total] == [
        hours.Hour(NOON, ran=7, failed=1, left_out=4, planned=3),
        hours.Hour(NOON + HOUR, planned=6),
    ]


def test_columns_stand_on_one_another() -> None:
    hour = hours.Hour(NOON, ran=6, failed=2, left_out=0, planned=4)

    drawn = hours.chart([hour], NOON, UTC)

    check_svg(drawn)
    assert 'class="ok" d="M3 100v-48h14v48z"' in drawn
    assert 'class="bad" d="M3 52v-16h14v16z" fill="url(#hatch)"' in drawn
    assert 'class="plan" d="M3 36v-32h14v32z"' in drawn
    assert 'class="left"' not in drawn


def test_one_failure_among_thousands_is_seen() -> None:
    drawn = hours.chart([hours.Hour(NOON, ran=99_999, failed=1)], NOON, UTC)

    assert 'class="bad" d="M3 4v-3h14v3z"' in drawn


def test_hours_without_runs_can_be_drawn() -> None:
    quiet = hours.hours_of([], Planned(hours=(), exact=True), NOW)

    check_svg(hours.chart(quiet, NOW, UTC))
    assert hours.tallest(quiet) == 0
    assert hours.axis_of([], NOW, UTC) == []


def test_an_hour_tells_its_numbers_with_its_zone() -> None:
    assert hours.words_of(hours.Hour(NOON, ran=1200, failed=3), STOCKHOLM) == "13:00 CET: 1,200 ran, 3 failed"
    assert hours.words_of(hours.Hour(NOON), UTC) == "12:00 UTC: nothing"


# ---------------------------------------------------------------- the life of a run


@pytest.mark.parametrize(
    ("row", "told"),
    [
        pytest.param(a_run(), [("began", "1.0s", "ok")], id="at once"),
        pytest.param(
            a_run(scheduled_for=NOON - MINUTE, claimed_at=NOON - SECOND),
            [("due", "59.0s", "late"), ("claimed", "1.0s", "wait"), ("began", "1.0s", "ok")],
            id="late, then it waited",
        ),
        pytest.param(
            a_run(claimed_at=NOON - SECOND / 2, outcome=Outcome.ERROR), [("began", "1.0s", "bad")], id="claimed ahead"
        ),
        pytest.param(a_run(took=None), [("began", "5m", "run")], id="in progress"),
        pytest.param(
            a_run(took=None, started_at=None, claimed_at=NOON), [("claimed", "5m", "wait")], id="waiting for a slot"
        ),
    ],
)
def test_the_time_of_a_run_in_stretches(row: RunRow, told: list[tuple[str, str, str]]) -> None:
    falls = waterfall.waterfall(row, NOON + 5 * MINUTE)

    assert [(fall.stretch.name, fall.stretch.lasted, str(fall.stretch.kind)) for fall in falls] == told
    for fall in falls:
        check_svg(fall.drawing)


# ---------------------------------------------------------------- lanes

WINDOW = lanes.Window.around(NOON)


def lane(*rows: RunRow, times: Sequence[datetime] = (), are_all: bool = True) -> lanes.Lane:
    return lanes.lane_of(rows, times, WINDOW, NOON, are_all=are_all)


def test_a_run_is_a_bar_at_its_minute() -> None:
    found = lane(a_run(NOON - 2 * HOUR, 30 * MINUTE))

    assert found.bars == {Kind.OK: [lanes.Bar(1320, 1350)]}


def test_runs_outside_of_the_two_days_are_not_drawn() -> None:
    assert lane(a_run(NOON - 30 * HOUR)).bars == {}


def test_a_job_that_runs_often_is_a_band() -> None:
    rows = [a_run(NOON - number * MINUTE) for number in range(100, 0, -1)]

    found = lane(*rows, are_all=False)

    assert found.bars == {Kind.OK: [lanes.Bar(1340, 1444)]}
    assert found.unread == (lanes.Bar(0, 1340),)


def test_what_was_left_out_tells_why() -> None:
    found = lane(a_run(NOON - HOUR, **SKIPPED))

    assert [note for _, note in found.notes] == ["left out 3 times: already running"]


def test_planned_runs_are_outlines_at_their_minutes() -> None:
    found = lane(times=[NOON + HOUR, NOON + 7 * HOUR])

    assert [bar.x - 1440 for bar in found.planned] == [60, 420]
    assert found.unread == ()


def test_a_dense_plan_ends_with_dots_for_the_rest() -> None:
    """An outline would say that it runs all night, although only the first of its runs are known."""
    found = lane(times=[NOON + number * MINUTE for number in range(lanes.MOST_PLANNED)])

    assert found.planned == [lanes.Bar(1440, 1594)]
    assert found.unread == (lanes.Bar(1594, WINDOW.wide),)


def test_a_lane_is_a_drawing_with_words() -> None:
    found = lane(a_run(NOON - HOUR), a_run(NOON, None), times=[NOON + HOUR])

    drawn = lanes.drawing_of(found, WINDOW, f"<a>: {lanes.summary_of(found)}")

    check_svg(drawn)
    assert "&lt;a&gt;: ran once, running once, planned once" in drawn


def life(begin: datetime, end: datetime | None, name: str = "n") -> NodeSpan:
    how = NodeFate.RUNNING if end is None else NodeFate.LEFT
    return NodeSpan(name=name, host="h", pid=1, since=begin, until=end, how=how)


def test_gaps_show_when_no_scheduler_was_there() -> None:
    spans = [
        life(NOON - 30 * HOUR, NOON - 20 * HOUR, "a"),
        life(NOON - 22 * HOUR, NOON - 10 * HOUR, "b"),
        life(NOON - HOUR, None, "a"),
    ]

    by_node, gaps = lanes.presence(spans, WINDOW, NOON)

    assert by_node == {"a": [lanes.Bar(0, 240), lanes.Bar(1380, 1440)], "b": [lanes.Bar(120, 840)]}
    assert gaps == [lanes.Bar(840, 1380)]
    check_svg(lanes.presence_drawing(gaps, WINDOW, "gaps", is_gap=True))


def test_without_any_scheduler_the_gap_reaches_until_now() -> None:
    assert lanes.presence([], WINDOW, NOON) == ({}, [lanes.Bar(0, 1440)])


def test_the_scale_is_in_the_zone_of_the_visitor() -> None:
    assert lanes.labels(WINDOW, STOCKHOLM)[2] == "Mon 13:00"
