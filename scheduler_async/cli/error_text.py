"""Errors and explanations of the library, with the commands to type instead of the calls to make. Pure."""

from __future__ import annotations

import shlex

from scheduler_async.cli.program_rules import assumption
from scheduler_async.command import HANDLER
from scheduler_async.errors import (
    JobAlreadyRunningError,
    JobDisabledError,
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    RunEndedError,
    RunNotFoundError,
    SchedulerError,
    SchedulerShutdownError,
)
from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.enums import Phase, SkipReason
from scheduler_async.jobs.job import Job


def command_for(verb: str, slug: str, namespace: str, *options: str) -> str:
    """Return a command about a job, in quotes."""
    where = () if namespace == "default" else ("--namespace", namespace)
    return f'"{shlex.join(("scheduler-async", verb, slug, *where))}{"".join(f" {option}" for option in options)}"'


def sentence_of(error: SchedulerError) -> str:
    """Return what went wrong, and what to type next."""
    match error:
        case JobExistsError(sentence=sentence, job_id=slug, namespace=namespace):
            return f"{sentence} Choose another name, or change the job with {command_for('edit', slug, namespace)}."
        case JobNotFoundError(sentence=sentence, job_id=slug, namespace=namespace):
            similar = [f'"{name}"' for name in getattr(error, "__notes__", [])]
            meant = f" Did you mean {' or '.join(similar)}?" if similar else ""
            has_two = "/" in slug and namespace != "default"
            hint = " Pass either NAMESPACE/SLUG or --namespace, not both." if has_two else ""
            return f'{sentence}{meant} "scheduler-async list" shows all jobs.{hint}'
        case JobDisabledError(sentence=sentence, job_id=slug, namespace=namespace):
            return f"{sentence} It does not start until {command_for('resume', slug, namespace)}."
        case JobEndedError(sentence=sentence, job_id=slug, namespace=namespace):
            return f"{sentence} {_once_more(slug, namespace)}"
        case JobAlreadyRunningError(sentence=sentence, requested_run=int(run)):
            return f'{sentence} "scheduler-async cancel {run}" withdraws it.'
        case RunNotFoundError(sentence=sentence):
            return f'{sentence} "scheduler-async log" shows the ids of runs.'
        case RunEndedError(sentence=sentence):
            return f'{sentence} "scheduler-async log" shows how.'
        case SchedulerShutdownError(running=running):
            runs, them = ("1 run has", "it") if running == 1 else (f"{running} runs have", "them")
            return f"{runs} not ended in time. The next scheduler on this store records {them} as interrupted."
        case _:
            return str(error)


def explained(job: Job, explanation: Explanation) -> str:
    """Return why a job is not running right now, or what became of it at another time, and what to type about it."""
    if explanation.at is not None:
        return " ".join(part for part in (explanation.sentence, _about_then(job, explanation)) if part)
    match explanation.reason:
        case SkipReason.DISABLED:
            remedy = f"{command_for('resume', job.id, job.namespace)} enables it."
        case SkipReason.PAUSED:
            remedy = f"{command_for('resume', job.id, job.namespace)} lets it start again."
        case SkipReason.MANUAL_ONLY:
            remedy = f"{command_for('trigger', job.id, job.namespace)} runs it."
        case SkipReason.ENDED:
            remedy = _once_more(job.id, job.namespace)
        case SkipReason.NO_HANDLER if job.handler == HANDLER:
            remedy = '"scheduler-async run" starts a scheduler that has it.'
        case SkipReason.NO_HANDLER:
            remedy = 'Start the program that has it, for example with "scheduler-async run MODULE:SCHEDULER".'
        case SkipReason.UNKNOWN_SCHEDULE:
            remedy = 'Start the program that knows it, for example with "scheduler-async run MODULE:SCHEDULER".'
        case SkipReason.NO_SCHEDULER if job.handler == HANDLER:
            remedy = '"scheduler-async run" starts a scheduler, and "scheduler-async cron" makes a single pass.'
        case SkipReason.NO_SCHEDULER:
            remedy = 'Start its program, for example with "scheduler-async run MODULE:SCHEDULER".'
        case None:
            remedy = '"scheduler-async run" makes passes until you stop it, and "scheduler-async cron" makes one.'
        case _:
            remedy = explanation.remedy or ""
    parts = (explanation.sentence, remedy, assumption(job, explanation))
    return " ".join(part for part in parts if part)


def _about_then(job: Job, explanation: Explanation) -> str:
    """Return what a run of another time said if it failed, or what to type if the reason of that time still holds."""
    run = explanation.run
    if run is not None and run.outcome is not None and run.outcome.is_failure:
        story = " ".join((run.message or run.error or "").split()).rstrip(".")
        return f"Run {run.id}: {story}." if story else ""
    resume = command_for("resume", job.id, job.namespace)
    match explanation.reason, job.state.phase:
        case SkipReason.PAUSED, Phase.PAUSED:
            return f"{resume} lets it start again."
        case SkipReason.DISABLED, Phase.DISABLED:
            return f"{resume} enables it."
        case SkipReason.MANUAL_ONLY, _:
            return f"{command_for('trigger', job.id, job.namespace)} runs it."
        case _:
            return ""


def _once_more(slug: str, namespace: str) -> str:
    new = command_for("edit", slug, namespace, "--every", "1h")
    return f"{new} gives it a new schedule, and {command_for('trigger', slug, namespace)} runs it once more."
