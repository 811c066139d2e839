"""Judges whether a scheduler works. Pure: `checkup` collects the signs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from scheduler_async.timekeeping.durations import describe_duration

# A machine may be busy, and a store locked, for some seconds. Anything longer is a failure.
PATIENCE = 15.0  # seconds

# Where no lateness is a misfire, this much is one to the eye of an operator: the default of `misfire_grace`.
LATE = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Health:
    """Whether a scheduler works, for load balancers and operators."""

    status: Literal["ok", "failing", "stopped"]
    """"failing" while something keeps jobs from starting in time; "stopped" also before start() and during stop()."""
    last_pass_age: float | None
    """Seconds since the last pass; None before the first."""
    lateness: float
    """How many seconds the longest waiting job is overdue; 0 if none is.

    Jobs that wait for a handler or for room in their group do not count.
    """
    store_reachable: bool
    """Whether the store answered in time. A store that is not open counts as not reachable."""
    problem: str | None
    """What is wrong, as a sentence, if anything is."""

    @property
    def ok(self) -> bool:
        """Return whether it works: answer a load balancer with 200 if so, and with 503 if not."""
        return self.status == "ok"

    def to_json(self) -> dict[str, Any]:
        """Return it as a health endpoint answers it."""
        return {"ok": self.ok, **asdict(self)}


class Signs(Struct, frozen=True, kw_only=True):
    """The signs of a scheduler's health. Durations are in seconds."""

    status: str
    is_alive: bool
    """Whether all of its tasks are running."""
    problem: str | None
    """What keeps it from working, as far as it knows."""
    store_problem: str | None
    """Why the store did not answer; None if it did."""
    last_pass_age: float | None
    overslept: float
    """How long the next pass is overdue."""
    running_for: float
    overdue: float
    """How late the longest waiting job is."""
    has_room: bool
    """Whether one more run could start."""
    unclaimed_for: float
    """How long ago a run was last claimed."""
    misfire_grace: float | None


def judge(signs: Signs) -> Health:
    """Return what *signs* mean."""
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
        return "A task of the scheduler was cancelled or has crashed. Call stop(), then start()."
    if signs.store_problem or signs.problem:
        return signs.store_problem or signs.problem
    if signs.overslept > PATIENCE:
        return f"A pass has been overdue for {_told(signs.overslept)}."
    # The scheduler is not to blame for what came due before it started.
    overdue = min(signs.overdue, signs.running_for)
    grace = LATE if signs.misfire_grace is None else signs.misfire_grace
    # While a queue is worked off, there is room for a moment whenever a run ends.
    is_idle = signs.has_room and signs.unclaimed_for > PATIENCE
    if is_idle and overdue > max(grace, PATIENCE):
        return f"A job has been due for {_told(overdue)} and has not started, although there is room for it."
    return None


def _told(seconds: float) -> str:
    return describe_duration(timedelta(seconds=round(seconds)))
