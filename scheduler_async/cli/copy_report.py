"""The results of a copy, in sentences."""

from __future__ import annotations

from scheduler_async.cli.job_names import name_of
from scheduler_async.stores.copy_records import Verdict
from scheduler_async.stores.copying import Copy

# More lines about single jobs than a reader wants to see.
MANY = 20


def show_copy(copy: Copy) -> None:
    """Print the jobs and runs that were not copied, each with the reason, and the summary."""
    from scheduler_async.cli.terminal import say

    lines = [
        f"{'Kept' if verdict is Verdict.KEPT else 'Left out'} {name_of(job.namespace, job.id)}: {why}."
        for verdict, job, why in copy.exceptions
    ]
    lines += [
        f"Left out {name_of(job.namespace, job.job_id)}: it cannot be read: {job.why}." for job in copy.unreadable_jobs
    ]
    lines += [
        f"Left out run {run.number} of {name_of(run.namespace, run.job_id)}: it cannot be read: {run.why}."
        for run in copy.unreadable_runs
    ]
    for line in lines[:MANY]:
        say(line)
    if len(lines) > MANY:
        say(f"And {len(lines) - MANY:,} more; --json lists them all.")
    say(copied(copy))


def copied(copy: Copy) -> str:
    """Return the summary of a copy."""
    count = copy.verdicts
    jobs, runs = count[Verdict.ADDED] + count[Verdict.UPDATED], copy.runs_added
    updated = count[Verdict.UPDATED]
    older = "an older one" if updated == 1 else "older ones"
    asides = [f"{_counted(updated, 'job')} replaced {older}"] if updated else []
    asides += [
        f"{_counted(count[verdict], 'job')} {'was' if count[verdict] == 1 else 'were'} {words}"
        for verdict, words in (
            (Verdict.SAME, "there already"),
            (Verdict.KEPT, "kept"),
            (Verdict.LEFT_OUT, "left out"),
        )
        if count[verdict]
    ]
    unread = len(copy.unreadable_runs)
    asides += [f"{_counted(unread, 'run')} {'was' if unread == 1 else 'were'} left out"] if unread else []
    if jobs or runs:
        sentence = f"Copied {_counted(jobs, 'job')} and {_counted(runs, 'run')}"
    elif count[Verdict.SAME] == copy.jobs_seen:
        here = f"{_counted(copy.jobs_seen, 'job')} and {_counted(copy.runs_seen, 'run')} are there already"
        return f"Nothing to copy: {here}." if copy.jobs_seen else "Nothing to copy: the source has no jobs."
    else:
        sentence = "Nothing was copied"
    return f"{sentence}{'; ' if asides else ''}{', '.join(asides)}."


def copied_so_far(copy: Copy) -> str:
    """Return how far an interrupted copy came."""
    return (
        f"Interrupted after {copy.jobs_seen:,} of {_counted(copy.jobs, 'job')} and {copy.runs_seen:,} of "
        f"{_counted(copy.runs, 'run')}. Run the same command again to copy the rest."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
