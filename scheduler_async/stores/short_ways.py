"""The rules of claims and successes for the plain case, from columns to columns. Pure."""

from __future__ import annotations

from typing import Any

from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.schedules.base import Schedule
from scheduler_async.stores.codec import is_sound_state
from scheduler_async.timekeeping.instants import FIRST, LAST, Micros


def claim_in_time(columns: tuple[Any, ...], now: Micros, activity: str) -> tuple[Any, ...] | None:
    """What `claim` makes of a job that is claimed before its moment has passed; None where it takes a closer look.

    It goes from the columns of a state to those of the next, without a look at the job: nothing is late, and nothing
    was missed. Where claims are made ahead of time, nearly all are like that. That its schedule no longer computes is
    then noticed when the run has ended. Columns that cannot be read take a closer look, too: a job that has never
    failed nor told anything has few that could be wrong.
    """
    (_, at, retry_of, attempts, regular_at, retry_count, last_run_at, period_start, errors, interruptions,
     last_success_at, exit_code, message, _, reason, disabled_at, last_error_at, error,
     forgotten_until) = columns  # fmt: skip
    if retry_of is not None or regular_at is not None or at < now:
        return None
    try:
        is_plain = (
            attempts == retry_count == errors == interruptions == 0
            and period_start is exit_code is message is reason is disabled_at is last_error_at is error is None
            and forgotten_until is None
            and (last_run_at is None or FIRST <= last_run_at <= at)
            and (last_success_at is None or FIRST <= last_success_at <= LAST)
        )
    except TypeError:
        return None
    if not is_plain and (not is_sound_state(columns) or (forgotten_until is not None and at <= forgotten_until)):
        return None
    return activity, None, None, 0, None, 0, at, *columns[7:]


_ACTIVE = Phase.ACTIVE._value_  # to compare a text with the enum takes eight times as long


def success_in_time(
    columns: tuple[Any, ...],
    schedule: Schedule,
    anchor: Micros,
    since: Micros,
    started_at: Micros,
    now: Micros,
    told: tuple[int | None, str | None],
) -> tuple[Any, ...] | None:
    """What `after_run` makes of a regular run that succeeded before the next is due; None if it takes a closer look.

    It goes from the columns of a state that nobody has touched since its claim to those of the next, like
    `claim_in_time`. *since* is when it was due or claimed, *told* its exit code and its message.
    """
    if schedule.jitter is not None or not schedule.goes_by_moments or since > now:
        return None
    following = schedule.next_micros(since, schedule.anchor_before(since, anchor))
    rest, forgotten_until = columns[13:], columns[-1]
    if (following is not None and following <= now) or rest[0] != _ACTIVE:
        return None
    if forgotten_until is not None and forgotten_until > now:
        return None
    if following is None:
        rest = Phase.DISABLED._value_, ENDED, now, *rest[3:]
    return "idle", following, None, 0, None, 0, started_at, None, 0, 0, now, *told, *rest
