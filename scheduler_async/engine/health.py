"""Whether a scheduler does its work. Pure: the `engine` gathers the signs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

from scheduler_async.timekeeping.durations import describe_duration

# A machine may be busy, and a store be locked for some seconds: what takes longer is not on its way any more.
PATIENCE = 15.0  # seconds

# Where no lateness is a misfire, this much is one to the eye of an operator: the default of `misfire_grace`.
LATE = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Health:
    """Whether a scheduler does its work, as a load balancer or an operator asks."""

    status: Literal["ok", "failing", "stopped"]
    """"failing" while something keeps jobs from starting in time, "stopped" also before the start and at the end."""
    last_pass_age: float | None
    """Seconds since it last looked at what is due; None if it has not yet."""
    lateness: float
    """How many seconds overdue the job is that has waited longest; 0 if none is.

    Jobs that wait for a handler, or for room in their group, do not count.
    """
    store_reachable: bool
    """Whether the store answered in time. One that is not open is not asked, and counts as not reachable."""
    problem: str | None
    """A sentence that tells what is wrong, if anything is."""

    @property
    def ok(self) -> bool:
        """Whether it works: 200 for a load balancer, and 503 if not."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """As a health endpoint answers it."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What can be seen of a scheduler from outside. Durations are in seconds."""

    status: str
    is_alive: bool
    """Whether all of its tasks go on."""
    problem: str | None
    """What it knows of that keeps it from working."""
    store_problem: str | None
    """Why the store did not answer, unless it did."""
    last_pass_age: float | None
    overslept: float
    """For how long it should have looked at what is due, and has not."""
    running_for: float
    overdue: float
    """How late the job is that has waited longest."""
    has_room: bool
    """Whether one more run could start."""
    unclaimed_for: float
    """How long ago a run was last claimed."""
    misfire_grace: float | None


def judge(signs: Signs) -> Health:
    """What *signs* mean."""
    stopped = signs.status != "running"
    problem = f"The scheduler is {signs.status}." if stopped else _failure(signs)
    return Health(
        status="stopped" if stopped else "ok" if problem is None else "failing",
        last_pass_age=None if signs.last_pass_age is None else round(signs.last_pass_age, 3),
        lateness=round(max(signs.overdue, 0.0), 3),
        store_reachable=signs.store_problem is None,
        problem=problem,
    )


def _failure(signs: Signs) -> str | None:
    if not signs.is_alive:
        return "A task of the scheduler was cancelled or has crashed. stop() and start() begin anew."
    if signs.store_problem or signs.problem:
        return signs.store_problem or signs.problem
    if signs.overslept > PATIENCE:
        return f"What is due should have been looked at {_told(signs.overslept)} ago, and has not been."
    # What came due while nothing ran is not late by our fault.
    overdue = min(signs.overdue, signs.running_for)
    grace = LATE if signs.misfire_grace is None else signs.misfire_grace
    # Whoever works off a line has room for a moment each time that a run ends.
    is_idle = signs.has_room and signs.unclaimed_for > PATIENCE
    if is_idle and overdue > max(grace, PATIENCE):
        return f"A job has been due for {_told(overdue)} and was not started, although there is room for it."
    return None


def _told(seconds: float) -> str:
    return describe_duration(timedelta(seconds=round(seconds)))
