"""Which occurrences a backfill runs, and what the ending of one of its runs means. Pure.

A backfill goes beside the schedule of its job: neither its claims nor its endings change the state of the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.enums import OnInterrupt, Outcome, Trigger
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.occurrences import following
from scheduler_async.jobs.retries import MAX_INTERRUPTIONS
from scheduler_async.jobs.run import Attempt, ClaimedRun, EndedRun, Ending
from scheduler_async.timekeeping.instants import Micros

MOST_OCCURRENCES = 10_000
"""The largest number of occurrences of a backfill."""


def occurrences_between(job: Job, start: Micros, end: Micros) -> list[Micros]:
    """Return the regular occurrences of *job* from *start*, before *end*, oldest first.

    They may be before the job was added. Raise `InvalidJobError` if there are too many.
    """
    if job.schedule.counts_from_end or not job.schedule.runs_by_itself:
        raise InvalidJobError(
            f"Job {quoted(job.id)} has no regular occurrences, since it runs {job.schedule.describe()}. "
            "A backfill needs a schedule such as Every or Cron.",
            "id",
        )
    found: list[Micros] = []
    at = following(job, start - 1)
    while at is not None and at < end:
        if len(found) == MOST_OCCURRENCES:
            raise InvalidJobError(
                f"Job {quoted(job.id)} has more than {MOST_OCCURRENCES:,} occurrences in that range. Choose a smaller "
                "range.",
                "end",
            )
        found.append(at)
        at = following(job, at)
    return found


class Verdict(Enum):
    """What the ending of a run means for its backfill."""

    DONE = auto()
    FAILED = auto()
    AGAIN = auto()


def verdict(job: Job, ending: Ending, interruptions: int) -> Verdict:
    """Return what the *ending* of a run of *job* means.

    A failure is not retried. A run that declined to work counts as one: another backfill runs its occurrence again. A
    run whose process died or was stopped is run again if the job says so, unless that has happened too often.
    *interruptions* counts how often, this time included.
    """
    outcome = ending.outcome
    if outcome.is_success:
        return Verdict.DONE
    was_stopped = outcome is Outcome.CANCELLED and not ending.on_request
    was_interrupted = outcome is Outcome.INTERRUPTED and interruptions < MAX_INTERRUPTIONS
    is_rerun = job.on_interrupt is OnInterrupt.RERUN
    return Verdict.AGAIN if is_rerun and (was_stopped or was_interrupted) else Verdict.FAILED


class Endings(NamedTuple):
    """What the endings of runs mean for their backfills, by the number of the backfill."""

    done: Counter[int]
    failed: Counter[int]
    again: list[tuple[int, Micros]]
    """The backfill and the occurrence of each run that comes again."""


def endings(
    ended: Iterable[EndedRun],
    backfills: Mapping[int, int],
    running: Collection[int],
    interruptions: Mapping[int, int],
) -> Endings:
    """Return what the endings of those runs mean that have *backfills*. Only a *running* one runs an occurrence again.

    *interruptions* counts how often processes have died with the occurrence of an interrupted run, this time included.
    """
    found = Endings(Counter(), Counter(), [])
    for item in ended:
        number = backfills.get(item.run.id)
        if number is None:
            continue
        what = verdict(item.run.job, item.ending, interruptions.get(item.run.id, 0))
        if what is Verdict.AGAIN and number in running:
            found.again.append((number, item.run.scheduled_for))
        elif what is Verdict.DONE:
            found.done[number] += 1
        else:
            found.failed[number] += 1
    return found


def claimed_for_backfill(
    job: Job, run_id: int, scheduled_for: Micros, attempt: int, payload_json: str | None, now: Micros, *, queued: bool
) -> ClaimedRun:
    """Return the run of an occurrence of *job*. Without *payload_json*, it gets the payload of the job."""
    made = Attempt(scheduled_for, attempt, Trigger.BACKFILL, now)
    payload = job.description.payload_json if payload_json is None else payload_json
    return ClaimedRun.of(run_id, job, made, payload, job.state, waits=queued)
