"""What needs attention, as the overview shows it: some of each kind, how many more there are, and all in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scheduler_async.jobs.pages import Concern, ConcernKind
from scheduler_async.web.links import Links
from scheduler_async.web.pages import lines, words
from scheduler_async.web.pages.kinds import CONCERNS, Sign
from scheduler_async.web.pages.room import fitting, weight_of

ROWS = 9  # of all kinds
LEAST = 2  # of each kind
ROOM = 20_000  # bytes
LONGEST = 220  # characters of a cause

MOST_KNOWN = 50
"""No more of a kind are looked for. There may be others."""


class Care(NamedTuple):
    """A concern, as it is shown."""

    concern: Concern
    sign: Sign
    name: str
    cause: str
    job: tuple[str, str] | None
    """The namespace and the id of its job, if it is about one."""


class More(NamedTuple):
    """How many concerns of a kind are not shown, and a link to a list that has them."""

    sign: Sign
    number: str
    link: str


class Cares(NamedTuple):
    """What needs attention: rows in their order, and a sentence about all of it."""

    rows: Sequence[Care | More]
    sentence: str

    @property
    def jobs(self) -> set[tuple[str, str]]:
        """The jobs that the rows are about."""
        return {row.job for row in self.rows if isinstance(row, Care) and row.job is not None}


def cares_of(concerns: Sequence[Concern], links: Links) -> Cares:
    """Return how the overview shows *concerns*, which come in the order of their kinds."""
    by_kind: dict[ConcernKind, list[Concern]] = {}
    for concern in concerns:
        by_kind.setdefault(concern.kind, []).append(concern)
    is_cut = _cut_kinds(by_kind)
    share = max(ROWS // max(len(by_kind), 1), LEAST)
    rows: list[Care | More] = []
    room = ROOM
    for kind, found in by_kind.items():
        # A row that says "1 more" would take as much room as the one more.
        some = found if len(found) == share + 1 or len(concerns) <= ROWS else found[:share]
        weights = [_weight(one, links) for one in some]
        count = fitting(weights, room)
        room -= sum(weights[:count])
        rows += [_care(one) for one in found[:count]]
        if count < len(found):
            number = f"{len(found) - count:,}{'+' if kind in is_cut else ''}"
            rows.append(More(CONCERNS[kind], number, _list_of(kind, links)))
    return Cares(rows, ", ".join(_words(kind, len(found), kind in is_cut) for kind, found in by_kind.items()))


def _cut_kinds(by_kind: Mapping[ConcernKind, Sequence[Concern]]) -> set[ConcernKind]:
    """Return the kinds of which there may be more. Some kinds are about the same jobs, and are cut together."""
    found: set[ConcernKind] = set()
    for kinds in (_OF_FAILING, *({kind} for kind in by_kind)):
        if sum(len(by_kind.get(kind, ())) for kind in kinds) >= MOST_KNOWN:
            found |= kinds
    return found


def _care(concern: Concern) -> Care:
    job = None if concern.job_id is None else (concern.namespace or "default", concern.job_id)
    name = "" if job is None else lines.name_of(*job)
    return Care(concern, CONCERNS[concern.kind], name, words.cut(concern.cause, LONGEST), job)


def _weight(concern: Concern, links: Links) -> int:
    link = "" if concern.job_id is None else links.to("jobs", concern.namespace or "default", concern.job_id)
    return 700 + 4 * weight_of(link) + weight_of(concern.cause[:LONGEST], (concern.job_id or concern.node or "")[:60])


def _list_of(kind: ConcernKind, links: Links) -> str:
    """Return the link to a list that has all that a kind of concern is about."""
    if kind is ConcernKind.LEFT_OUT:
        return links.to("runs", query={"outcome": "skipped"})
    status = _STATUSES.get(kind)
    return links.file("nodes") if status is None else links.to("jobs", query={"status": status})


_STATUSES: Mapping[ConcernKind, str] = {
    ConcernKind.UNREADABLE: "failing",
    ConcernKind.DISABLED: "disabled",
    ConcernKind.STUCK: "running",
    ConcernKind.FAILING: "failing",
    ConcernKind.NO_HANDLER: "late",
    ConcernKind.LATE: "late",
}


_OF_FAILING = frozenset({ConcernKind.UNREADABLE, ConcernKind.DISABLED, ConcernKind.FAILING})


def _words(kind: ConcernKind, count: int, is_cut: bool) -> str:
    """Return how many concerns of a kind there are, in words."""
    one, many = _WORDS[kind]
    number = f"{count:,}{'+' if is_cut else ''}"
    return one if number == "1" else many.format(number)


_WORDS: Mapping[ConcernKind, tuple[str, str]] = {
    ConcernKind.NO_SCHEDULER: ("no scheduler runs", "no scheduler runs"),
    ConcernKind.LOOP_BLOCKED: ("the event loop was blocked", "the event loop was blocked"),
    ConcernKind.NODE_LOST: ("1 node lost", "{} nodes lost"),
    ConcernKind.CLOCK_SKEW: ("1 clock wrong", "{} clocks wrong"),
    ConcernKind.UNREADABLE: ("1 job unreadable", "{} jobs unreadable"),
    ConcernKind.DISABLED: ("1 job disabled by failures", "{} jobs disabled by failures"),
    ConcernKind.STUCK: ("1 run stuck", "{} runs stuck"),
    ConcernKind.FAILING: ("1 job failing", "{} jobs failing"),
    ConcernKind.NO_HANDLER: ("1 handler missing", "{} handlers missing"),
    ConcernKind.LATE: ("1 job late", "{} jobs late"),
    ConcernKind.LEFT_OUT: ("1 job left out", "{} jobs left out"),
}
