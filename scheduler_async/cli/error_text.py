"""Errors and explanations for people who have commands and no calls: what happened, and what to type. Pure."""

from __future__ import annotations

import shlex

from scheduler_async.cli.program_rules import assumption
from scheduler_async.errors import (
    JobEndedError,
    JobExistsError,
    JobNotFoundError,
    SchedulerError,
    SchedulerShutdownError,
)
from scheduler_async.jobs.answers import Explanation
from scheduler_async.jobs.enums import SkipReason
from scheduler_async.jobs.job import Job


def command_for(verb: str, slug: str, namespace: str, *options: str) -> str:
    """What to type to do something about a job, in quotes."""
    where = () if namespace == "default" else ("--namespace", namespace)
    return f'"{shlex.join(("scheduler-async", verb, slug, *where))}{"".join(f" {option}" for option in options)}"'


def sentence_of(error: SchedulerError) -> str:
    """What was wrong, and what to type instead."""
    match error:
        case JobExistsError(sentence=sentence, job_id=slug, namespace=namespace):
            return f"{sentence} Choose another name, or change that one with {command_for('edit', slug, namespace)}."
        case JobNotFoundError(sentence=sentence, job_id=slug, namespace=namespace):
            has_two = "/" in slug and namespace != "default"
            hint = " Give either NAMESPACE/SLUG or --namespace, not both." if has_two else ""
            return f'{sentence} "scheduler-async list" shows the jobs there are.{hint}'
        case JobEndedError(sentence=sentence, job_id=slug, namespace=namespace):
            return f"{sentence} {_once_more(slug, namespace)}"
        case SchedulerShutdownError(running=running):
            runs, they = ("1 run does", "it is") if running == 1 else (f"{running} runs do", "they are")
            return f"{runs} not end: {they} left behind, and recorded as interrupted by the next scheduler."
        case _:
            return str(error)


def explained(job: Job, explanation: Explanation) -> str:
    """Why a job is not running right now, and what to type about it."""
    match explanation.reason:
        case SkipReason.DISABLED:
            remedy = f"{command_for('resume', job.id, job.namespace)} enables it."
        case SkipReason.PAUSED:
            remedy = f"{command_for('resume', job.id, job.namespace)} lets it go on."
        case SkipReason.MANUAL_ONLY:
            remedy = f"{command_for('trigger', job.id, job.namespace)} does."
        case SkipReason.ENDED:
            remedy = _once_more(job.id, job.namespace)
        case SkipReason.NO_HANDLER:
            remedy = 'It belongs to a program, which runs it: "scheduler-async run MODULE:SCHEDULER".'
        case None:
            remedy = 'That is made by "scheduler-async run", or by "scheduler-async cron".'
        case _:
            remedy = explanation.remedy or ""
    parts = (explanation.sentence, remedy, assumption(job, explanation.reason))
    return " ".join(part for part in parts if part)


def _once_more(slug: str, namespace: str) -> str:
    new = command_for("edit", slug, namespace, "--every", "1h")
    return f"{new} gives it a new one, and {command_for('trigger', slug, namespace)} runs it once more."
