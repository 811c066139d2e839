"""The rules that the command line does not know: the `retry` and `misfire_grace` of a program's scheduler. Pure.

`scheduler-async run` runs the jobs that run commands, by the default rules. All other jobs belong to a program.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_async.command import HANDLER
from scheduler_async.jobs.answers import Explanation, Upcoming
from scheduler_async.jobs.enums import Misfire, SkipReason, Status
from scheduler_async.jobs.job import Job
from scheduler_async.rules import explaining
from scheduler_async.rules.claiming import claim
from scheduler_async.rules.order import order
from scheduler_async.rules.terms import Room, Rules
from scheduler_async.schedules.at import At
from scheduler_async.timekeeping.instants import Micros, from_micros

SKIP_UNKNOWN = "late: the misfire_grace of its program decides if it runs or is skipped"
RETRIES_UNKNOWN = "its program decides how often it is retried"
LAST_CHANCE = "disabled if it fails once more"

# The reasons that depend on the retry policy of the program, and those that depend on its misfire_grace.
_ABOUT_RETRIES = {SkipReason.NOT_DUE, SkipReason.BACKOFF, SkipReason.RETRIES_EXHAUSTED}
_ABOUT_MISFIRES = {SkipReason.MISFIRE, SkipReason.NO_HANDLER}


def is_retried_by_program(job: Job) -> bool:
    """Return whether the program that runs *job* decides about its retries."""
    return job.handler != HANDLER and job.retry is None and not isinstance(job.schedule, At)


def is_skipped_by_program(job: Job) -> bool:
    """Return whether the program that runs *job* decides how late is too late for it."""
    return job.handler != HANDLER and job.misfire is Misfire.SKIP


def would_run(job: Job, now: Micros) -> bool | None:
    """Return whether a job that is due at *now* is run, not skipped; None if only its program knows."""
    if not is_skipped_by_program(job):
        return claim(job, now, Rules()).attempt is not None
    patient, strict = (claim(job, now, Rules(misfire_grace=grace)).attempt is not None for grace in (None, 0))
    return patient if patient is strict else None


def assumption(job: Job, explanation: Explanation) -> str | None:
    """Return a sentence that names the rule assumed for an *explanation*; None if it depends on none."""
    reason, is_due = explanation.reason, explanation.until is None
    if reason in _ABOUT_MISFIRES and is_due and is_skipped_by_program(job):
        name = "misfire_grace"
    elif reason in _ABOUT_RETRIES and is_retried_by_program(job) and job.consecutive_errors:
        name = "retry"
    else:
        return None
    return f"This assumes the default {name}: the command line does not know that of the program."


def as_far_as_known(upcoming: Sequence[Upcoming], due: Sequence[Job], now: Micros) -> list[Upcoming]:
    """Return *upcoming* without the assumptions that default rules make about a program; *due* are the jobs due *now*.

    A late run that the program may skip is included. It carries a warning, and so does the first run of a job that
    the program may retry. The handler of a program is never registered here, so that is not worth a warning.
    """
    found, warned = [], set()
    for one in _with_late_runs(upcoming, due, now):
        job, left = one.job, one.retries_left
        warnings = [warning for warning in one.warnings if warning != explaining.no_handler_here(job)]
        if is_retried_by_program(job):
            left = None
            warnings = [warning for warning in warnings if warning != LAST_CHANCE]
            if job.key not in warned:
                warnings.append(RETRIES_UNKNOWN)
                warned.add(job.key)
        found.append(Upcoming(job=job, at=one.at, retries_left=left, warnings=tuple(warnings)))
    return found


def _with_late_runs(upcoming: Sequence[Upcoming], due: Sequence[Job], now: Micros) -> list[Upcoming]:
    """Return *upcoming* with the runs that are late, and that only the program knows whether to skip."""
    late: dict[str, Upcoming] = {}
    for job in due:
        if is_skipped_by_program(job) and job.status is Status.IDLE and would_run(job, now) is None:
            for one in explaining.upcoming(job, now, now, Room(has_handler=False), Rules(misfire_grace=None)):
                warnings = (SKIP_UNKNOWN, *one.warnings)
                late[job.key] = Upcoming(job=job, at=one.at, retries_left=one.retries_left, warnings=warnings)
    moment = from_micros(now)
    others = [one for one in upcoming if one.job.key not in late or one.at > moment]
    return sorted((*others, *late.values()), key=lambda one: (max(one.at, moment), *order(one.job)))
