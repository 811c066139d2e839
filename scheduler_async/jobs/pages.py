"""Values of the calls behind a page for operators: pages of long lists, counts, tallies, and what needs attention."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from scheduler_async.jobs.enums import Outcome
from scheduler_async.jobs.json_forms import Form, form_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """A part of a long list, as `Scheduler.jobs_page`, `runs_page` and `changes_page` return it."""

    items: tuple[T, ...]
    next: str | None
    """The value of *after* for the part that follows. None if nothing follows."""
    looked_back_to: datetime | None = None
    """How far the search has come, if it stopped before the page was full. Pass *next* to search on."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """A number of jobs. Counting stops at a limit, so that it is quick however many there are."""

    n: int
    exact: bool = True
    """Whether it is the number. Otherwise there are at least so many."""

    def __str__(self) -> str:
        return f"{self.n:,}" if self.exact else f"{self.n:,}+"

    def to_json(self) -> Form:
        """Return the count as JSON knows it."""
        return {"n": self.n, "exact": self.exact}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many jobs there are, by what they do, as `Scheduler.counts` returns it."""

    running: Count
    queued: Count
    late: Count
    """Due, and not claimed by any scheduler."""
    failing: Count
    """Their last runs have failed. Some of them may be disabled."""
    paused: Count
    disabled: Count
    idle: Count
    """Neither running, queued, paused nor disabled. Those that are late are among them."""
    left_out: Count
    """Occurrences that were skipped in the last 24 hours, in whole hours."""
    total: Count
    next_run_at: datetime | None
    """When the next job is due. A job that is late is due already."""

    def to_json(self) -> Form:
        """Return the counts as JSON knows them."""
        return form_of(self, [field.name for field in fields(self)])


@dataclass(frozen=True, kw_only=True)
class TallyRow:
    """How many runs ended, or how many occurrences were skipped. What they are not counted by is None."""

    hour: datetime | None
    """The beginning of the hour."""
    namespace: str | None
    outcome: Outcome | None
    """None also if the store cannot read it."""
    node: str | None
    """The node that recorded them; empty if a process without a node did."""
    n: int

    def to_json(self) -> Form:
        """Return the row as JSON knows it."""
        return form_of(self, [field.name for field in fields(self)])


@dataclass(frozen=True, kw_only=True)
class Planned:
    """How many occurrences lie ahead, by the hour, as `Scheduler.planned` returns it."""

    hours: tuple[tuple[datetime, int], ...]
    """The beginning of each hour from now on, and its occurrences."""
    exact: bool
    """Whether they were counted. Otherwise they are an estimate: from a sample of the jobs, or from their pace."""

    def to_json(self) -> Form:
        """Return the plan as JSON knows it."""
        hours = [{**form_of(_Hour(hour), ("hour",)), "n": number} for hour, number in self.hours]
        return {"hours": hours, "exact": self.exact}


@dataclass(frozen=True)
class _Hour:
    hour: datetime


class ConcernKind(StrEnum):
    """What needs the attention of an operator."""

    NO_SCHEDULER = "no_scheduler"
    UNREADABLE = "unreadable"
    STUCK = "stuck"
    FAILING = "failing"
    DISABLED = "disabled"
    NO_HANDLER = "no_handler"
    LATE = "late"
    LEFT_OUT = "left_out"
    NODE_LOST = "node_lost"
    CLOCK_SKEW = "clock_skew"
    LOOP_BLOCKED = "loop_blocked"


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Something that needs attention, as `Scheduler.attention` returns it."""

    kind: ConcernKind
    namespace: str | None
    """The namespace of the job. None if it does not concern a single job."""
    job_id: str | None
    since: datetime | None
    """When it began, if that is known."""
    cause: str
    """What is wrong, as a sentence."""
    effect: str
    """What follows from it, as a sentence."""
    run_id: int | None = None
    """The run that shows it, if there is one."""
    node: str | None = None
    """The node that it concerns, if it concerns one."""

    def __str__(self) -> str:
        return f"{self.cause} {self.effect}"

    def to_json(self) -> Form:
        """Return the concern as JSON knows it."""
        return form_of(self, [field.name for field in fields(self)])
