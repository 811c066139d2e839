"""What needs attention, at one look: some of each kind, and how many more there are."""

from __future__ import annotations

import pytest

from scheduler_async import Concern, ConcernKind
from scheduler_async.web.links import Links
from scheduler_async.web.pages import cares
from scheduler_async.web.pages.cares import Care, Cares, More, cares_of
from scheduler_async.web.pages.kinds import CONCERNS
from tests.cast import NOON

LINKS = Links(0)


def concerns(kind: ConcernKind, count: int, name: str = "job") -> list[Concern]:
    return [
        Concern(
            kind=kind, namespace="default", job_id=f"{name}-{n}", since=NOON, cause="It failed.", effect="It waits."
        )
        for n in range(count)
    ]


def shown(found: Cares) -> list[str]:
    return [row.name if isinstance(row, Care) else f"{row.sign.word}: {row.number} more" for row in found.rows]


def test_a_few_concerns_are_all_shown() -> None:
    found = cares_of([*concerns(ConcernKind.DISABLED, 1), *concerns(ConcernKind.FAILING, 8, "f")], LINKS)

    assert shown(found) == ["job-0", *(f"f-{n}" for n in range(8))]
    assert found.sentence == "1 job disabled by failures, 8 jobs failing"


def test_many_of_one_kind_leave_room_for_the_others() -> None:
    failing, late = concerns(ConcernKind.FAILING, 50, "f"), concerns(ConcernKind.LATE, 13, "l")

    found = cares_of([*failing, *late, *concerns(ConcernKind.LEFT_OUT, 1, "o")], LINKS)

    assert shown(found) == ["f-0", "f-1", "f-2", "failing: 47+ more", "l-0", "l-1", "l-2", "late: 10 more", "o-0"]
    assert found.sentence == "50+ jobs failing, 13 jobs late, 1 job left out"
    links = [row.link for row in found.rows if isinstance(row, More)]
    assert links == ["./jobs?status=failing", "./jobs?status=late"]


def test_kinds_that_are_about_the_same_jobs_are_cut_together() -> None:
    """At most 50 failing jobs are looked at, and some of these were disabled."""
    found = cares_of([*concerns(ConcernKind.DISABLED, 9), *concerns(ConcernKind.FAILING, 41, "f")], LINKS)

    assert found.sentence == "9+ jobs disabled by failures, 41+ jobs failing"
    assert [row.number for row in found.rows if isinstance(row, More)] == ["5+", "37+"]


def test_no_row_is_spent_on_one_more() -> None:
    found = cares_of([*concerns(ConcernKind.STUCK, 5, "s"), *concerns(ConcernKind.FAILING, 9, "f")], LINKS)

    assert shown(found)[:6] == [*(f"s-{n}" for n in range(5)), "f-0"]


@pytest.mark.parametrize("letter", ['"', "日", "😀"], ids=ascii)
def test_long_names_take_less_than_their_room(letter: str) -> None:
    long = [*concerns(ConcernKind.FAILING, 40, letter * 190), *concerns(ConcernKind.LATE, 40, letter * 190)]

    found = cares_of(long, LINKS)

    links = sum(
        4 * len(LINKS.to("jobs", "default", row.concern.job_id or "")) for row in found.rows if isinstance(row, Care)
    )
    assert 0 < links < cares.ROOM
    assert all(len(row.name) <= 60 for row in found.rows if isinstance(row, Care))


def test_it_tells_the_jobs_that_are_shown() -> None:
    """The zones of others are not looked up."""
    node = Concern(
        kind=ConcernKind.NO_SCHEDULER,
        namespace=None,
        job_id=None,
        since=None,
        cause="None runs.",
        effect="No job starts.",
    )

    found = cares_of([node, *concerns(ConcernKind.FAILING, 50)], LINKS)

    assert found.jobs == {("default", f"job-{number}") for number in range(4)}


@pytest.mark.parametrize("kind", ConcernKind)
def test_every_kind_has_a_sign_words_and_a_list(kind: ConcernKind) -> None:
    found = cares_of([*concerns(kind, 30), *concerns(ConcernKind.FAILING, 30, "f")], LINKS)

    assert kind in CONCERNS
    assert any(isinstance(row, More) and row.link.startswith("./") for row in found.rows)
    assert found.sentence
