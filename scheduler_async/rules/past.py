"""Explain what became of a job at a time, past or future. Pure. `engine/outlook.py` collects the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from scheduler_async.errors import SchedulerError, quoted
from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.enums import ENDED, Misfire, Outcome, Phase, SkipReason, Status, Trigger
from scheduler_async.jobs.history import Action, ChangeRow, NodeSpan
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.occurrences import following
from scheduler_async.jobs.run import RunRow
from scheduler_async.rules.explaining import after_pause, why_not_due
from scheduler_async.rules.missed import count_between, jittered, latest_regular
from scheduler_async.rules.next_run import has_run_enough, retry_policy
from scheduler_async.rules.terms import Rules
from scheduler_async.schedules.after import After
from scheduler_async.schedules.base import Schedule
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import (
    DAY,
    FIRST,
    LAST,
    MINUTE,
    SECOND,
    Micros,
    describe_instant,
    from_micros,
    to_micros,
)
from scheduler_async.timekeeping.zones import as_tzinfo


class Evidence(Struct, frozen=True, gc=False, kw_only=True):
    """What the store knows about a job at a time."""

    job: Job
    """The job as it is now."""
    changes: Sequence[ChangeRow] = ()
    """The changes of the job, newest first."""
    rows: Sequence[RunRow] = ()
    """The attempts in the stretch that `stretch_of` names, and the last row of skipped occurrences that may count it,
    with the attempts of the claim that skipped them."""
    nodes: Sequence[NodeSpan] = ()
    """The schedulers that ran at that time, or next to it."""
    waits_for: SkipReason | None = None
    """Why the job does not run now."""
    rules: Rules = Rules()
    """The rules of the scheduler that is asked."""

    def pause_before(self, at: Micros) -> ChangeRow | None:
        """Return the change by which the job was paused or disabled at *at*."""
        earlier = (change for change in self.changes if to_micros(change.at) <= at)
        decisive = next((change for change in earlier if _stops_or_resumes(change)), None)
        return decisive if decisive is not None and _keeps_from_running(decisive) else None

    def change_at(self, at: datetime | None) -> ChangeRow | None:
        """Return the change that was made at *at*, which may have skipped what was due."""
        return next((change for change in self.changes if change.at == at), None)

    def outage_at(self, at: Micros) -> tuple[Micros | None, Micros | None] | None:
        """Return from when to when no scheduler was running, if none was at *at*. None is an unknown time."""
        lives = [(to_micros(node.since), None if node.until is None else to_micros(node.until)) for node in self.nodes]
        if not lives or any(since <= at and (until is None or at <= until) for since, until in lives):
            return None
        ended = [until for _, until in lives if until is not None and until < at]
        begun = [since for since, _ in lives if since > at]
        return max(ended, default=None), min(begun, default=None)


def _stops_or_resumes(change: ChangeRow) -> bool:
    return _keeps_from_running(change) or "status" in change.after


def _keeps_from_running(change: ChangeRow) -> bool:
    if change.action is Action.ADD:
        return change.after.get("enabled") is False
    return change.action in (Action.PAUSE, Action.DISABLE) or change.after.get("status") in ("paused", "disabled")


class Then(Struct, frozen=True, gc=False, kw_only=True):
    """The job as it was at a time, as far as its occurrences are concerned."""

    job: Job
    is_other_schedule: bool = False
    is_known: bool = True
    """Whether the store knows the schedule that the job had then."""

    @classmethod
    def in_moment(
        cls, job: Job, changes: Sequence[ChangeRow], start: Micros, end: Micros
    ) -> tuple[Self, Micros | None]:
        """Return *job* as it was from *start* to *end*, and its first occurrence in that time.

        If its schedule was edited in that time, occurrences of the earlier one count until then.
        """
        edits = sorted(at for at in _edits_of_schedule(changes) if start <= at < end)
        begins = (start - 1, *edits)
        found = [cls._since(job, changes, begin) for begin in begins]
        for then, begin, stop in zip(found, begins, (*(at + 1 for at in edits), end), strict=True):
            occurrence = then.occurrence_in(max(start, begin), stop)
            if occurrence is not None:
                return then, occurrence
        return found[0], None

    @classmethod
    def _since(cls, job: Job, changes: Sequence[ChangeRow], at: Micros) -> Self:
        """Return *job* as it was from *at*, before the later ones of its *changes*, which come newest first."""
        if at >= job.anchor or job.schedule.runs_once or job.anchor == job.created:
            return cls(job=job)
        later = [change for change in changes if to_micros(change.at) > at and "schedule" in change.before]
        try:
            schedule = Schedule.from_json(json.dumps(later[-1].before["schedule"]))
        except (IndexError, SchedulerError):  # the record is purged or damaged, or a later version wrote it
            return cls(job=job, is_known=False)
        anchor = next((edit for edit in _edits_of_schedule(changes) if edit <= at), job.created)
        description = replace(job.description, schedule=schedule)
        return cls(job=replace(job, description=description, anchor=anchor), is_other_schedule=True)

    def occurrence_in(self, start: Micros, end: Micros) -> Micros | None:
        """Return the first occurrence from *start*, before *end*. One that is moved by jitter keeps its time."""
        job, schedule = self.job, self.job.schedule
        if not self.is_known or not schedule.runs_by_itself:
            return None
        if schedule.counts_from_end:
            at = job.state.next_run_at
            return at if at is not None and start <= at < end else None
        after = start - 1 if schedule.runs_once else max(start - 1, job.anchor)
        if start <= job.anchor < end and schedule.first_micros(job.anchor) == job.anchor:
            after = start - 1  # it runs as soon as it is added
        base = schedule.next_micros(after, schedule.anchor_before(after, job.anchor))
        if base is not None and base < end:
            return jittered(job, base)
        at = following(job, after)
        return at if at is not None and at < end else None


def _edits_of_schedule(changes: Sequence[ChangeRow]) -> list[Micros]:
    """Return when the schedule was changed, newest first."""
    return [to_micros(change.at) for change in changes if "schedule" in change.before and "schedule" in change.after]


def moment_of(at: Micros) -> tuple[Micros, Micros]:
    """Return the time that a person means by *at*: a whole minute means all of that minute, otherwise a second."""
    return at, min(at + (MINUTE if at % MINUTE == 0 else SECOND), LAST)


def stretch_of(job: Job, changes: Sequence[ChangeRow], at: Micros) -> tuple[Micros, Micros]:
    """Return the stretch of time in which the rows about *at* lie. Those of later occurrences would hide the right one.

    Jitter moves an occurrence out of its minute.
    """
    start, end = moment_of(at)
    _, occurrence = Then.in_moment(job, changes, start, end)
    return start, end if occurrence is None else occurrence + 1


def explain_at(evidence: Evidence, at: Micros, now: Micros, zone: tzinfo = UTC) -> Explanation:
    """Explain what became of the job at *at*, with times in *zone*."""
    return _Telling(evidence, at, now, zone).tell()


class _Telling:
    """The search for what fits first, and its words."""

    def __init__(self, evidence: Evidence, at: Micros, now: Micros, zone: tzinfo) -> None:
        self._evidence, self._at, self._now, self._zone = evidence, at, now, zone
        self._start, self._end = moment_of(at)
        self._then, self._occurrence = Then.in_moment(evidence.job, evidence.changes, self._start, self._end)
        self._job = self._then.job
        self._when = self._words(at)

    def tell(self) -> Explanation:
        ran = self._attempt()
        if ran is not None:
            return self._answer(None, _how_it_ran(ran, self._words), run=ran)
        if self._at < self._job.created:
            added = self._words(self._job.created)
            return self._answer(SkipReason.NOT_CREATED, f"did not exist at {self._when}: it was added at {added}.")
        if not self._then.is_known:
            return self._answer(SkipReason.PURGED, f"had another schedule at {self._when}, which is no longer known.")
        if self._occurrence is None:
            return self._nothing_due()
        skipped = self._skip_of(self._occurrence)
        return self._without_row(self._occurrence) if skipped is None else self._skipped(skipped)

    def _answer(
        self, reason: SkipReason | None, words: str, *, run: RunRow | None = None, until: Micros | None = None
    ) -> Explanation:
        name = quoted(self._job.id) if self._job.namespace == "default" else quoted(self._job.key)
        return Explanation(
            reason=reason,
            until=None if until is None else from_micros(until),
            sentence=f"Job {name} {words}",
            at=from_micros(self._at),
            run=run,
        )

    def _words(self, moment: Micros) -> str:
        return describe_instant(from_micros(moment), self._zone)

    # ------------------------------------------------------------ what ran

    def _attempt(self) -> RunRow | None:
        """Return the last attempt at the occurrence in the moment, or at whatever ran then if there is none."""
        attempts = [row for row in self._evidence.rows if row.attempt]
        regular = [row for row in attempts if row.trigger is not Trigger.MANUAL]
        if self._occurrence is not None:
            return _last_attempt(regular, from_micros(self._occurrence))
        start, end = from_micros(self._start), from_micros(self._end)
        for rows in (regular, attempts):
            times = [row.scheduled_for for row in rows if start <= row.scheduled_for < end]
            if times:
                return _last_attempt(rows, min(times))
        return None

    # ------------------------------------------------------------ what was not due

    def _nothing_due(self) -> Explanation:
        job = self._job
        if isinstance(job.schedule, After):
            return self._not_followed(job.schedule)
        if not job.schedule.runs_by_itself:
            words = f"had no occurrence at {self._when}: it runs only when it is triggered."
            return self._answer(SkipReason.MANUAL_ONLY, words)
        is_grid = not job.schedule.counts_from_end
        before, after = (
            (latest_regular(job, self._start - 1), following(job, self._end - 1)) if is_grid else (None, None)
        )
        near = [self._words(at) for at in (before, after) if at is not None and at > job.anchor]
        nearest = f" Nearest: {' and '.join(near)}." if near else ""
        times = job.schedule.describe(self._zone)
        why = f"its schedule was another one then, {times}" if self._then.is_other_schedule else f"it runs {times}"
        words = f"had no occurrence at {self._when}: {why}.{nearest}{self._clock_change()}"
        return self._answer(SkipReason.NOT_DUE, words, until=after)

    def _not_followed(self, schedule: After) -> Explanation:
        """Explain a time at which the job that follows another did not run."""
        start, end = from_micros(self._start), from_micros(self._end)
        rows = [row for row in self._evidence.rows if row.attempt == 0 and start <= row.scheduled_for < end]
        if rows:
            return self._skipped(rows[0])
        words = f"had no occurrence at {self._when}: it runs {schedule.describe(self._zone)}."
        return self._answer(SkipReason.NOT_DUE, words)

    def _clock_change(self) -> str:
        """Return a sentence about a change of the clocks that day, which may be the cause."""
        name = self._job.schedule.zone_name()
        if name is None or not FIRST + 2 * DAY < self._at < LAST - 2 * DAY:
            return ""
        zone, day = as_tzinfo(name), timedelta(days=1)
        moment = from_micros(self._at)
        early, late = (moment - day).astimezone(zone), (moment + day).astimezone(zone)
        if early.utcoffset() == late.utcoffset():
            return ""
        moved = (late.utcoffset() or timedelta(0)) - (early.utcoffset() or timedelta(0))
        which = "forward" if moved > timedelta(0) else "back"
        return f" The clocks in {name} went {which} by {describe_duration(abs(moved))} within a day of that time."

    # ------------------------------------------------------------ what was skipped

    def _skip_of(self, occurrence: Micros) -> RunRow | None:
        """Return the row of skipped occurrences that counts *occurrence*."""
        skips = [row for row in self._evidence.rows if row.attempt == 0 and to_micros(row.scheduled_for) <= occurrence]
        # After the clock was set back, rows overlap, and the last one that begins before may end before, too.
        counting = [
            row for row in skips if count_between(self._job, to_micros(row.scheduled_for), occurrence) < row.missed
        ]
        return max(counting, key=lambda row: row.scheduled_for, default=None)

    def _skipped(self, row: RunRow) -> Explanation:
        merged = self._merged_into(row)
        if merged is not None:
            words = f"did not run at {self._when} by itself: it was merged into a later run. It"
            return self._answer(
                None, f"{words} {_how_it_ran(merged, self._words, lateness=False)}{self._outage()}", run=merged
            )
        reason = row.reason if isinstance(row.reason, SkipReason) else SkipReason.MISFIRE
        # Just before an occurrence, because the pause may have ended at its very time.
        by, first = self._evidence.change_at(row.claimed_at), to_micros(row.scheduled_for) - 1
        if reason in (SkipReason.PAUSED, SkipReason.DISABLED):
            if self._evidence.pause_before(first) is not None or by is None or not _keeps_from_running(by):
                since = self._since_by_and_why(first if self._occurrence is None else self._occurrence - 1)
                return self._answer(reason, f"was {reason} at {self._when} since {since}.")
            words = f"was due at {self._when}, and had not started when it was {reason} at "
            return self._answer(reason, f"{words}{self._since_by_and_why(to_micros(by.at))}.{self._outage()}")
        words = _WHY_SKIPPED.get(reason, f"it was skipped ({reason})")
        if reason is SkipReason.MISFIRE and by is not None and "schedule" in by.before:
            words = "its schedule was changed before it could start"
        elif reason is SkipReason.MISFIRE:
            words = _WHY_MISSED[self._job.misfire]
        return self._answer(reason, f"did not run at {self._when}: {words}.{self._outage()}")

    def _merged_into(self, row: RunRow) -> RunRow | None:
        """Return the last attempt of the run that caught up with the occurrences of a *row*: it has the same claim."""
        if row.reason not in (SkipReason.MISFIRE, SkipReason.ALREADY_RUNNING):
            return None
        attempts = [other for other in self._evidence.rows if other.attempt and other.trigger is not Trigger.MANUAL]
        claimed = [
            other
            for other in attempts
            if other.claimed_at == row.claimed_at and other.scheduled_for < row.scheduled_for
            if row.reason is SkipReason.MISFIRE or other.attempt == 1  # a retry may be claimed when the run before ends
        ]
        return _last_attempt(attempts, claimed[0].scheduled_for) if claimed else None

    def _since_by_and_why(self, at: Micros) -> str:
        """Return since when, by whom and why the job was paused or disabled at *at*."""
        pause, state = self._evidence.pause_before(at), self._job.state
        if pause is None:
            since, actor, reason = state.counted_until, None, state.paused_reason or state.disabled_reason
        else:
            since, actor, reason = to_micros(pause.at), pause.actor, pause.reason
        words = "an unknown time" if since is None else self._words(since)
        words += "" if actor is None else f", by {actor}"
        return words if reason is None else f"{words}: {reason.rstrip('.')}"

    # ------------------------------------------------------------ what has no row

    def _without_row(self, occurrence: Micros) -> Explanation:
        state = self._job.state
        is_away = state.phase is not Phase.ACTIVE and not self._then.is_other_schedule
        returns_at = state.paused_until
        if is_away and occurrence > (state.counted_until or 0) and (returns_at is None or occurrence < returns_at):
            verb = "will still be" if occurrence > self._now else "was"
            if state.disabled_reason == ENDED:
                return self._ended()
            reason = SkipReason.PAUSED if state.phase is Phase.PAUSED else SkipReason.DISABLED
            words = f"{verb} {reason} at {self._when} since {self._since_by_and_why(occurrence)}."
            return self._answer(reason, words, until=returns_at)
        if occurrence > self._now:
            hindered = self._evidence.waits_for
            if hindered in (SkipReason.NO_SCHEDULER, SkipReason.NO_HANDLER, SkipReason.UNKNOWN_SCHEDULE):
                words = f"should run at {self._words(occurrence)}, but would not now{_WAITS[hindered]}."
                return self._answer(hindered, words, until=occurrence)
            return self._to_come(occurrence)
        owed = state.regular_at if state.regular_at is not None else state.next_run_at
        if state.forgotten_until is not None and occurrence <= state.forgotten_until:
            return self._purged()
        if has_run_enough(self._job, state) and state.regular_at is not None and occurrence >= state.regular_at:
            return self._ended()
        if state.activity is not Status.IDLE and state.next_run_at is None and occurrence > (state.last_run_at or 0):
            words = f"did not start at {self._when}: the run before has not ended."
            return self._answer(SkipReason.ALREADY_RUNNING, words)
        if owed is not None and owed <= occurrence and not self._then.is_other_schedule:
            if self._evidence.outage_at(occurrence) is not None:
                return self._answer(SkipReason.NO_SCHEDULER, f"did not run at {self._when}.{self._outage()}")
            waits = self._evidence.waits_for
            return self._answer(waits, f"was due at {self._when}, and has not started{_WAITS.get(waits, '')}.")
        return self._purged()

    def _to_come(self, occurrence: Micros) -> Explanation:
        """Explain whether an *occurrence* that is still to come will run, as far as that is decided."""
        job, rules = after_pause(self._job), self._evidence.rules
        at, state = job.state.next_run_at, job.state
        if at is not None and _waits_beyond(job, occurrence, rules):
            words = (
                f"will not run at {self._words(occurrence)}: after failures, its next attempt is at {self._words(at)}."
            )
            return self._answer(why_not_due(job, rules), words, until=at)
        if job.max_runs is not None and state.occurrences_run + _runs_until(job, occurrence, self._now) > job.max_runs:
            return self._ended()
        return self._answer(None, f"is expected to run at {self._words(occurrence)}.")

    def _ended(self) -> Explanation:
        job = self._job
        why = f"its schedule has no occurrence at {self._when}"
        if job.max_runs is not None and not has_run_enough(job, job.state):
            words = f"will not run at {self._when}: by then it will have run as often as its max_runs allows"
            return self._answer(SkipReason.ENDED, f"{words} ({job.max_runs}).")
        if job.max_runs is not None:
            why = f"it has run as often as its max_runs allows ({job.max_runs})"
        return self._answer(SkipReason.ENDED, f"has ended: {why}.")

    def _purged(self) -> Explanation:
        words = f"was due at {self._when}, but the rows of that time are no longer kept."
        return self._answer(SkipReason.PURGED, words)

    def _outage(self) -> str:
        outage = self._evidence.outage_at(self._at)
        if outage is None:
            return ""
        start, end = outage
        since = "" if start is None else f" from {self._words(start)}"
        until = "" if end is None else f" until {self._words(end)}"
        return f" No scheduler was running{since}{until}."


def _waits_beyond(job: Job, occurrence: Micros, rules: Rules) -> bool:
    """Return whether *job* waits after failures until a time at which it passes over *occurrence*."""
    state = job.state
    if state.next_run_at is None or state.regular_at is None or state.owed_until is not None:
        return False
    if job.schedule.counts_from_end:  # which has one occurrence, and it waits as well
        return False
    if state.retry_of is None:
        return occurrence < state.next_run_at
    return occurrence <= state.next_run_at and not retry_policy(job, rules).regular_times_go_on


def _runs_until(job: Job, occurrence: Micros, now: Micros) -> int:
    """Return how many regular occurrences will be run from *now* up to *occurrence*, if it runs, too."""
    state = job.state
    if state.next_run_at is None:  # a run is in progress, and counted
        return count_between(job, now, occurrence)
    at = max(state.next_run_at, now)
    is_regular = state.retry_of is None or (state.regular_at is not None and state.regular_at <= at)
    return is_regular + count_between(job, at, occurrence)


_WHY_MISSED = {
    Misfire.SKIP: 'it was too late to start it, and its misfire policy is "skip"',
    Misfire.RUN_ONCE: "it was missed, and the run that caught up with it is no longer kept",
    Misfire.RUN_ALL: "it was missed, and it was too old or one of too many to catch up with (catch_up_window, "
    "catch_up_limit)",
}
_WHY_SKIPPED = {
    SkipReason.ENDED: "it had run as often as its max_runs allows",
    SkipReason.ALREADY_RUNNING: "the run before had not ended",
    SkipReason.INTERRUPTED: "the process of the run before had died",
    SkipReason.BACKOFF: "the job waited after a failure",
}


_WAITS: dict[SkipReason | None, str] = {
    SkipReason.NO_HANDLER: ": no handler is registered",
    SkipReason.UNKNOWN_SCHEDULE: ": this process does not know its schedule",
    SkipReason.NO_SCHEDULER: ": no scheduler is running",
    SkipReason.GROUP_FULL: ": its group is full",
    SkipReason.RATE_LIMITED: ": the rate of its group is reached",
    SkipReason.AT_CAPACITY: ": the concurrency limit is reached",
    SkipReason.QUEUE_FULL: ": the queue is full",
    SkipReason.STOPPING: ": the scheduler is stopping",
}


def _last_attempt(rows: Sequence[RunRow], occurrence: datetime) -> RunRow | None:
    attempts = [row for row in rows if row.scheduled_for == occurrence]
    return max(attempts, key=lambda row: (row.attempt, row.id), default=None)


def _how_it_ran(row: RunRow, words: Callable[[Micros], str], *, lateness: bool = True) -> str:
    started = row.started_at or row.claimed_at
    moment = "" if started is None else f" at {words(to_micros(started))}"
    how = ""
    if row.trigger is Trigger.RETRY or row.attempt > 1:
        how = f", as attempt {row.attempt}"
    elif row.trigger is Trigger.MANUAL:
        how = ", by hand"
    elif lateness and row.delay_ms is not None and row.delay_ms >= 1000:
        how = f", {describe_duration(timedelta(seconds=row.delay_ms // 1000))} late"
    if row.outcome is None:
        return f"started{moment}{how}, and is running."
    if row.outcome is Outcome.SKIPPED:
        return f"ran{moment}{how}, and declined to work."
    return f"ran{moment}{how}, and ended with {row.outcome}."
