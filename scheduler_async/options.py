"""The arguments of the public API: their types, and the checks that refuse bad ones.

The arguments that describe a job are checked by `jobs.spec`. Schedules check their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from logging import WARNING
from pathlib import Path
from typing import TypedDict

from scheduler_async.engine.setting import Limits
from scheduler_async.errors import IntervalParseError, InvalidJobError, SchedulerError, quoted
from scheduler_async.jobs.enums import ENDED, Misfire, OnInterrupt, Overlap, Priority, Status, check_choice
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import check_name
from scheduler_async.jobs.policies import parse_grace
from scheduler_async.jobs.retries import Retry
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.logs import say
from scheduler_async.rules.groups import check_limited, is_ambiguous
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.rates import NO_RATES, Rates, parse_rate
from scheduler_async.rules.terms import Rules
from scheduler_async.running.signature import Handler
from scheduler_async.schedules.base import Schedule
from scheduler_async.stores.addresses import A_STORE, is_url
from scheduler_async.stores.messages import JobFilter
from scheduler_async.stores.protocol import Store
from scheduler_async.stores.sqlite.store import SQLiteStore
from scheduler_async.timekeeping.clock import Clock, SystemClock
from scheduler_async.timekeeping.durations import parse_interval
from scheduler_async.timekeeping.instants import LAST, Micros, parse_instant, span, to_micros

# No store holds more rows, and every store can count this far.
MANY = 2**62

# The ids that a store can hold. run_log() also shows damaged rows, whose ids may be negative.
RUN_IDS = range(-(2**63), 2**63)

# A longer timeout is the same as none: clocks cannot count so far.
FOREVER = timedelta(days=365 * 1000).total_seconds()

# A reason is a sentence or a few. Tables and logs show it.
LONGEST_REASON = 1_000  # characters


# ---------------------------------------------------------------- types of keyword arguments


class JobOptions(TypedDict, total=False):
    """The options of a job that `add_job`, `@scheduler.job` and `Namespace.schedule` share.

    `help(Scheduler.add_job)` explains each of them. Use `**options: Unpack[JobOptions]` to write a function that
    passes them on.
    """

    user_id: str | None
    name: str | None
    payload: Json
    metadata: Mapping[str, Json] | None
    priority: Priority | str
    group: str | None
    misfire: Misfire | str
    retry: Retry | None
    timeout: str | timedelta | None
    on_interrupt: OnInterrupt | str
    max_instances: int
    overlap: Overlap | str
    misfire_grace: str | timedelta | None
    catch_up_limit: int
    catch_up_window: str | timedelta | None
    max_runs: int | None
    enabled: bool


class JobChanges(JobOptions, total=False):
    """The fields of a job that `update_job` can change: its options, its schedule, its handler and its cursor."""

    schedule: Schedule
    handler: str | Handler
    cursor: Json


class JobFilters(TypedDict, total=False):
    """The conditions of `Namespace.list`. A job is listed if it meets all of them.

    `help(Scheduler.list_jobs)` explains each of them.
    """

    status: Status | str | None
    user_id: str | None
    handler: str | None
    group: str | None
    priority: Priority | str | None
    metadata: Mapping[str, Json] | None
    due_before: datetime | str | None
    ended: bool | None
    limit: int | None


# ---------------------------------------------------------------- arguments of Scheduler


def store_of(store: str | Path | Store) -> Store:
    """Return the store that the first argument of `Scheduler` names: a path, a URL, or a store itself."""
    if isinstance(store, str | Path):
        text = str(store)
        if is_url(text):
            from scheduler_async.stores.postgres.store import PostgresStore  # noqa: PLC0415 - few need it

            return PostgresStore(text)
        if text == ":memory:":
            from scheduler_async.stores.memory.store import MemoryStore  # noqa: PLC0415 - the command line never does

            return MemoryStore()
        if not text:
            raise SchedulerError(A_STORE)
        return SQLiteStore(text)
    if isinstance(store, type):
        raise SchedulerError(f"store must be an object, not a class: pass {store.__name__}(...).")
    if not hasattr(store, "claim_due"):
        raise SchedulerError(f"store must be a path, a URL or a store object, not {quoted(store)}.")
    return store


def check_rules(retry: Retry | None, misfire_grace: str | timedelta | None) -> Rules:
    """Return the rules that a scheduler applies to all its jobs."""
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidJobError(f"retry must be Retry.backoff() or another policy, not {quoted(retry)}.", "retry")
    grace = None if misfire_grace is None else parse_grace(misfire_grace)
    return Rules(retry=retry or Retry.backoff(), misfire_grace=None if grace is None else span(grace))


def check_limits(
    *,
    max_concurrent: int | None,
    queue_size: int | None,
    group_limits: int | Mapping[str, int] | None,
    group_rates: Mapping[str, str] | None,
    stuck_after: str | timedelta | None,
    max_sleep: str | timedelta | None,
    keep_runs: int | None,
    keep_removed: str | timedelta | None,
    purge_disabled_after: str | timedelta | None,
    purge_ended_after: str | timedelta | None,
) -> Limits:
    """Return the limits that a scheduler observes."""
    limit_of_each, limit_by_group = _check_group_limits(group_limits)
    return Limits(
        max_concurrent=check_count(max_concurrent, "max_concurrent"),
        queue_size=check_count(queue_size, "queue_size", smallest=0),
        group_limit=limit_of_each,
        group_limits=limit_by_group,
        group_rates=_check_group_rates(group_rates),
        stuck_after=duration_or_none(stuck_after),
        max_sleep=duration_or_none(max_sleep),
        keep_runs=check_count(keep_runs, "keep_runs", smallest=0),
        keep_removed=duration_or_none(keep_removed),
        purge_disabled_after=duration_or_none(purge_disabled_after),
        purge_ended_after=duration_or_none(purge_ended_after),
    )


def _check_group_limits(limits: int | Mapping[str, int] | None) -> tuple[int | None, dict[str, int]]:
    """Return the limit of every group, and the limits of groups that have their own."""
    if isinstance(limits, Mapping):
        return None, _check_limit_by_group(limits)
    if limits is not None and not isinstance(limits, int):
        raise InvalidJobError(
            'group_limits must be a whole number, which limits every group, or a dict such as {"mail": 2}, '
            f"not {quoted(limits)}.",
            "group_limits",
        )
    return check_count(limits, "group_limits"), {}


def _check_group_rates(rates: Mapping[str, str] | None) -> Rates:
    """Return the rates of groups."""
    if rates is None:
        return NO_RATES
    if not isinstance(rates, Mapping):
        raise InvalidJobError(
            f'group_rates must be a dict such as {{"api": "100/m"}}, not {quoted(rates)}.', "group_rates"
        )
    for key in rates:
        _check_group_key(key, "group_rates")
    return Rates({key: parse_rate(rate, key) for key, rate in rates.items() if rate is not None})


def _check_group_key(key: str, what: str) -> None:
    check_limited(key, what)
    if is_ambiguous(key):
        say(WARNING, '%s[%s] limits a group whose name contains "/", not a group of one namespace', what, quoted(key))


def _check_limit_by_group(limits: Mapping[str, int]) -> dict[str, int]:
    checked: dict[str, int] = {}
    for key, limit in limits.items():
        _check_group_key(key, "group_limits")
        count = check_count(limit, "group_limits", key=f"[{quoted(key)}]")
        if count is not None:
            checked[key] = count
    return checked


def check_require_user(require_user: bool) -> bool:
    """Return *require_user* if it is True or False."""
    if not isinstance(require_user, bool):
        raise InvalidJobError(f"require_user must be True or False, not {quoted(require_user)}.", "require_user")
    return require_user


def choose_clock(clock: Clock | None, store: Store) -> Clock:
    """Return the clock to go by. If machines share a store that has a clock, it replaces that of the machine."""
    if clock is not None and not isinstance(clock, Clock):
        raise InvalidJobError(f"clock must be a VirtualClock() or another Clock, not {quoted(clock)}.", "clock")
    shared = store.clock if clock is None or type(clock) is SystemClock else None
    return shared or clock or SystemClock()


# ---------------------------------------------------------------- arguments of its methods


def check_quota(
    namespace: str, *, handlers: Iterable[str] | None, max_jobs: int | None, max_payload: int | None
) -> Quota:
    """Return the arguments of `Scheduler.namespace` as the limits of a tenant."""
    if handlers is not None and (isinstance(handlers, str | bytes) or not isinstance(handlers, Iterable)):
        raise InvalidJobError(
            f'handlers must be a list of names of handlers, such as ["send-mail"], or None, not {quoted(handlers)}.',
            "handlers",
        )
    return Quota(
        namespace=check_name(namespace, "namespace"),
        handlers=None if handlers is None else frozenset(check_name(name, "handlers") for name in handlers),
        max_jobs=check_count(max_jobs, "max_jobs"),
        max_payload=check_count(max_payload, "max_payload"),
    )


def check_specs(specs: Iterable[JobSpec]) -> list[JobSpec]:
    """Return the argument of `add_jobs` as a list."""
    if not isinstance(specs, Iterable):
        raise InvalidJobError(f"add_jobs() takes a list of JobSpec(...) values, not {quoted(specs)}.", "specs")
    checked: list[JobSpec] = []
    for spec in specs:
        if not isinstance(spec, JobSpec):
            raise InvalidJobError(f"add_jobs() takes JobSpec(...) values, not {quoted(spec)}.", "specs")
        checked.append(spec)
    return checked


def check_filter(
    *,
    status: Status | str | None,
    namespace: str | None,
    user_id: str | None,
    handler: str | None,
    group: str | None,
    priority: Priority | str | None,
    metadata: Mapping[str, Json] | None,
    due_before: datetime | str | None,
    ended: bool | None,
    limit: int | None,
) -> JobFilter:
    """Return the arguments of `list_jobs` as a store takes them."""
    texts = {"namespace": namespace, "user_id": user_id, "handler": handler, "group": group}
    for name, text in texts.items():
        if text is not None:
            check_text(text, name)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidJobError(f"metadata must be a dict of JSON values, not {quoted(metadata)}.", "metadata")
    if ended is not None and not isinstance(ended, bool):
        raise InvalidJobError(f"ended must be True, False or None, not {quoted(ended)}.", "ended")
    return JobFilter(
        status=None if status is None else check_choice(Status, status, "status"),
        namespace=namespace,
        user_id=user_id,
        handler=handler,
        group=group,
        priority=None if priority is None else check_choice(Priority, priority, "priority"),
        metadata=metadata,
        due_before=None if due_before is None else to_micros(parse_instant(due_before, "due_before")),
        ended=ended,
        limit=check_count(limit, "limit", smallest=0),
    )


def check_key(id: str, namespace: str) -> None:
    """Raise `InvalidJobError` unless a store can look for a job of this *id* and *namespace*."""
    check_text(id, "id")
    check_text(namespace, "namespace")


def check_text(value: object, what: str) -> None:
    """Raise `InvalidJobError` unless a store can look for *value*. It need not name anything that exists."""
    if not isinstance(value, str):
        raise InvalidJobError(f"The {what} must be a string, not {quoted(value)}.", what)
    if "\0" in value or not (value.isascii() or _is_unicode(value)):
        raise InvalidJobError(f"The {what} must be Unicode text without NUL characters, not {quoted(value)}.", what)


def end_of_pause(until: str | datetime | timedelta | None, now: Micros) -> Micros | None:
    """Return when a pause ends: *until* is an instant, or a duration from *now*."""
    if until is None:
        return None
    if isinstance(until, datetime) or (isinstance(until, str) and "-" in until[1:]):
        end = to_micros(parse_instant(until, "value of until"))
        if end <= now:
            raise InvalidJobError(
                f"until must be in the future, not {quoted(str(until))}. To resume the job now, call resume_job().",
                "until",
            )
        return end
    try:
        return min(now + span(parse_interval(until)), LAST)
    except IntervalParseError as error:
        raise InvalidJobError(
            f'until must be a duration such as "2h", or a time such as "2026-06-15T18:00:00Z", not {quoted(until)}.',
            "until",
        ) from error


def check_reason(reason: str) -> None:
    """Raise `InvalidJobError` unless *reason* can be the reason of a pause, of a disabled job or of a cancellation."""
    check_text(reason, "reason")
    if not reason.strip():
        raise InvalidJobError('The reason must not be empty. Say why, such as "the supplier is gone".', "reason")
    if len(reason) > LONGEST_REASON:
        raise InvalidJobError(
            f"The reason must have at most {LONGEST_REASON:,} characters, not {len(reason):,}. Shorten it.", "reason"
        )
    if reason == ENDED:  # the scheduler would treat the job as one whose schedule has ended
        raise InvalidJobError(f"The reason {quoted(reason)} is reserved for the scheduler. Use other words.", "reason")


def check_run_id(run_id: int, what: str = "run_id") -> None:
    """Raise `InvalidJobError` unless *run_id* can be the id of a run. *what* names the argument."""
    _check_id(run_id, what, "the id of a row of run_log()")


def check_backfill_number(number: int) -> None:
    """Raise `InvalidJobError` unless *number* can be the number of a backfill."""
    _check_id(number, "number", "the number of a backfill, as backfill_job() returns it")


def _check_id(number: int, what: str, meaning: str) -> None:
    if type(number) is not int or number not in RUN_IDS:
        raise InvalidJobError(
            f"{what} must be {meaning}, a whole number below {RUN_IDS.stop}, not {quoted(number)}.", what
        )


def check_stretch(since: datetime | str | None, until: datetime | str | None) -> tuple[Micros | None, Micros | None]:
    """Return the bounds of a stretch of time. None is no bound."""
    first = None if since is None else to_micros(parse_instant(since, "since"))
    last = None if until is None else to_micros(parse_instant(until, "until"))
    if first is not None and last is not None and first > last:
        raise InvalidJobError("since must not be later than until. Exchange them.", "since")
    return first, last


def check_count(number: int | None, name: str, smallest: int = 1, *, key: str = "") -> int | None:
    """Return *number* if it is a whole number from *smallest* up, or None."""
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number < smallest:
        raise InvalidJobError(f"{name}{key} must be a whole number from {smallest} up, or None.", name)
    return min(number, MANY)


def duration_or_none(value: str | timedelta | None) -> timedelta | None:
    """Return a duration such as "5m" as a timedelta, and None as None."""
    return None if value is None else parse_interval(value)


def check_timeout(timeout: float | str | timedelta | None) -> float | None:
    """Return *timeout* in seconds; None stands for no limit."""
    if isinstance(timeout, str | timedelta):
        timeout = parse_interval(timeout).total_seconds()
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout >= 0:
        raise InvalidJobError(
            'timeout must be a number of seconds from 0 up, a duration such as "30s", or None.', "timeout"
        )
    return timeout if timeout < FOREVER else None


def _is_unicode(value: str) -> bool:
    """Return whether *value* has no half characters (lone surrogates)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
