"""What every store does with jobs and runs, whatever its SQL. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from scheduler_async.foresight import EARLIEST_CLAIM
from scheduler_async.instants import Micros, from_micros
from scheduler_async.lifecycle import Rules, after_run, claim, disable, disabled, ran_before, success_in_time, unclaim
from scheduler_async.models import (
    Attempt,
    Ending,
    Job,
    JobState,
    Outcome,
    Phase,
    RunRow,
    Skip,
    SkipReason,
    Status,
    Trigger,
)
from scheduler_async.rows import (
    ID,
    NAMESPACE,
    NEXT_RUN_AT,
    UID,
    Row,
    has_unreadable_state,
    read_job,
    schedule_of,
    state_of,
    state_problem,
)
from scheduler_async.store import (
    Aftermath,
    ClaimedRun,
    Edit,
    EndedRun,
    JobRecord,
    LeftOut,
    NodeIdentity,
    NodeRow,
    RunRecord,
)
from scheduler_async.unreadable import (
    Check,
    Unreadable,
    first_problem,
    is_count,
    is_text,
    moment,
    name,
    number,
    optional,
    pid,
    problem_of,
    shown_moment,
    shown_text,
    text,
)


def can_be_claimed(job: Job, handlers: Collection[str] | None) -> bool:
    """Whether anything can be decided about a job that stood in line for one of *handlers*; None is any.

    Not if its state cannot be read; and it waits if its handler is another than its state says, and not here.
    """
    is_here = handlers is None or job.handler in handlers or not job.enabled
    return is_here and not has_unreadable_state(job)


def claimed(job: Job, now: Micros, rules: Rules, activity: Status = Status.QUEUED) -> tuple[Edit, Attempt | None]:
    """What a claim does with a job; one that cannot be read, or whose schedule fails, is disabled.

    One that is claimed ahead of its time is claimed as of its time.
    """
    if job.state.phase is Phase.DISABLED:
        return Edit(job=job, kind="disabled"), None
    due = job.state.next_run_at
    moment = now if due is None or due < now else due
    try:
        state, skips, attempt = claim(job, moment, rules, activity)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, now), None
    return Edit(job.with_state(state), skips, _kind_of(state)), attempt


def earliest_of(jobs: Iterable[Job], at: Micros | None, count: int) -> tuple[Micros | None, int]:
    """When the first of *jobs* is due, or so many at a moment, these among them or not; and how many are due then."""
    moments = [job.state.next_run_at for job in jobs if job.state.next_run_at is not None]
    first = min(moments) if moments else None
    if first is None or (at is not None and at < first):
        return at, count
    return first, max(moments.count(first), count if at == first else 0)


def _failing(job: Job, error: Exception, now: Micros) -> Edit:
    state = job.state._replace(activity=Status.IDLE)
    return Edit(job=job.with_state(disabled(state, f"its schedule fails: {error}", now)), kind="disabled")


def after(
    job: Job, run: ClaimedRun, ending: Ending, started_at: Micros | None, finished_at: Micros, rules: Rules
) -> Edit:
    """What a run leaves behind; a schedule that no longer computes disables its job."""
    try:
        state, skips = after_run(job, run.attempt, ending, finished_at, rules, started_at)
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(job, error, finished_at)
    was_enabled = job.state.phase is not Phase.DISABLED
    return Edit(job.with_state(state), skips, _kind_of(state) if was_enabled else None)


def reviewed(job: Job, decide: Callable[[Job], Job | None]) -> Job | None:
    """What *decide* makes of a job; None also if its schedule fails, which is noticed when it comes due."""
    try:
        return decide(job)
    except Exception:  # whatever it is, it must not stop the others
        return None


def gone_on(run: ClaimedRun, latest: Micros | None, now: Micros) -> Job:
    """The job of a run whose row was there already. *latest* is the last occurrence up to *now* that has a row.

    The occurrence ran before the clock went back, so that the job goes on with the next; or without *latest*, the row
    is that of another run, and the job stays as it was.
    """
    if latest is None:
        return run.job.with_state(run.before)
    try:
        return run.job.with_state(ran_before(run.job, run.before, latest, now))
    except Exception as error:  # whatever it is, it must not stop the others
        return _failing(run.job.with_state(run.before), error, now).job


_NOTHING = None, None


def aftermath(item: EndedRun, rules: Rules) -> Aftermath:
    """`after`, for a job that nobody has touched since it was claimed: what nearly all leave is found without it."""
    run, ending, finished_at = item.run, item.ending, item.finished_at
    description = run.description
    is_plain = ending.outcome is Outcome.SUCCESS and not ending.disable and run.trigger is not Trigger.MANUAL
    if is_plain and description is not None:
        told = ending.exit_code, ending.message
        since = max(run.claimed_at, run.scheduled_for)
        try:
            schedule, anchor = schedule_of(description)
            state = success_in_time(run.state, schedule, anchor, since, item.started_at, finished_at, told)
        except Exception as error:  # whatever it is, it must not stop the others
            return Aftermath.of(_failing(run.job, error, finished_at))
        if state is not None:
            next_run_at = state[NEXT_RUN_AT]
            kind = "disabled" if next_run_at is None else None
            return Aftermath(description, state, None, next_run_at, kind, (), told == _NOTHING)
    return Aftermath.of(after(run.job, run, ending, item.started_at, finished_at, rules))


def attempt_of(
    job: Job,
    scheduled_for: Micros | None = None,
    number: int | None = None,
    trigger: str | None = None,
    claimed_at: Micros | None = None,
) -> Attempt:
    """What a claimed run was for, as its row says; where that is gone or unreadable, as the state of its *job* says."""
    at, since = shown_moment(scheduled_for), shown_moment(claimed_at)
    moment = since if since is not None else job.state.last_run_at or job.updated
    return Attempt(
        scheduled_for=moment if at is None else at,
        attempt=number if number is not None and is_count(number) else 1,
        trigger=_TRIGGERS.get(trigger, Trigger.SCHEDULE),
        claimed_at=moment,
    )


_TRIGGERS: dict[str | None, Trigger] = {trigger.value: trigger for trigger in Trigger}


def put_back(job: Job, run: ClaimedRun) -> tuple[Job, tuple[Skip, ...], Micros]:
    """*job* as if *run* had not been claimed; what it leaves out all the same, and as of when."""
    try:
        (state, skips), at = unclaim(job, run.job, run.before, run.attempt)
    except Exception:  # whatever it is, it must not stop the others: a claim finds out
        now = job.state
        skips, at = (), job.updated
        state = run.before._replace(phase=now.phase, disabled_reason=now.disabled_reason, disabled_at=now.disabled_at)
    return job.with_state(state), skips, at


def disabled_by(job: Job, reason: str, now: Micros) -> Edit:
    """*job*, disabled for *reason* as by hand: a run in progress goes on. A schedule that fails does not matter."""
    try:
        state, skips = disable(job, reason, now)
    except Exception:  # whatever it is, it must not stop the others
        state, skips = disabled(job.state, reason, now), ()
    return Edit(job.with_state(state), skips, "disabled")


def noticed_at(now: Micros, claimed_at: Micros) -> Micros:
    """As of when a death counts that is noticed *now*: one that was claimed ahead of its time, as of its time."""
    return claimed_at if now < claimed_at <= now + EARLIEST_CLAIM else now


def _kind_of(state: JobState) -> str | None:
    return "disabled" if state.phase is Phase.DISABLED else None


RUN: dict[str, Check] = {
    "id": number,
    **dict.fromkeys(("job_id", "namespace"), lambda _: None),  # they are of the job
    "scheduled_for": moment,
    **dict.fromkeys(("started_at", "finished_at"), optional(moment)),
    "attempt": number,
    "trigger": Trigger,
    "outcome": optional(Outcome),
    "reason": optional(SkipReason),
    "missed": number,
    **dict.fromkeys(("error", "message"), optional(text)),
    "exit_code": optional(number),
    "node": optional(text),
}
"""The columns of a row of the run log, and what each may hold."""

UNREADABLE_RUN = "This row cannot be read from the store: "
"""How the `error` of a row begins that cannot be read."""


def is_unreadable(row: RunRow) -> bool:
    """Whether *row* has only what can be read of it."""
    return row.error is not None and row.error.startswith(UNREADABLE_RUN)


def read_run(columns: Sequence[Any]) -> tuple[RunRow, Unreadable | None]:
    """The row of the run log that its columns make; and what is wrong with them, if anything is.

    Then the row has what can be read of it, and its error says what cannot.
    """
    try:
        row = _run_row(*columns)
    except Exception:  # noqa: S110 - what is wrong, and where, is looked for column by column
        pass
    else:
        if _is_sound_run(columns):
            return row, None
    problem = first_problem(RUN, columns)
    kept = {
        name: value
        for (name, check), value in zip(RUN.items(), columns, strict=True)
        if not problem_of(name, check, value)
    }
    named = {name: shown_text(kept[name]) for name in ("job_id", "namespace")}
    if problem is None:  # only the job has a name that cannot be shown
        return _run_row(*{**kept, **named}.values()), None
    shown = {**dict.fromkeys(RUN), "scheduled_for": 0, "attempt": 0, "trigger": Trigger.SCHEDULE, "missed": 0}
    return _run_row(*{**shown, **kept, **named, "error": f"{UNREADABLE_RUN}{problem}"}.values()), problem


def _is_sound_run(columns: Sequence[Any]) -> bool:
    """Whether `RUN` finds nothing wrong, as far as `_run_row` does not notice, and its job has a name to show."""
    (run_id, job_id, namespace, scheduled_for, started_at, finished_at, attempt, _, _, _, missed, error, message,
     exit_code, node) = columns  # fmt: skip
    for value in (run_id, scheduled_for, attempt, missed):
        if type(value) is not int:
            return False
    for value in (started_at, finished_at, exit_code):
        if value is not None and type(value) is not int:
            return False
    for value in (error, message, node):
        if value is not None and (type(value) is not str or not is_text(value)):
            return False
    return all(type(value) is str and is_text(value) for value in (job_id, namespace))


def _run_row(
    run_id: int,
    job_id: str,
    namespace: str,
    scheduled_for: Micros,
    started_at: Micros | None,
    finished_at: Micros | None,
    attempt: int,
    trigger: str,
    outcome: str | None,
    reason: str | None,
    missed: int,
    error: str | None,
    message: str | None,
    exit_code: int | None,
    node: str | None,
) -> RunRow:
    return RunRow(
        id=run_id,
        job_id=job_id,
        namespace=namespace,
        scheduled_for=from_micros(scheduled_for),
        started_at=None if started_at is None else from_micros(started_at),
        finished_at=None if finished_at is None else from_micros(finished_at),
        duration_ms=None if started_at is None or finished_at is None else max(finished_at - started_at, 0) / 1000,
        delay_ms=None if started_at is None else max(started_at - scheduled_for, 0) / 1000,
        attempt=attempt,
        trigger=Trigger(trigger),
        outcome=None if outcome is None else Outcome(outcome),
        reason=None if reason is None else SkipReason(reason),
        missed=missed,
        error=error,
        message=message,
        exit_code=exit_code,
        node=node,
    )


RUN_RECORD: dict[str, Check] = {
    "id": number,
    **dict.fromkeys(("namespace", "job_id"), name),
    **{column: RUN[column] for column in ("scheduled_for", "attempt", "trigger")},
    "claimed_at": moment,
    **{column: RUN[column] for column in ("started_at", "finished_at")},
    "outcome": Outcome,
    **{column: RUN[column] for column in ("reason", "missed", "error", "message", "exit_code")},
    "node": optional(name),
    "output": lambda _: None,  # what is not UTF-8 is shown as far as it is
}
"""The columns of a `RunRecord`, and what each may hold."""


def read_run_record(columns: Row) -> RunRecord | LeftOut:
    """A run as it is kept; or why it cannot be read."""
    problem = first_problem(RUN_RECORD, columns)
    if problem is not None:
        return LeftOut(columns[0], shown_text(columns[1]), shown_text(columns[2]), str(problem))
    output = columns[-1]
    return RunRecord._make((*columns[:-1], None if output is None else shown_text(output)))


def read_record(description: Row, columns: Row) -> JobRecord | LeftOut:
    """A job as it is kept, with these *columns* of its state; or why it cannot be read."""
    try:
        read_job(description)
    except Unreadable as problem:
        unsound: Unreadable | None = problem
    else:
        unsound = state_problem(columns)
    if unsound is not None:
        return LeftOut(description[UID], shown_text(description[NAMESPACE]), shown_text(description[ID]), str(unsound))
    return JobRecord._make((*description, state_of(columns)))


NODE: dict[str, Check] = {
    "number": number,
    **dict.fromkeys(("name", "host"), name),
    "pid": pid,
    "process_start": name,
    "beat": number,
    "since": moment,
}
"""The columns of a node, and what each may hold."""


def read_node(columns: Sequence[Any], age: float | None = None) -> tuple[NodeRow, Unreadable | None]:
    """The node that its columns make; and what is wrong with them, if anything is.

    Then only its beats tell whether it lives.
    """
    id_, called, host, process, process_start, beat, since = columns
    problem = first_problem(NODE, columns)
    identity = NodeIdentity(
        name=shown_text(called),
        host=shown_text(host),
        pid=process if problem is None else 0,
        process_start=shown_text(process_start),
    )
    why = None if problem is None else str(problem)
    return NodeRow(id=id_, identity=identity, beat=beat, since=shown_moment(since) or 0, age=age, problem=why), problem


def row_of(item: EndedRun, node: str | None) -> RunRow:
    """The row that a run which has ended leaves."""
    run, ending = item.run, item.ending
    return RunRow(
        id=run.id,
        job_id=run.name[1],
        namespace=run.name[0],
        scheduled_for=from_micros(run.scheduled_for),
        started_at=from_micros(item.started_at),
        finished_at=from_micros(item.finished_at),
        duration_ms=max(item.finished_at - item.started_at, 0) / 1000,
        delay_ms=max(item.started_at - run.scheduled_for, 0) / 1000,
        attempt=run.number,
        trigger=run.trigger,
        outcome=ending.outcome,
        reason=SkipReason.INTERRUPTED if ending.outcome is Outcome.INTERRUPTED else None,
        error=ending.error,
        message=ending.message,
        exit_code=ending.exit_code,
        node=node,
    )


def row_of_skip(job: Job, skip: Skip, now: Micros) -> RunRow:
    """The row that occurrences leave which did not run; its id is known to the store only."""
    return RunRow(
        id=0,
        job_id=job.id,
        namespace=job.namespace,
        scheduled_for=from_micros(skip.scheduled_for),
        started_at=None,
        finished_at=from_micros(now),
        duration_ms=None,
        delay_ms=None,
        attempt=0,
        trigger=Trigger.SCHEDULE,
        outcome=Outcome.SKIPPED,
        reason=skip.reason,
        missed=skip.missed,
    )
