"""Events and log lines about jobs and runs. A change is committed before it is announced."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from logging import ERROR, INFO, WARNING

from scheduler_async.engine.own_node import OwnNode
from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import ENDED, Outcome, SkipReason
from scheduler_async.jobs.events import Event, EventKind, Events
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.run import ClaimedRun, EndedRun, Ending, RunRow
from scheduler_async.logs import is_heard, say
from scheduler_async.outbox import Outbox
from scheduler_async.rules.terms import Transition
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.stores.cache import Cache
from scheduler_async.stores.run_codec import row_of, row_of_skip
from scheduler_async.timekeeping.instants import Micros, from_micros

# For so many jobs, remember that their missing handler was logged. One claim names far fewer.
MOST_WARNED = 10_000

DISABLED = EventKind.DISABLED  # many jobs may be added at once, and this is faster


class Announcer:
    """What do observers and the log hear?"""

    def __init__(self, events: Events, outbox: Outbox, node: OwnNode) -> None:
        self._events, self._outbox, self._node = events, outbox, node
        self._warned: Cache[tuple[int, int], None] = Cache(MOST_WARNED)

    def tell(
        self,
        kind: EventKind,
        at: Micros,
        *,
        job: Job | None = None,
        run: RunRow | None = None,
        reason: SkipReason | str | None = None,
        exception: BaseException | None = None,
    ) -> None:
        """Send an event to observers, if there are any."""
        if self._events.has_listeners:
            event = Event(kind=kind, at=from_micros(at), job=job, run=run, reason=reason, exception=exception)
            self._outbox.send(partial(self._deliver, event))

    def _deliver(self, event: Event) -> None:
        try:
            self._events.tell(event)
        except Exception:  # the event has happened, whatever an observer makes of it
            say(ERROR, "An observer failed at the event %s", event.kind, exc_info=True)

    def started(self, claimed: ClaimedRun, now: Micros) -> None:
        """Send readers the event that a run has begun. Observers know already, from `run_begins`."""
        if self._events.has_readers:
            self.tell(EventKind.RUN_STARTED, now, job=claimed.job, run=_row_of_begun(claimed, self._node.name, now))

    def ended(self, item: EndedRun, left: Transition | None, active: ActiveRun) -> None:
        """Announce how a run ended, and what that *left* of its job; None if this node no longer owned the run."""
        run, ending = item.run, item.ending
        if left is None:
            words = "Discarding the result of run %d of %s: this node no longer owns it"
            say(WARNING, words, run.id, run.key, extra=run.named)
            return
        level = WARNING if ending.outcome.is_failure else INFO
        if is_heard(level):
            milliseconds = 0 if item.started_at is None else (item.finished_at - item.started_at) / 1000
            say(
                level,
                "Run %d of %s: %s in %.0f ms%s",
                run.id,
                run.key,
                ending.outcome,
                milliseconds,
                f": {ending.error}" if ending.error else "",
                extra={**run.named, "outcome": ending.outcome.value, "duration_ms": milliseconds},
                exc_info=None if ending.traceback is None else active.error,
                traceback=ending.traceback,
            )
        if self._events.has_listeners:
            row, raised = row_of(item, self._node.name), active.error if ending.outcome.is_failure else None
            self.tell(EventKind.RUN_FINISHED, item.finished_at, job=left.job, run=row, exception=raised)
        if left.kind or left.skips:
            self.edited(left, item.finished_at)

    def dropped(self, active: ActiveRun) -> None:
        """Log the end of a run whose result is dropped: every run that began gets a line."""
        if active.has_begun:
            run = active.claimed
            words = "Run %d of %s was cancelled: its job was removed, or another node has taken it over"
            say(INFO, words, run.id, run.key, extra=run.named)

    def interrupted(self, interrupted: Sequence[tuple[Transition, ClaimedRun]], now: Micros) -> None:
        """Announce runs that were recorded as interrupted, and the changes to their jobs."""
        for edit, run in interrupted:
            ending = edit.ending or Ending(outcome=Outcome.INTERRUPTED, error=edit.job.last_error)
            extra = {**run.named, "outcome": ending.outcome.value}
            say(WARNING, "Run %d of %s was %s", run.id, run.key, ending.outcome.value, extra=extra)
            if self._events.has_listeners:
                item = EndedRun(run=run, ending=ending, started_at=run.claimed_at, finished_at=now)
                self.tell(EventKind.RUN_FINISHED, now, job=edit.job, run=row_of(item, None))
            self.edited(edit, now)

    def edited(self, edit: Transition | None, now: Micros) -> None:
        """Announce an edit, and the occurrences that it skipped."""
        if edit is None:
            return
        disabled_reason = edit.state.disabled_reason if edit.kind is DISABLED else None
        if disabled_reason not in (None, ENDED):
            say(WARNING, "Job %s is disabled: %s", edit.job.key, disabled_reason, extra={"job": edit.job.key})
        if self._events.has_listeners:
            for skip in edit.skips:
                row = row_of_skip(edit.job, skip, now)
                self.tell(EventKind.RUN_SKIPPED, now, job=edit.job, run=row, reason=skip.reason)
            if edit.kind is not None:
                self.tell(edit.kind, now, job=edit.job.as_of(now), reason=disabled_reason)

    def handler_missing(self, job: Job) -> None:
        """Warn that a job is due and its handler or its schedule is not known here, once for each revision."""
        if (job.uid, job.revision) not in self._warned:
            self._warned.put((job.uid, job.revision), None)
            if not job.schedule.is_known:
                words = "Job %s is due and left alone: it runs %s"
                say(WARNING, words, job.key, job.schedule.describe(), extra={"job": job.key})
                return
            say(
                WARNING,
                "Job %s is due, but no handler %s is registered here; it starts once there is one",
                job.key,
                quoted(job.handler),
                extra={"job": job.key},
            )


def _row_of_begun(run: ClaimedRun, node: str | None, now: Micros) -> RunRow:
    """Return the row of a run that begins *now*, as the run log shows it until the run ends."""
    namespace, job_id = run.name
    return RunRow(
        id=run.id,
        job_id=job_id,
        namespace=namespace,
        scheduled_for=from_micros(run.scheduled_for),
        started_at=from_micros(now),
        finished_at=None,
        duration_ms=None,
        delay_ms=max(now - run.scheduled_for, 0) / 1000,
        attempt=run.attempt,
        trigger=run.trigger,
        outcome=None,
        node=node,
        claimed_at=from_micros(run.claimed_at),
    )
