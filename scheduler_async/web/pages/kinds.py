"""How outcomes and states look everywhere on the page: one shape, one word and one colour for each. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from scheduler_async.jobs.enums import Outcome, Phase, Status
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import ConcernKind
from scheduler_async.jobs.run import RunRow


class Kind(StrEnum):
    """A shape with its colour. The values are classes of the style sheet."""

    OK = "ok"
    BAD = "bad"
    LEFT_OUT = "left"
    CUT = "cut"
    RUNNING = "run"
    WAITING = "wait"
    PAUSED = "pause"
    OFF = "off"
    IDLE = "idle"
    LATE = "late"


class Sign(NamedTuple):
    """A kind and the word that stands beside it."""

    kind: Kind
    word: str


OUTCOMES: dict[Outcome | None, Sign] = {
    Outcome.SUCCESS: Sign(Kind.OK, "success"),
    Outcome.NOOP: Sign(Kind.OK, "nothing to do"),
    Outcome.ERROR: Sign(Kind.BAD, "failed"),
    Outcome.TIMEOUT: Sign(Kind.BAD, "timed out"),
    Outcome.INTERRUPTED: Sign(Kind.BAD, "interrupted"),
    Outcome.SKIPPED: Sign(Kind.LEFT_OUT, "left out"),
    Outcome.CANCELLED: Sign(Kind.CUT, "cancelled"),
    None: Sign(Kind.RUNNING, "running"),
}

STATUSES: dict[Status, Sign] = {
    Status.IDLE: Sign(Kind.IDLE, "idle"),
    Status.QUEUED: Sign(Kind.WAITING, "queued"),
    Status.RUNNING: Sign(Kind.RUNNING, "running"),
    Status.PAUSED: Sign(Kind.PAUSED, "paused"),
    Status.DISABLED: Sign(Kind.OFF, "disabled"),
}

CONCERNS: dict[ConcernKind, Sign] = {
    ConcernKind.NO_SCHEDULER: Sign(Kind.BAD, "no scheduler"),
    ConcernKind.LOOP_BLOCKED: Sign(Kind.LATE, "blocked"),
    ConcernKind.NODE_LOST: Sign(Kind.BAD, "node lost"),
    ConcernKind.CLOCK_SKEW: Sign(Kind.LATE, "clock"),
    ConcernKind.UNREADABLE: Sign(Kind.BAD, "unreadable"),
    ConcernKind.DISABLED: Sign(Kind.OFF, "disabled"),
    ConcernKind.STUCK: Sign(Kind.RUNNING, "stuck"),
    ConcernKind.FAILING: Sign(Kind.BAD, "failing"),
    ConcernKind.NO_HANDLER: Sign(Kind.LATE, "no handler"),
    ConcernKind.LATE: Sign(Kind.LATE, "late"),
    ConcernKind.LEFT_OUT: Sign(Kind.LEFT_OUT, "left out"),
}


def sign_of_run(row: RunRow) -> Sign:
    """Return the sign of a run or of skipped occurrences."""
    if row.outcome is None and row.started_at is None:
        return STATUSES[Status.QUEUED]
    return OUTCOMES[row.outcome]


def sign_of_job(job: Job, now: datetime) -> Sign:
    """Return what a job does *now*; a failing one shows it, unless it is running, paused or disabled."""
    if job.ended:
        return Sign(Kind.OFF, "done")
    sign = STATUSES[job.status]
    if sign.kind is not Kind.IDLE:
        return sign
    if job.consecutive_errors:
        return Sign(Kind.BAD, "failing")
    is_due = job.next_run_at is not None and job.next_run_at < now and job.state.phase is Phase.ACTIVE
    return Sign(Kind.LATE, "due") if is_due else sign
