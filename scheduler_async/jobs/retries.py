"""Retry policies: when to run a job again after a failure, and when to disable it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.timekeeping.durations import (
    describe_duration,
    format_interval,
    parse_interval,
    parse_stored_interval,
)
from scheduler_async.timekeeping.instants import LAST, MINUTE, Micros, span

JSON_VERSION = 1

# A job that kills its process this many times in a row is disabled, whatever its policy.
MAX_INTERRUPTIONS = 5

# 2**40 minutes is longer than any period.
_LARGEST_POWER = 40


class RetryKind(StrEnum):
    """The four kinds of retry policies."""

    BACKOFF = "backoff"
    IN_WINDOW = "in_window"
    BUDGET = "budget"
    NONE = "none"


_NEEDED: dict[RetryKind, tuple[str, ...]] = {
    RetryKind.BACKOFF: ("delays",),
    RetryKind.IN_WINDOW: ("max_retries",),
    RetryKind.BUDGET: ("max_retries", "period"),
    RetryKind.NONE: (),
}


class Consequence(NamedTuple):
    """The effect of a failure on its job."""

    disable: bool = False
    """Whether the job is disabled."""
    retry_at: Micros | None = None
    """When the same occurrence is due again."""
    not_before: Micros | None = None
    """The earliest time at which the next regular occurrence may run."""
    retry_count: int = 0
    period_start: Micros | None = None
    held: bool = False
    """Whether all retries of the period are used up. If so, `retry_at` is the end of the period."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """What happens after a run fails. Make a policy with `backoff`, `in_window`, `budget` or `none`.

    >>> from scheduler_async import Retry
    >>> Retry.backoff(["1m", "5m"]).describe()
    'waits 1 minute, 5 minutes after failures in a row; disabled after 5 failures in a row'
    >>> Retry.in_window(3, delay="10s").describe()
    '3 retries before the next regular time'
    >>> Retry.budget(max_retries=5, period="1d").describe()
    '5 failures in 1 day'
    >>> Retry.none(disable_after=10).describe()
    'no retries; disabled after 10 failures in a row'

    `Retry.backoff()`, the default, postpones the next regular run after each failure. `Retry.in_window()` retries soon,
    and waits for the next regular time after that. `Retry.budget()` retries after growing delays until the budget of a
    period is used up. `Retry.none()` waits for the next regular time.

    Pass it as `Scheduler(retry=…)` for all jobs, or as `add_job(retry=…)` for one. A run fails if its handler raises,
    returns the outcome "error", exceeds its timeout, or if its process dies. A scheduled run with the outcome
    "success", "noop" or "skipped" resets the count, and so does `resume_job`. With *disable_after*, the job is disabled
    after that many failures in a row; None never disables it.

    A job with an `At` schedule has one attempt, unless the job has a policy of its own.
    """

    kind: RetryKind
    delays: tuple[timedelta, ...] = ()
    max_retries: int | None = None
    period: timedelta | None = None
    disable_after: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in list(RetryKind):
            raise InvalidJobError(
                "A retry policy must be Retry.backoff(), Retry.in_window(), Retry.budget() or Retry.none(); "
                f"its kind must not be {quoted(self.kind)}.",
                "retry",
            )
        missing = [name for name in _NEEDED[self.kind] if getattr(self, name) in (None, ())]
        if missing:
            raise InvalidJobError(
                f"The retry policy {self.kind} needs {', '.join(missing)}. Make it with Retry.{self.kind}().", "retry"
            )

    @classmethod
    def backoff(
        cls,
        delays: Iterable[str | timedelta] = ("30s", "1m", "5m", "15m", "60m"),
        *,
        disable_after: int | None = 5,
    ) -> Retry:
        """Postpone the next regular run after each failure in a row, by the first of *delays*, then the second, …

        A delay never makes a run earlier: a job that is due later anyway runs at its regular time. If regular times
        fall into the delay, the job runs once when it is over. A job whose schedule has no regular time left, such as
        `At`, runs again after the delay.

        delays=("30s", "1m", "5m", "15m", "60m")
            Durations. The last one also applies to all further failures. The fifth default matters only with another
            *disable_after*, because the fifth failure disables the job.
        disable_after=5
            Disables the job after this many failures in a row. None: never.
        """
        if isinstance(delays, str) or not isinstance(delays, Iterable):
            raise InvalidJobError(
                f'delays must be a list of durations such as ["30s", "5m"], not {quoted(delays)}.', "retry"
            )
        steps = tuple(parse_interval(delay) for delay in delays)
        if not steps:
            raise InvalidJobError('delays must contain at least one duration, such as ["30s", "5m"].', "retry")
        return cls(kind=RetryKind.BACKOFF, delays=steps, disable_after=_count(disable_after, "disable_after"))

    @classmethod
    def in_window(
        cls, max_retries: int = 2, *, delay: str | timedelta | None = None, disable_after: int | None = None
    ) -> Retry:
        """Retry soon, up to *max_retries* times; then wait for the next regular time, which has all retries again.

        max_retries=2
            How many retries each regular time has.
        delay=None
            How long to wait before each retry. None retries at the next pass, which the loop makes after one second.
            If the next regular time comes first, the job runs then instead.
        disable_after=None
            Disables the job after this many failures in a row. None: never.
        """
        return cls(
            kind=RetryKind.IN_WINDOW,
            delays=() if delay is None else (parse_interval(delay),),
            max_retries=_count(max_retries, "max_retries"),
            disable_after=_count(disable_after, "disable_after"),
        )

    @classmethod
    def budget(cls, max_retries: int = 5, period: str | timedelta = "1d", *, disable_after: int | None = None) -> Retry:
        """Retry after 2, 4, 8, … minutes; after *max_retries* failures, wait until the *period* has passed.

        The period begins with its first failure. Regular times in between do not run.

        max_retries=5
            How many failures a period allows.
        period="1d"
            The length of a period, as a duration.
        disable_after=None
            Disables the job after this many failures in a row. None: never.
        """
        return cls(
            kind=RetryKind.BUDGET,
            max_retries=_count(max_retries, "max_retries"),
            period=parse_interval(period),
            disable_after=_count(disable_after, "disable_after"),
        )

    @classmethod
    def none(cls, *, disable_after: int | None = None) -> Retry:
        """Wait for the next regular time, without retries.

        A run whose process died still runs again, as `on_interrupt` says. After five such interruptions in a row the
        job is disabled, since it may be the cause.

        disable_after=None
            Disables the job after this many failures in a row, and replaces the limit of five interruptions.
        """
        return cls(kind=RetryKind.NONE, disable_after=_count(disable_after, "disable_after"))

    def after_failure(
        self,
        *,
        failed_at: Micros,
        consecutive_errors: int,
        retry_count: int,
        period_start: Micros | None,
        at_once: bool = False,
        interruptions: int = 0,
    ) -> Consequence:
        """Return the effect of a failure at *failed_at*, which *consecutive_errors* already includes.

        Set *at_once* for interrupted runs, which run again now as long as the counts allow. *interruptions* is the
        number of consecutive interruptions, including this one.
        """
        if self.disable_after is None:
            is_enough = at_once and interruptions >= MAX_INTERRUPTIONS
        else:
            is_enough = consecutive_errors >= self.disable_after
        if is_enough:
            return Consequence(disable=True, retry_count=retry_count, period_start=period_start)
        match self.kind:
            case RetryKind.BACKOFF:
                if at_once:
                    return Consequence(retry_at=failed_at)
                delay = self.delays[min(consecutive_errors, len(self.delays)) - 1]
                return Consequence(not_before=min(failed_at + span(delay), LAST))
            case RetryKind.IN_WINDOW:
                assert self.max_retries is not None
                if retry_count >= self.max_retries:
                    return Consequence(retry_count=retry_count)
                # One microsecond later, so that the current pass, which has already begun, does not run it.
                wait = span(self.delays[0]) if self.delays else 1
                return Consequence(
                    retry_at=min(failed_at + (0 if at_once else wait), LAST), retry_count=retry_count + 1
                )
            case RetryKind.BUDGET:
                assert self.max_retries is not None
                assert self.period is not None
                if period_start is None or failed_at - period_start >= span(self.period):
                    period_start, retry_count = failed_at, 0
                retry_count += 1
                period_end = min(period_start + span(self.period), LAST)
                wait = 0 if at_once else 2 ** min(retry_count, _LARGEST_POWER) * MINUTE
                held = retry_count >= self.max_retries
                retry_at = period_end if held else min(failed_at + wait, period_end)
                return Consequence(retry_at=retry_at, retry_count=retry_count, period_start=period_start, held=held)
            case RetryKind.NONE:
                return Consequence(retry_at=failed_at if at_once else None)

    def is_exhausted(self, retry_count: int) -> bool:
        """Return whether *retry_count* has used up the retries that the policy allows for now."""
        return self.max_retries is not None and retry_count >= self.max_retries

    def retries_left(self, consecutive_errors: int, retry_count: int) -> int | None:
        """Return how many more failures are allowed before the job is held or disabled. None means any number."""
        if self.max_retries is not None:
            return max(self.max_retries - retry_count, 0)
        if self.disable_after is not None:
            return max(self.disable_after - consecutive_errors, 0)
        return None

    @property
    def regular_times_go_on(self) -> bool:
        """Whether a regular occurrence replaces a waiting retry."""
        return self.kind is not RetryKind.BUDGET

    def describe(self) -> str:
        """Return the policy in plain English."""
        match self.kind:
            case RetryKind.BACKOFF:
                words = f"waits {', '.join(map(describe_duration, self.delays))} after failures in a row"
            case RetryKind.IN_WINDOW:
                words = f"{_times(self.max_retries, 'retry', 'retries')} before the next regular time"
            case RetryKind.BUDGET:
                assert self.period is not None
                words = f"{_times(self.max_retries, 'failure', 'failures')} in {describe_duration(self.period)}"
            case RetryKind.NONE:
                words = "no retries"
        if self.disable_after is not None:
            words += f"; disabled after {_times(self.disable_after, 'failure', 'failures')} in a row"
        return words

    def to_json(self) -> dict[str, Any]:
        """Return the policy as a dict of JSON values, from which `from_json` makes an equal policy."""
        form = {
            "version": JSON_VERSION,
            "kind": self.kind.value,
            "delays": [format_interval(delay) for delay in self.delays] or None,
            "max_retries": self.max_retries,
            "period": None if self.period is None else format_interval(self.period),
            "disable_after": self.disable_after,
        }
        return {name: value for name, value in form.items() if value is not None}

    @classmethod
    def from_json(cls, form: str | Mapping[str, Any]) -> Retry:
        """Return the policy that `to_json` described; *form* may also be JSON text."""
        try:
            parts = dict(json.loads(form) if isinstance(form, str) else form)
            if parts["version"] != JSON_VERSION:
                raise InvalidJobError(
                    f"This retry policy has version {quoted(str(parts['version']))} of the JSON form; this version of "
                    f"scheduler_async supports version {JSON_VERSION}. Upgrade scheduler_async.",
                    "retry",
                )
            period = parts.get("period")
            return cls(
                kind=RetryKind(parts["kind"]),
                delays=tuple(parse_stored_interval(delay) for delay in parts.get("delays", ())),
                max_retries=_count(parts.get("max_retries"), "max_retries"),
                period=None if period is None else parse_stored_interval(period),
                disable_after=_count(parts.get("disable_after"), "disable_after"),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidJobError):
                raise
            raise InvalidJobError(
                f"This is not the JSON form of a retry policy ({type(error).__name__}: {error}). "
                'It must look like {"version": 1, "kind": "in_window", "max_retries": 2}.',
                "retry",
            ) from error


def _count(number: int | None, name: str) -> int | None:
    smallest = 0 if name == "max_retries" else 1
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < smallest):
        raise InvalidJobError(f"{name} must be a whole number from {smallest} up, not {quoted(number)}.", "retry")
    return number


def _times(number: int | None, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
