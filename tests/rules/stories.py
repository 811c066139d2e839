"""Share the cast of the tests of rules: a job, endings, and a scheduler of one job without a clock or a store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from scheduler_async import Job, JobSpec, Outcome, Schedule, SkipReason
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.rules.claiming import claim, claim_manually
from scheduler_async.rules.edits import add, edit, edited_spec
from scheduler_async.rules.explaining import decide
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.terms import Room, Rules, Transition
from scheduler_async.timekeeping.instants import SECOND, Micros, to_micros

NOON = to_micros(datetime(2026, 1, 5, 12, tzinfo=UTC))
RULES = Rules()
OPEN = Room()

SUCCESS = Ending(outcome=Outcome.SUCCESS)
ERROR = Ending(outcome=Outcome.ERROR, error="ValueError: no")
INTERRUPTED = Ending(outcome=Outcome.INTERRUPTED)
CANCELLED = Ending(outcome=Outcome.CANCELLED)
GIVE_UP = Ending(outcome=Outcome.SUCCESS, disable=True)


def a_job(schedule: Schedule, now: Micros = NOON, **fields: Any) -> Job:
    return add(JobSpec(schedule, handler="h", id="a", **fields), id="a", handler="h", now=now)


def utc(hour: int, minute: int = 0, second: int = 0, day: int = 5) -> Micros:
    return to_micros(datetime(2026, 1, day, hour, minute, second, tzinfo=UTC))


def an_edit(job: Job, now: Micros, **changes: Any) -> Transition:
    """Return what an edit makes of *job*; without *changes*, as if it were added again."""
    return edit(job, edited_spec(job, changes), handler=str(changes.get("handler", job.handler)), now=now)


def changed(job: Job, now: Micros, **changes: Any) -> Job:
    return an_edit(job, now, **changes).job


def occurrences(job: Job, until: Micros) -> list[Micros]:
    """Return all regular times of *job* up to *until*, each with its jitter."""
    found, at = [], job.anchor
    while (following := job.schedule.next_micros(at, job.anchor)) is not None and following <= until:
        at = following
        found.append(job.schedule.jittered(at, job.key, job.anchor))
    return [moment for moment in found if moment <= until]


class Story:
    """Tell what happens to a job: a scheduler of one job, without a clock or a store."""

    def __init__(self, schedule: Schedule, *, now: Micros = NOON, rules: Rules = RULES, **fields: Any) -> None:
        self.rules = rules
        self.job = a_job(schedule, now, **fields)
        self.runs: list[tuple[Micros, Attempt]] = []
        self.skips: list[Skip] = []

    def pass_at(self, now: Micros, ending: Ending = SUCCESS, *, takes: Micros = 0) -> Attempt | None:
        """Look at the job once; if it is due, run it for as long as it *takes*, and end it."""
        reason, _ = decide(self.job, now, OPEN, self.rules)
        if reason not in (None, SkipReason.MISFIRE):
            return None
        run = self.start_at(now)
        if run is not None:
            self.end_at(now + takes, run, ending)
        return run

    def start_at(self, now: Micros) -> Attempt | None:
        taken = claim(self.job, now, self.rules)
        self.change(taken)
        if taken.attempt is not None:
            self.runs.append((now, taken.attempt))
        return taken.attempt

    def end_at(self, now: Micros, run: Attempt, ending: Ending = SUCCESS) -> None:
        self.change(after_run(self.job, run, ending, now, self.rules))

    def run_until(self, end: Micros, ending: Ending = SUCCESS, *, takes: Micros = 0) -> None:
        """Do as a loop does: wake at each run until *end*."""
        while (at := self.job.state.next_run_at) is not None and at <= end and self.job.state.phase is Phase.ACTIVE:
            assert self.pass_at(at, ending, takes=takes) is not None

    def change(self, change: Transition) -> None:
        """Take over what the job looks like now, and note the rows that the change leaves."""
        self.job = change.job
        self.skips += change.skips

    def reschedule(self, schedule: Schedule, now: Micros, **changes: Any) -> None:
        self.change(an_edit(self.job, now, schedule=schedule, **changes))

    def trigger_at(self, now: Micros) -> Attempt:
        taken = claim_manually(self.job, now)
        assert taken.attempt is not None
        self.change(taken)
        return taken.attempt

    @property
    def missed(self) -> int:
        """The number of occurrences that its rows stand for."""
        return sum(skip.missed for skip in self.skips)

    def started(self, unit: Micros = SECOND, since: Micros = NOON) -> list[float]:
        """Return when its runs started, counted from *since*."""
        return [(at - since) / unit for at, _ in self.runs]
