"""Schedules that follow the runs of another job. Pure: the store says when such a run has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, timedelta, tzinfo
from enum import StrEnum
from typing import Any, ClassVar

from scheduler_async.errors import InvalidScheduleError, quoted
from scheduler_async.schedules.base import Duration, Schedule, fill_in
from scheduler_async.timekeeping.durations import (
    describe_duration,
    format_interval,
    parse_interval,
    parse_stored_interval,
)
from scheduler_async.timekeeping.instants import Micros

# The same as that of the names of jobs.
LONGEST_NAME = 200  # characters


class RunEnds(StrEnum):
    """The endings that `After` waits for."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"


_VERBS = {RunEnds.SUCCESS: "succeeds", RunEnds.FAILURE: "fails", RunEnds.ANY: "ends"}


@dataclass(frozen=True, init=False)
class After(Schedule):
    """Runs after a run of another job has ended.

    >>> from scheduler_async import After
    >>> After("extract", delay="5m").describe()
    'after extract succeeds, 5 minutes later'

    The job becomes due in the transaction that records how the run of the other job ended, so that no crash can
    come between the two. If several runs end while it waits, it runs once. If one ends while it is running, it runs
    once more, after this run, whatever `max_instances` and `overlap` say. Every run counts, also one that was
    triggered or that a backfill made. `Run.after` is the id of the last of these runs. A job that is paused or
    disabled does not catch up: each ending leaves a row in its run log.

    job
        The id of the other job. It need not exist yet. Jobs must not wait for each other in a cycle.
    outcome="success"
        Which endings count. "success" includes runs that had nothing to do (`Outcome.NOOP`). "failure" is an error, a
        timeout, or a process that died; every failed attempt counts, even if it will be retried. "any" also includes
        runs that were cancelled, and runs that declined to work (`Outcome.SKIPPED`).
    delay=None
        How long to wait after the first of these endings, as a duration such as "5m". None starts at once.
    namespace=None
        The namespace of the other job. None is the namespace of this job.
    """

    kind: ClassVar[str] = "after"
    runs_by_itself = False
    follows_runs = True
    job: str
    outcome: RunEnds
    delay: timedelta | None
    namespace: str | None
    jitter: None = field(default=None, init=False, repr=False)
    start: None = field(default=None, init=False, repr=False)
    end: None = field(default=None, init=False, repr=False)

    def __init__(
        self,
        job: str,
        outcome: RunEnds | str = RunEnds.SUCCESS,
        delay: Duration | None = None,
        namespace: str | None = None,
    ) -> None:
        fill_in(
            self,
            job=_check_name(job, "job"),
            outcome=_check_outcome(outcome),
            delay=None if delay is None else parse_interval(delay),
            namespace=None if namespace is None else _check_name(namespace, "namespace"),
        )

    def next_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def latest_micros(self, now: Micros, anchor: Micros | None = None) -> Micros | None:
        return None

    def count_micros(self, after: Micros, until: Micros, anchor: Micros | None, cap: int) -> int:
        return 0

    @property
    def ending(self) -> str:
        """What it waits for, such as "extract succeeds"."""
        name = self.job if self.namespace is None else f"{self.namespace}/{self.job}"
        return f"{name} {_VERBS[self.outcome]}"

    def describe(self, zone: str | tzinfo = UTC) -> str:
        later = "" if self.delay is None else f", {describe_duration(self.delay)} later"
        return f"after {self.ending}{later}"

    def _parts(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "outcome": self.outcome.value,
            "delay": None if self.delay is None else format_interval(self.delay),
            "namespace": self.namespace,
        }

    @classmethod
    def _from_parts(cls, parts: dict[str, Any]) -> After:
        delay = parts.pop("delay", None)
        return cls(delay=None if delay is None else parse_stored_interval(delay), **parts)


def split_name(name: str) -> tuple[str | None, str]:
    """Return the namespace and the id in the *name* of a job, which is written "extract" or "etl/extract"."""
    first, slash, rest = name.partition("/")
    return (first, rest) if slash else (None, name)


def _check_name(name: object, what: str) -> str:
    if isinstance(name, str) and name.strip() == name and 0 < len(name) <= LONGEST_NAME and name.isprintable():
        return name
    raise InvalidScheduleError(
        f"The {what} of After must be a name of 1 to {LONGEST_NAME} printable characters, without whitespace around "
        f'them, not {quoted(name)}. Write After("extract") to run after the job "extract".'
    )


def _check_outcome(outcome: object) -> RunEnds:
    found = next((choice for choice in RunEnds if choice.value == outcome), None)
    if found is None:
        raise InvalidScheduleError(
            f'The outcome of After must be "success", "failure" or "any", not {quoted(outcome)}.'
        )
    return found
