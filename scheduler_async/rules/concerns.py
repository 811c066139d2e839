"""What needs the attention of an operator, and what follows from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from scheduler_async.errors import quoted
from scheduler_async.jobs.answers import Node
from scheduler_async.jobs.enums import Outcome, Phase, SkipReason
from scheduler_async.jobs.history import NodeFate, NodeSpan
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.pages import Concern, ConcernKind
from scheduler_async.jobs.run import RunRow
from scheduler_async.rules.next_run import retry_policy
from scheduler_async.rules.terms import Rules
from scheduler_async.timekeeping.durations import describe_duration
from scheduler_async.timekeeping.instants import SECOND, Micros, from_micros

# A run is stuck if it takes this many times as long as 95 % of the last runs of its job, and at least this long. A job
# without enough runs to compare with has no usual time.
STUCK_TIMES = 3
STUCK_AT_LEAST = timedelta(minutes=1)
ENOUGH_RUNS = 5

# An occurrence that was left out now and then is no concern.
MANY_LEFT_OUT = 3

# A job that is due for no longer than this is not late: a scheduler may be about to start it.
LATE_AFTER: Micros = 60 * SECOND

# A difference of the clocks that misplaces runs noticeably.
SKEW = timedelta(seconds=1)

# A node that was lost longer ago is history.
LOST_FOR = timedelta(days=1)


def failing(job: Job, rules: Rules) -> Concern:
    """Return the concern about a job whose last runs have failed and which goes on."""
    count, state = job.consecutive_errors, job.state
    policy = retry_policy(job, rules)
    effect = "It is paused." if state.phase is Phase.PAUSED else "It runs again at its next time."
    if state.phase is Phase.ACTIVE and state.retry_of is not None:
        effect = "It is tried again."
    if policy.disable_after is not None:
        left = max(policy.disable_after - count, 1)
        effect += f" {_number(left, 'more failure')} {'disables' if left == 1 else 'disable'} it."
    return _about(
        job, ConcernKind.FAILING, job.last_error_at, f"It failed {_times(count)}: {_said(job.last_error)}", effect
    )


def disabled(job: Job) -> Concern:
    """Return the concern about a job that was disabled after failures."""
    at = job.state.disabled_at
    return _about(
        job,
        ConcernKind.DISABLED,
        None if at is None else from_micros(at),
        f"It was disabled: {_said(job.disabled_reason)}",
        "It does not run until it is resumed.",
    )


def is_disabled_by_failures(job: Job) -> bool:
    """Return whether failures have disabled *job*, rather than a person or the end of its schedule."""
    return job.state.phase is Phase.DISABLED and not job.ended and job.consecutive_errors > 0


def stuck(run: RunRow, before: Sequence[RunRow], now: datetime) -> Concern | None:
    """Return the concern about a *run* in progress that takes much longer than the runs *before* it did."""
    if run.started_at is None:
        return None
    usual = usual_duration(before)
    elapsed = now - run.started_at
    if usual is None or elapsed < max(STUCK_TIMES * usual, STUCK_AT_LEAST):
        return None
    return Concern(
        kind=ConcernKind.STUCK,
        namespace=run.namespace,
        job_id=run.job_id,
        since=run.started_at,
        cause=f"It has been running for {_told(elapsed)}; 95 % of its last runs took at most {_told(usual)}.",
        effect="Its next occurrence may be left out. If the run hangs, cancel it.",
        run_id=run.id,
        node=run.node,
    )


def usual_duration(rows: Sequence[RunRow]) -> timedelta | None:
    """Return the time in which 95 % of the successful runs among *rows* have ended. None if they are too few."""
    took = sorted(
        row.duration_ms
        for row in rows
        if row.duration_ms is not None and row.outcome is not None and row.outcome.is_success
    )
    if len(took) < ENOUGH_RUNS:
        return None
    return timedelta(milliseconds=took[max(-(-len(took) * 95 // 100) - 1, 0)])


def no_handler(job: Job) -> Concern:
    """Return the concern about a *job* that is due, and whose handler no scheduler has."""
    return _about(
        job,
        ConcernKind.NO_HANDLER,
        job.next_run_at,
        f"No scheduler has the handler {quoted(job.handler)}.",
        "Its jobs wait until a process that has the handler starts.",
    )


def late(job: Job, now: datetime) -> Concern:
    """Return the concern about a *job* that is due and has not started."""
    at = job.next_run_at
    told = "" if at is None else f" for {_told(now - at)}"
    effect = "It starts when a scheduler has room for it."
    return _about(job, ConcernKind.LATE, at, f"It has been due{told} and has not started.", effect)


def left_out(rows: Sequence[RunRow]) -> Concern | None:
    """Return the concern about a job whose last occurrences were all left out. Its last *rows* come oldest first."""
    count = 0
    first: RunRow | None = None
    for row in reversed(rows):
        if row.outcome is not Outcome.SKIPPED or row.reason in (SkipReason.PAUSED, SkipReason.DISABLED):
            break
        count, first = count + max(row.missed, 1), row
    if first is None or count < MANY_LEFT_OUT:
        return None
    reason = rows[-1].reason
    why = "" if reason is None else f": {_REASONS.get(str(reason), str(reason))}"
    return Concern(
        kind=ConcernKind.LEFT_OUT,
        namespace=first.namespace,
        job_id=first.job_id,
        since=first.scheduled_for,
        cause=f"Its last {count:,} occurrences were left out{why}.",
        effect="It has not run since.",
        run_id=rows[-1].id,
    )


_REASONS: dict[str, str] = {
    SkipReason.ALREADY_RUNNING: "the run before had not ended",
    SkipReason.MISFIRE: "they were too late",
    SkipReason.BACKOFF: "it waited after failures",
    SkipReason.INTERRUPTED: "the process had died",
}


def unreadable(job: Job) -> Concern:
    """Return the concern about a *job* that the store cannot read."""
    cause = f"The store cannot read it: {_said(job.unreadable)}"
    return _about(job, ConcernKind.UNREADABLE, None, cause, "It does not run.")


def node_lost(span: NodeSpan) -> Concern:
    """Return the concern about a node that was lost."""
    return Concern(
        kind=ConcernKind.NODE_LOST,
        namespace=None,
        job_id=None,
        since=span.until,
        cause=f"The process {span.pid} on {span.host} has died, or lost its connection.",
        effect="Its runs were recorded as interrupted; other schedulers have taken over its jobs.",
        node=span.name,
    )


def is_lost(span: NodeSpan, now: datetime) -> bool:
    """Return whether a node was lost recently."""
    return span.how == NodeFate.LOST and (span.until or span.since) > now - LOST_FOR


def clock_skew(node: Node) -> Concern | None:
    """Return the concern about a *node* whose clock differs from that of the store."""
    if abs(node.clock_skew) <= SKEW:
        return None
    side = "ahead of" if node.clock_skew > timedelta() else "behind"
    return Concern(
        kind=ConcernKind.CLOCK_SKEW,
        namespace=None,
        job_id=None,
        since=None,
        cause=f"The clock of {node.host} is {_told(abs(node.clock_skew))} {side} that of the store.",
        effect="Times that its programs write differ by as much. Check its time synchronisation.",
        node=node.id,
    )


def no_scheduler() -> Concern:
    """Return the concern that no scheduler runs."""
    return Concern(
        kind=ConcernKind.NO_SCHEDULER,
        namespace=None,
        job_id=None,
        since=None,
        cause="No scheduler is running.",
        effect="No job starts until a process with a scheduler starts.",
    )


def loop_blocked(at: Micros, job: Job | None, message: str) -> Concern:
    """Return the concern that a handler has blocked the event loop of this process."""
    return Concern(
        kind=ConcernKind.LOOP_BLOCKED,
        namespace=None if job is None else job.namespace,
        job_id=None if job is None else job.id,
        since=from_micros(at),
        cause=f"{'Something' if job is None else 'It'} {_said(message)}",
        effect="Meanwhile, no other run of this process could start or go on.",
    )


def _about(job: Job, kind: ConcernKind, since: datetime | None, cause: str, effect: str) -> Concern:
    return Concern(kind=kind, namespace=job.namespace, job_id=job.id, since=since, cause=cause, effect=effect)


def _said(text: str | None) -> str:
    """Return *text* as the end of a sentence."""
    told = (text or "no reason is known").strip()
    return told if told.endswith((".", "!", "?", "…")) else f"{told}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times in a row"


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _told(duration: timedelta) -> str:
    return describe_duration(timedelta(seconds=max(round(duration.total_seconds()), 1)))
