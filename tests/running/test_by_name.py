"""Handlers whose parameters are filled from the payload by name, and functions that are given to jobs directly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from typing import Any, Protocol

import pytest

from scheduler_async import (
    At,
    Every,
    InvalidJobError,
    Job,
    JobExistsError,
    JobNotFoundError,
    JobSpec,
    Manual,
    Outcome,
    PayloadError,
    QuotaError,
    Run,
    Scheduler,
    StoreError,
    current_run,
)
from scheduler_async.running.handlers import Handlers
from scheduler_async.running.signature import Arguments
from scheduler_async.testing import VirtualClock
from tests.cast import NOON


@dataclass
class Report:
    to: str
    copies: int = 1


THE_RUN = "the run"


def called(function: Callable[..., Any], payload: object) -> Any:
    """What *function* returns for a run with this payload; the run itself is shown as a word."""
    run = Run.__new__(Run)
    run.__dict__.update(payload=payload)
    answer = Arguments.of(function).call(function, run)
    return tuple(THE_RUN if one is run else one for one in answer)


def send(channel: int, text: str = "hello", *, when: datetime | None = None) -> Any:
    return channel, text, when


def with_run(run: Run, channel: int) -> Any:
    return run, channel


def run_by_annotation(channel: int, *, this: Run | None = None) -> Any:
    return channel, this


def untyped(channel, text):  # type: ignore[no-untyped-def]
    return channel, text


def positional_only(channel: int, other=None, /, text: str = "x") -> Any:  # type: ignore[no-untyped-def]
    return channel, other, text


def nested(report: Report, urgent: bool) -> Any:
    return report, urgent


def two_reports(first: Report, second: Report) -> Any:
    return first, second


def with_rest(channel: int, **rest: Any) -> Any:
    return channel, rest


def run_and_rest(run: Run, **rest: Any) -> Any:
    return run, rest


def run_and_defaults(run: Run, limit: int = 10, session: VirtualClock | None = None) -> Any:
    return run, limit, session


def only_defaults(limit: int = 10) -> Any:
    return (limit,)


def one(text):  # type: ignore[no-untyped-def]
    return (text,)


def one_of_two(channel, text="d"):  # type: ignore[no-untyped-def]
    return channel, text


def one_and_rest(channel, **rest):  # type: ignore[no-untyped-def]
    return channel, rest


def one_and_session(channel: Any, session: VirtualClock | None = None) -> Any:
    return channel, session


class HasPayload(Protocol):
    payload: Any


def like_a_run(source: HasPayload, text: str = "d") -> Any:
    return source, text


def just_payload(payload):  # type: ignore[no-untyped-def]
    return (payload,)


def one_typed(text: str) -> Any:
    return (text,)


def run_and_payload(run, payload):  # type: ignore[no-untyped-def]
    return run, payload


def whole(report: Report, session: object = None) -> Any:
    return report, session


def named_payload(payload: dict[str, Any]) -> Any:
    return (payload,)


def nothing() -> Any:
    return ()


@wraps(send)
def decorated(*args: Any, **kwargs: Any) -> Any:
    return send(*args, **kwargs)


class Sender:
    def send(self, channel: int) -> Any:
        return (channel,)

    def __call__(self, channel: int) -> Any:
        return (channel,)


NINE = datetime.fromisoformat("2026-06-15T09:00:00+00:00")


@pytest.mark.parametrize(
    ("function", "payload", "arguments"),
    [
        (send, {"channel": 7}, (7, "hello", None)),
        (send, {"text": "hi", "channel": 7, "when": "2026-06-15T09:00:00Z"}, (7, "hi", NINE)),
        (decorated, {"channel": 7}, (7, "hello", None)),
        (partial(send, text="bound"), {"channel": 7}, (7, "bound", None)),
        (partial(send, 7), {"text": "hi"}, (7, "hi", None)),
        (Sender().send, {"channel": 7}, (7,)),
        (Sender(), {"channel": 7}, (7,)),
        (with_run, {"channel": 7}, (THE_RUN, 7)),
        (run_by_annotation, {"channel": 7}, (7, THE_RUN)),
        (untyped, {"channel": "any", "text": [1]}, ("any", [1])),
        (positional_only, {"channel": 7}, (7, None, "x")),
        (positional_only, {"channel": 7, "other": 8, "text": "y"}, (7, 8, "y")),
        (nested, {"report": {"to": "ops"}, "urgent": True}, (Report("ops"), True)),
        (two_reports, {"first": {"to": "a"}, "second": {"to": "b"}}, (Report("a"), Report("b"))),
        (with_rest, {"channel": 7, "a": 1, "b-c": 2}, (7, {"a": 1, "b-c": 2})),
        (run_and_rest, {"a": 1}, (THE_RUN, {"a": 1})),
        (run_and_rest, {"run": 1}, (THE_RUN, {})),
        (run_and_defaults, {"limit": 3, "note": "for the run"}, (THE_RUN, 3, None)),
        (run_and_defaults, {"session": 1}, (THE_RUN, 10, None)),
        (run_and_defaults, [1], (THE_RUN, 10, None)),
        (only_defaults, None, (10,)),
        (only_defaults, {"limit": 3}, (3,)),
        (one, {"text": "hi"}, ("hi",)),
        (one, {"text": "hi", "more": 1}, ("hi",)),
        (one, {"more": 1}, (THE_RUN,)),
        (one, "text", (THE_RUN,)),
        (one_of_two, {"channel": 3, "text": "t"}, (3, "t")),
        (one_of_two, {"channel": 3, "more": 1}, (3, "d")),
        (one_of_two, {"text": "t"}, (THE_RUN, "t")),
        (one_of_two, None, (THE_RUN, "d")),
        (one_and_rest, {"channel": 3, "more": 1}, (3, {"more": 1})),
        (one_and_rest, {"more": 1}, (THE_RUN, {"more": 1})),
        (one_and_session, {"channel": 3, "session": 1}, (3, None)),
        (one_and_session, {"session": 1}, (THE_RUN, None)),
        (like_a_run, {"source": 3, "text": "t"}, (THE_RUN, "t")),
        (just_payload, {"payload": 1, "a": 2}, ({"payload": 1, "a": 2},)),
        (just_payload, None, (None,)),
        (one, None, (THE_RUN,)),
        (one_typed, {"text": "hi"}, ("hi",)),
        (run_and_payload, {"a": 1}, (THE_RUN, {"a": 1})),
        (whole, {"to": "ops"}, (Report("ops"), None)),
        (named_payload, {"a": 1}, ({"a": 1},)),
        (nothing, {"a": 1}, ()),
    ],
)
def test_parameters_are_filled_from_the_payload(
    function: Callable[..., Any], payload: object, arguments: tuple[Any, ...]
) -> None:
    assert called(function, payload) == arguments


@pytest.mark.parametrize(
    ("function", "payload", "problem"),
    [
        (send, None, "payload.channel is missing"),
        (send, {"text": "hi"}, "payload.channel is missing"),
        (
            send,
            {"channel": 7, "chanel": 8},
            'unknown key "chanel"; the handler takes the keys channel, text, when',
        ),
        (send, {"channel": "7"}, 'payload.channel must be a whole number, not "7"'),
        (send, {"channel": True}, "payload.channel must be a whole number, not true"),
        (send, {"channel": 7, "when": "soon"}, "payload.when must be a datetime"),
        (send, [7], 'payload must be a dict with the key "channel", not a value of type list'),
        (send, "7", 'payload must be a dict with the key "channel", not "7"'),
        (with_run, {"channel": 7, "run": 1}, 'payload has an unknown key "run"'),
        (nested, {"report": {"too": "ops"}, "urgent": True}, "payload.report.to is missing"),
        (with_rest, {}, "payload.channel is missing"),
        (only_defaults, {"limits": 3}, 'payload has an unknown key "limits"'),
        (run_and_defaults, {"limit": "many"}, "payload.limit must be a whole number"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused(function: Callable[..., Any], payload: object, problem: str) -> None:
    with pytest.raises(PayloadError) as caught:
        called(function, payload)
    assert problem in caught.value.problem

    with pytest.raises(PayloadError):
        Arguments.of(function).check(payload)


def test_a_type_that_json_does_not_know_is_refused_when_it_is_registered() -> None:
    async def handle(channel: int, clock: VirtualClock) -> None: ...

    with pytest.raises(InvalidJobError, match='has a parameter "clock" whose type JSON cannot represent') as caught:
        Scheduler(":memory:").handler(handle)
    assert caught.value.field == "handler"


async def test_a_running_scheduler_refuses_what_does_not_fit(scheduler: Scheduler) -> None:
    @scheduler.handler("send")
    async def handle(channel: int, text: str) -> None: ...

    with pytest.raises(InvalidJobError, match=r"payload\.text is missing"):
        await scheduler.add_job(Manual(), handler="send", id="a", payload={"channel": 7})
    await scheduler.add_job(Manual(), handler="send", id="a", payload={"channel": 7, "text": "x"})
    with pytest.raises(InvalidJobError, match="unknown key"):
        await scheduler.update_job("a", payload={"channel": 7, "text": "x", "more": 1})
    with pytest.raises(InvalidJobError, match="must be a whole number"):
        await scheduler.trigger_job("a", payload={"channel": "7", "text": "x"})

    assert [job.payload for job in await scheduler.list_jobs()] == [{"channel": 7, "text": "x"}]


async def test_otherwise_it_is_an_error_of_the_run(scheduler: Scheduler, clock: VirtualClock) -> None:
    """The job came before its handler."""
    await scheduler.add_job(At(NOON), handler="send", id="a", payload={"channel": "x"})

    @scheduler.handler("send")
    async def handle(channel: int) -> None: ...

    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert row.outcome is Outcome.ERROR
    assert "payload.channel must be a whole number" in str(row.error)


async def test_a_declared_job_is_checked_when_it_is_declared() -> None:
    scheduler = Scheduler(":memory:")

    with pytest.raises(PayloadError, match=r"payload\.channel is missing"):

        @scheduler.job(Every("1h"))
        async def announce(channel: int) -> None: ...


# ---------------------------------------------------------------- functions given directly


async def test_a_function_is_registered_under_its_name(scheduler: Scheduler, clock: VirtualClock) -> None:
    calls: list[object] = []

    async def greet(name: str) -> None:
        calls.append((name, current_run().job.handler))

    def farewell(run: Run) -> None:
        calls.append(run.payload)

    job = await scheduler.add_job(At(NOON), handler=greet, id="a", payload={"name": "Anna"})
    await scheduler.add_jobs([JobSpec(At(NOON), handler=farewell, id="b", payload=1)])
    await scheduler.namespace("tenant").schedule(At(NOON), handler=greet, id="c", payload={"name": "Bo"})
    await clock.advance()

    assert job.handler == "greet"
    assert sorted(calls, key=str) == [("Anna", "greet"), ("Bo", "greet"), 1]


async def test_a_method_is_a_function_too(scheduler: Scheduler) -> None:
    class Mailer:
        async def post(self) -> None: ...

    mailer = Mailer()

    first = await scheduler.add_job(Manual(), handler=mailer.post)
    second = await scheduler.add_job(Manual(), handler=mailer.post)

    assert (first.handler, second.handler) == ("post", "post")


async def test_an_edit_registers_a_function_too(scheduler: Scheduler) -> None:
    async def greet() -> None: ...

    await scheduler.add_job(Manual(), handler="work", id="a")

    assert (await scheduler.update_job("a", handler=greet)).handler == "greet"
    await scheduler.wait_for_run(await scheduler.trigger_job("a"))


async def test_jobs_that_wait_for_the_function_start(scheduler: Scheduler, clock: VirtualClock) -> None:
    calls: list[str] = []

    async def greet() -> None:
        calls.append("hello")

    await scheduler.add_job(At(NOON), handler="greet", id="waits")
    await clock.advance("1s")
    await scheduler.add_job(Manual(), handler=greet, id="other")
    await clock.advance()

    assert calls == ["hello"]


class Named:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: None, "A lambda has no"),
        (partial(send), "A partial has no"),
        (Named(), "A Named has no"),
    ],
    ids=["a lambda", "a partial", "an object"],
)
async def test_a_function_without_a_name_is_refused(
    scheduler: Scheduler, function: Callable[..., Any], what: str
) -> None:
    """After a restart, no job would find it again."""
    with pytest.raises(InvalidJobError, match=what) as caught:
        await scheduler.add_job(Manual(), handler=function, id="a")

    assert 'scheduler.handler("send")(function)' in str(caught.value)
    assert await scheduler.list_jobs() == []


async def test_a_name_stands_for_one_function(scheduler: Scheduler) -> None:
    def make() -> Callable[..., Any]:
        async def greet() -> None: ...

        return greet

    first = make()
    await scheduler.add_job(Manual(), handler=first, id="a")

    with pytest.raises(InvalidJobError, match='Handler "greet" already exists'):
        await scheduler.add_job(Manual(), handler=make(), id="b")
    await scheduler.add_job(Manual(), handler=first, id="c")
    assert [job.id for job in await scheduler.list_jobs()] == ["a", "c"]


async def test_a_job_that_is_refused_registers_nothing(scheduler: Scheduler) -> None:
    async def greet(name: str) -> None: ...

    await scheduler.add_job(Manual(), handler="work", id="taken")

    with pytest.raises(PayloadError):
        await scheduler.add_job(Manual(), handler=greet, payload={"nam": "x"})
    with pytest.raises(JobExistsError):
        await scheduler.add_job(Manual(), handler=greet, id="taken", payload={"name": "x"})
    with pytest.raises(JobNotFoundError):
        await scheduler.update_job("missing", handler=greet)
    tenant = scheduler.namespace("tenant", max_jobs=1)
    await tenant.add_job(Manual(), handler="work", id="only")
    with pytest.raises(QuotaError):
        await tenant.add_job(Manual(), handler=greet, payload={"name": "x"})

    scheduler.handler("greet")(nothing)  # the name is still free


async def test_a_refused_job_leaves_the_function_of_another(scheduler: Scheduler) -> None:
    async def greet() -> None: ...

    await scheduler.add_job(Manual(), handler="work", id="taken")

    refused, added = await asyncio.gather(
        scheduler.add_job(Manual(), handler=greet, id="taken"),
        scheduler.add_job(Manual(), handler=greet, id="a"),
        return_exceptions=True,
    )

    assert isinstance(refused, JobExistsError)
    assert isinstance(added, Job)
    await scheduler.wait_for_run(await scheduler.trigger_job("a"))


@pytest.mark.parametrize("error", [StoreError("no answer"), asyncio.CancelledError()], ids=repr)
def test_a_call_without_an_answer_keeps_the_function(error: BaseException) -> None:
    """The store may have added the job all the same."""
    handlers = Handlers(VirtualClock(NOON))

    def call() -> None:
        with handlers.forgotten_on_error() as used:
            handlers.register_for(used, nothing)
            raise error

    with pytest.raises(type(error)):
        call()

    assert handlers.has("nothing")
