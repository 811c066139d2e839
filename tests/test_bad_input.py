"""Bad input to every public call: refused by an error of our family, whatever the store, and nothing has changed.

The calls are found by their signatures, so that a new one is tested as soon as it is there.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple

import pytest

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    InvalidJobError,
    JobSpec,
    Manual,
    Result,
    Retry,
    Run,
    RunTimeoutError,
    Schedule,
    Scheduler,
    SchedulerError,
    SQLiteStore,
    StoreError,
    parse_schedule,
)
from scheduler_async.calls.namespace import Namespace
from scheduler_async.command import Command
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, NOON, PATIENCE, NewScheduler, Worker

pytestmark = pytest.mark.once  # the version of Python does not matter


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


DEEP = nested(100_000)

CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


class Word(StrEnum):
    """Strings that are not quite strings."""

    A = "a"


# What a store may stumble over if it gets that far.
FOR_STORES: dict[str, Any] = {
    "2**63": 2**63,
    "-2**63-1": -(2**63) - 1,
    "10**400": 10**400,
    "a text of an enum": Word.A,
    "NUL": "a\0b",
    "half a character": "\ud800",
    "a long text": "x" * 100_000,
    "a NUL as key": {"\0": 1},
    "a NUL as value": {"a": "\0"},
    "half a character as key": {"\ud800": 1},
    "half a character as value": {"a": "\ud800"},
    "a huge number as value": {"a": 10**400},
    "a number that is too long to write as value": {"a": 10**5000},
    "no number as value": {"a": math.nan},
    "100,000 levels as value": {"a": DEEP},
    "a circle as value": {"a": CIRCLE},
    "the first moment": datetime.min.replace(tzinfo=UTC),
    "the last moment": datetime.max.replace(tzinfo=UTC),
}
BAD: dict[str, Any] = {
    **FOR_STORES,
    "None": None,
    "True": True,
    "0": 0,
    "-1": -1,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1.5": 1.5,
    "a decimal": Decimal("NaN"),
    "nothing": "",
    "a blank": " ",
    "two lines": "a\nb",
    "a word": "nonsense",
    "no date": "2026-13-45T99:00:00Z",
    "bytes": b"a",
    "a list": ["a"],
    "a set": {1},
    "100,000 levels": DEEP,
    "a number as key": {1: 2},
    "an object": object(),
    "a class": int,
    "a function": print,
    "a schedule": Every("1h"),
    "a naive moment": datetime(2026, 1, 1),
    "before the calendar": datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    "after the calendar": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    "a date": date(2026, 1, 1),
    "the longest duration": timedelta.max,
    "the shortest duration": timedelta.min,
    "no duration": timedelta(0),
}

# Good values for parameters that have none by themselves.
GOOD: dict[str, Any] = {
    "id": "a",
    "handler": "work",
    "schedule": Manual(),
    "specs": [],
    "run_id": 1,
    "name": "n",
    "start": NOON,
    "end": NOON + HOUR,
    "number": 1,
    "since": NOON,
    "until": NOON + HOUR,
    "jobs": [],
}
# What keeps those that add jobs from leaving many.
ALSO = {"add_job": {"id": "a", "on_conflict": "replace"}, "schedule": {"id": "a"}}
# Those that wait for the end of a program, and so do not return.
NOT_CALLED = {"run_until_signal", "lifespan", "cleanup_ctx", "start"}


class Call(NamedTuple):
    """A public method, and the names of what it takes."""

    kind: type
    method: str
    given: dict[str, Any]
    parameters: list[str]

    def __str__(self) -> str:
        return f"{self.kind.__name__}.{self.method}"


def named(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


# What the methods with **keywords take.
FIELDS = [parameter.name for parameter in named(Scheduler.add_job)]
KEYWORDS = {
    "update_job": set(FIELDS) - {"on_conflict"},
    "schedule": set(FIELDS) - {"on_conflict", "namespace"},
    "job": set(FIELDS) - {"on_conflict"},
    "list": {parameter.name for parameter in named(Scheduler.list_jobs)} - {"namespace"},
}


def calls() -> Iterator[Call]:
    for kind in (Scheduler, Namespace):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if name.startswith("_") or name in NOT_CALLED:
                continue
            parameters = named(method)
            given = dict(ALSO.get(name, {}))
            for parameter in parameters:
                if parameter.default is parameter.empty:
                    assert parameter.name in GOOD, (
                        f"say in GOOD what {kind.__name__}.{name}() takes as {parameter.name}"
                    )
                    given[parameter.name] = GOOD[parameter.name]
            names = sorted({parameter.name for parameter in parameters} | KEYWORDS.get(name, set()))
            if kind is Namespace and "namespace" in names:  # no field of its jobs
                names.remove("namespace")
            if names:
                yield Call(kind, name, given, names)


async def work() -> None: ...


async def called(scheduler: Scheduler, call: Call, parameter: str, bad: object) -> None:
    """Call a method with one bad argument, and a decorator with a function."""
    target = scheduler if call.kind is Scheduler else scheduler.namespace("default")
    answer = getattr(target, call.method)(**{**call.given, parameter: bad})
    if inspect.isawaitable(answer):
        done = await answer
        if call.method == "trigger_job" and parameter != "anywhere":
            await scheduler.wait_for_run(done)
        elif call.method == "trigger_job" and (row := await scheduler.get_run(done)) and row.outcome is None:
            await scheduler.cancel_run(done)
    elif call.method in ("handler", "job") and answer is not bad:
        answer(work)


def fail_unless_ours(what: str, error: Exception) -> None:
    """A bad argument is answered in our words, and they are few; the store is not to blame."""
    if not isinstance(error, SchedulerError) or isinstance(error, StoreError) or len(str(error)) > 1_000:
        pytest.fail(f"{what} raises {type(error).__name__}: {str(error)[:200]}")


async def contents(scheduler: Scheduler) -> object:
    return await scheduler.list_jobs(), await scheduler.run_log(limit=None)


@pytest.mark.parametrize("call", list(calls()), ids=str)
async def test_bad_input_is_refused_and_changes_nothing(call: Call, new_scheduler: NewScheduler) -> None:
    """Unless it is a good value after all."""
    scheduler = new_scheduler(":memory:")
    before: object = None
    for parameter, (label, bad) in product(call.parameters, BAD.items()):
        if before is None:
            await scheduler.add_job(Manual(), handler="work", id="a", on_conflict="replace")
            before = await contents(scheduler)
        try:
            await called(scheduler, call, parameter, bad)
        except RunTimeoutError as error:  # a good timeout, which was too short
            await scheduler.wait_for_run(error.run_id)
            before = None
        except Exception as error:
            fail_unless_ours(f"{call}({parameter}={label})", error)
            assert await contents(scheduler) == before, f"{call}({parameter}={label})"
        else:
            before = None  # it may have changed something


@pytest.mark.parametrize("kind", [Scheduler, Namespace])
async def test_no_store_is_blamed_for_bad_input(kind: type, new_scheduler: NewScheduler, shared: str) -> None:
    """Each store has texts, numbers and moments that it cannot take."""
    scheduler = new_scheduler(shared)
    await scheduler.add_job(Manual(), handler="work", id="a")

    for call in calls():
        if call.kind is kind and call.method != "stop":
            for parameter, (label, bad) in product(call.parameters, FOR_STORES.items()):
                try:
                    await called(scheduler, call, parameter, bad)
                except Exception as error:
                    fail_unless_ours(f"{call}({parameter}={label})", error)


@pytest.mark.parametrize(
    "run_id", [2**63, -(2**63) - 1, 10**400, 10**5000], ids=["2**63", "-2**63-1", "10**400", "10**5000"]
)
async def test_a_number_beyond_all_runs_is_no_run(run_id: int, idle: Scheduler) -> None:
    for ask in (idle.get_run, idle.run_output, idle.wait_for_run):
        with pytest.raises(SchedulerError, match="run_id"):
            await ask(run_id)
    for possible in (2**31, 2**63 - 1, -(2**63)):
        assert await idle.get_run(possible) is None


@pytest.mark.parametrize(
    "timeout", [math.inf, 10**400, timedelta(days=3_000_000)], ids=["inf", "10**400", "8,000 years"]
)
async def test_a_timeout_may_be_longer_than_the_calendar(
    timeout: Any, scheduler: Scheduler, worker: Worker, clock: VirtualClock
) -> None:
    worker.takes = "1h"
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()

    assert (await scheduler.health(timeout=timeout)).ok
    await scheduler.stop(timeout=timeout)

    assert worker.runs
    assert worker.cancelled == 0


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        pytest.param("x" * 1_001, "at most 1,000 characters, not 1,001", id="too long"),
        pytest.param("", "must not be empty", id="empty"),
        pytest.param(" \n", "must not be empty", id="blank"),
        pytest.param(None, "reason must be a string, not None", id="None"),
        pytest.param(b"gone", "reason must be a string, not a value of type bytes", id="bytes"),
        pytest.param("a\0b", "without NUL characters", id="NUL"),
        pytest.param("\ud800", "must be Unicode text", id="half a character"),
        pytest.param("ended", "reserved", id="that of a job whose schedule has ended"),
    ],
)
async def test_a_bad_reason_is_refused(reason: Any, words: str, idle: Scheduler) -> None:
    """The job could not be resumed, or the reason would fill every table that shows it."""
    before = await idle.add_job(Every("1h"), handler="work", id="a")

    with pytest.raises(InvalidJobError, match=words) as caught:
        await idle.disable_job("a", reason=reason)

    assert caught.value.field == "reason"
    assert await idle.get_job("a") == before


@pytest.mark.parametrize("reason", ["x" * 1_000, "Räksmörgås\n€ \x1b", Word.A], ids=["long", "odd", "enum"])
async def test_a_reason_is_kept_as_it_is(reason: str, new_scheduler: NewScheduler, shared: str) -> None:
    scheduler = new_scheduler(shared)
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    job = await scheduler.disable_job("a", reason=reason)

    assert job.disabled_reason == reason
    assert (await scheduler.get_job("a")) == job
    assert (await scheduler.resume_job("a")).disabled_reason is None


BOTH_KEYS = '"mail" to limit the group "mail" in each namespace, or "*/mail" to limit it across all namespaces'


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        pytest.param({"*": 1}, ['The key "*"', "pass a number: group_limits=2", BOTH_KEYS], id="every group"),
        pytest.param(
            {"*/*": 1}, ['The key "*/*"', "pass a number: group_limits=2", BOTH_KEYS], id="every group of all"
        ),
        pytest.param({"*/": 1}, ['The key "*/"', "must continue with the name of a group", BOTH_KEYS], id="no group"),
        pytest.param({"": 1}, ['must be the name of a group, not ""', BOTH_KEYS], id="nothing"),
        pytest.param({" mail": 1}, ['must be the name of a group, not " mail"', "whitespace"], id="blanks"),
        pytest.param({"*/ mail": 1}, ['must be the name of a group, not "*/ mail"', "whitespace"], id="inner blanks"),
        pytest.param({"x" * 201: 1}, ["must be the name of a group", "1 to 200"], id="too long"),
        pytest.param({"a\0": 1}, ["must be the name of a group", "printable"], id="NUL"),
        pytest.param({7: 1}, ["must be the name of a group, not 7"], id="a number"),
        pytest.param({"mail": 0}, ['group_limits["mail"] must be a whole number from 1 up'], id="no room"),
        pytest.param({"mail": "2"}, ['group_limits["mail"] must be a whole number from 1 up'], id="text"),
        pytest.param(["mail"], ["whole number", 'a dict such as {"mail": 2}', "not a value of type list"], id="a list"),
        pytest.param(1.5, ["whole number", 'a dict such as {"mail": 2}', "not a value of type float"], id="a fraction"),
        pytest.param(0, ["group_limits must be a whole number from 1 up"], id="zero"),
    ],
)
def test_bad_limits_of_groups_are_refused_with_what_would_be_right(limits: Any, words: list[str]) -> None:
    """A limit that limits nothing would go unnoticed until it is needed."""
    with pytest.raises(InvalidJobError) as caught:
        Scheduler(":memory:", group_limits=limits)

    message = str(caught.value)
    assert [part for part in words if part not in message] == []
    assert "group_limits" in message
    assert "of a job" not in message
    assert caught.value.field == "group_limits"


def test_a_class_is_no_store() -> None:
    with pytest.raises(SchedulerError, match=r"not a class: pass SQLiteStore\(\.\.\.\)"):
        Scheduler(SQLiteStore)  # type: ignore[arg-type]


async def test_what_is_no_job_is_refused_before_the_rest_is_read(idle: Scheduler) -> None:
    """The rest may be endless."""

    def numbers() -> Iterator[Any]:
        yield 1
        raise AssertionError("it was asked for more")

    with pytest.raises(InvalidJobError, match="takes JobSpec"):
        await idle.add_jobs(numbers())


async def test_no_namespace_is_not_every_namespace(new_scheduler: NewScheduler, shared: str) -> None:
    """An empty name, as from a form, must not show a tenant the runs of others."""
    scheduler = new_scheduler(shared)
    for namespace in ("default", "other"):
        await scheduler.add_job(Manual(), handler="work", id="a", namespace=namespace)
        await scheduler.wait_for_run(await scheduler.trigger_job("a", namespace=namespace))

    assert await scheduler.run_log(namespace="") == []
    assert await scheduler.run_log("a", namespace="") == []
    assert await scheduler.list_jobs(namespace="") == []
    assert len(await scheduler.run_log("a")) == 1
    assert len(await scheduler.run_log()) == 2


@pytest.mark.parametrize("in_task", [False, True], ids=["its handler", "a task of its handler"])
async def test_a_run_cannot_wait_for_itself(scheduler: Scheduler, clock: VirtualClock, in_task: bool) -> None:
    """It would wait forever."""
    told: list[str] = []

    @scheduler.handler("waits")
    async def waits(run: Run) -> None:
        async with asyncio.timeout(1):
            try:
                waiting = scheduler.wait_for_run(run.id)
                await (asyncio.create_task(waiting) if in_task else waiting)
            except SchedulerError as error:
                told.append(str(error))

    await scheduler.add_job(Manual(), handler="waits", id="a")
    number = await scheduler.trigger_job("a")
    await asyncio.wait_for(scheduler.wait_for_run(number), PATIENCE)

    assert told == [f"Run {number} cannot wait for itself to end. Call wait_for_run() outside of its handler."]


MADE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Every": (Every, {"interval": "5m"}),
    "Delay": (Delay, {"interval": "5m"}),
    "Cron": (Cron, {"expression": "0 9 * * *"}),
    "At": (At, {"at": NOON}),
    "parse_schedule": (parse_schedule, {"text": "@daily"}),
    "Schedule.from_json": (Schedule.from_json, {}),
    "Retry": (Retry, {"kind": Retry.none().kind}),
    "Retry.backoff": (Retry.backoff, {}),
    "Retry.in_window": (Retry.in_window, {}),
    "Retry.budget": (Retry.budget, {}),
    "JobSpec": (JobSpec, {"schedule": Manual(), "handler": "work"}),
    "Result": (Result, {}),
    "Command": (Command, {"line": "ls"}),
    "Scheduler": (Scheduler, {"store": ":memory:"}),
    "VirtualClock": (VirtualClock, {}),
    "VirtualClock.set": (VirtualClock().set, {}),
    **{
        f"{type(schedule).__name__}().{question}": (getattr(schedule, question), {})
        for schedule in (Every("5m"), Every("5m", NOON), Delay("5m"), Cron("0 9 * * *"), At(NOON), Manual())
        for question in ("next_after", "previous", "describe")
    },
}


@pytest.mark.parametrize("name", MADE)
def test_values_are_not_made_of_bad_input(name: str) -> None:
    make, given = MADE[name]
    for parameter, (label, bad) in product(named(make), BAD.items()):
        try:
            make(**{**given, parameter.name: bad})
        except Exception as error:
            fail_unless_ours(f"{name}({parameter.name}={label})", error)


PARTS = (
    "version",
    "kind",
    "interval",
    "expression",
    "tz",
    "at",
    "jitter",
    "start",
    "end",
    "anchor",
    "immediately",
    "x",
)


@pytest.mark.parametrize(
    "schedule", [Every("5m"), Delay("5m"), Cron("0 9 * * *"), At(NOON), Manual()], ids=lambda one: one.kind
)
def test_a_schedule_is_not_read_from_bad_parts(schedule: Schedule) -> None:
    for part, (label, bad) in product(PARTS, BAD.items()):
        try:
            Schedule.from_json({**schedule.to_json(), part: bad})
        except Exception as error:
            fail_unless_ours(f"{part}={label}", error)
