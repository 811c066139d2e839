"""The records: checked when they are made, frozen, and readable."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import (
    Cron,
    Every,
    Explanation,
    IntervalParseError,
    InvalidJobError,
    JobSpec,
    Manual,
    Misfire,
    OnInterrupt,
    Outcome,
    PassSummary,
    Priority,
    Result,
    Retry,
    Run,
    SchedulerError,
    SkipReason,
    Status,
    Trigger,
)
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.job import JobState
from scheduler_async.jobs.json_forms import plain
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.run import Attempt, ClaimedRun
from scheduler_async.rules.edits import add
from scheduler_async.timekeeping.instants import to_micros

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_a_spec_keeps_what_it_was_given() -> None:
    spec = JobSpec(
        Every("5m"),
        handler="send-report",
        id="daily",
        namespace="my-extension",
        user_id="user-123",
        name="Daily report",
        payload={"to": ["ops", None, 1.5]},
        metadata={"team": "blue"},
        priority="high",
        group="mail",
        misfire="skip",
        retry=Retry.none(),
        timeout="30s",
        on_interrupt="skip",
        enabled=False,
        on_conflict="replace",
    )

    assert spec.schedule == Every("5m")
    assert spec.payload == {"to": ["ops", None, 1.5]}
    assert spec.metadata == {"team": "blue"}
    assert spec.priority is Priority.HIGH
    assert spec.misfire is Misfire.SKIP
    assert spec.timeout == timedelta(seconds=30)
    assert spec.on_interrupt is OnInterrupt.SKIP
    assert spec.with_enabled(True).enabled
    assert spec.with_handler("other").handler == "other"
    assert spec.with_schedule(Manual()).payload == spec.payload


def test_nobody_can_change_a_payload_behind_the_jobs_back() -> None:
    given = {"to": ["ops"]}
    spec = JobSpec(Every("5m"), handler="h", payload=given)

    given["to"].append("everybody")
    spec.payload["to"].append("everybody")

    assert spec.payload == {"to": ["ops"]}


@pytest.mark.parametrize("payload", [None, "text", 5, True, [], {}, ("a", 1), {"ä": "\U0001f600"}, 10**30])
def test_whatever_json_can_hold_is_a_payload(payload: Any) -> None:
    expected = list(payload) if isinstance(payload, tuple) else payload

    assert JobSpec(Every("5m"), handler="h", payload=payload).payload == expected


def circular() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def nested(depth: int) -> list[Any]:
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer]
    return outer


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        pytest.param("schedule", "every 5m", "schedule", id="a schedule as text"),
        pytest.param("schedule", None, "schedule", id="no schedule"),
        pytest.param("id", "", "non-empty string without leading or trailing whitespace", id="an empty id"),
        pytest.param("id", " a", "non-empty string without leading or trailing whitespace", id="a blank before"),
        pytest.param("id", "a\nb", "printable", id="a line break"),
        pytest.param("id", "x" * 201, "at most 200", id="too long an id"),
        pytest.param("id", 5, "must be a string", id="a number as id"),
        pytest.param("namespace", None, "must be a string", id="no namespace"),
        pytest.param("handler", "", "non-empty string without leading or trailing whitespace", id="an empty handler"),
        pytest.param("handler", None, "must be a string", id="no handler"),
        pytest.param("user_id", 7, "must be a string", id="a number as user"),
        pytest.param("name", "", "non-empty string without leading or trailing whitespace", id="an empty name"),
        pytest.param("group", [], "must be a string", id="a list as group"),
        pytest.param("payload", {"x": object()}, "JSON", id="an object"),
        pytest.param("payload", float("nan"), "JSON", id="not a number"),
        pytest.param("payload", {1: "a"}, "string keys", id="a number as key"),
        pytest.param("payload", [{"a": {2: 3}}], "string keys", id="a number as inner key"),
        pytest.param("payload", b"bytes", "JSON", id="bytes"),
        pytest.param("payload", {1, 2}, "JSON", id="a set"),
        pytest.param("payload", circular(), "JSON", id="a circle"),
        pytest.param("payload", nested(100_000), "JSON", id="very deep"),
        pytest.param("payload", "\ud800", "JSON", id="half a character"),
        pytest.param("metadata", ["a"], "dict", id="metadata as a list"),
        pytest.param("metadata", {"a": object()}, "JSON", id="metadata with an object"),
        pytest.param("priority", "urgent", "high, standard, low", id="an unknown priority"),
        pytest.param("priority", None, "high, standard, low", id="no priority"),
        pytest.param("priority", [], "high, standard, low", id="a list as priority"),
        pytest.param("misfire", "later", "run_once, skip", id="an unknown misfire policy"),
        pytest.param("on_interrupt", "panic", "rerun, skip", id="an unknown reaction"),
        pytest.param("on_conflict", "merge", "raise, replace, keep", id="an unknown conflict policy"),
        pytest.param("retry", 3, "Retry.backoff()", id="a number of retries"),
        pytest.param("enabled", "no", "True or False", id="a text as flag"),
    ],
)
def test_bad_input_is_refused_by_name(field: str, value: Any, words: str) -> None:
    """What is wrong with a job must show when it is added, not when it is due."""
    arguments: dict[str, Any] = {"schedule": Every("5m"), "handler": "h", field: value}

    with pytest.raises(InvalidJobError) as caught:
        JobSpec(**arguments)

    assert caught.value.field == field
    assert words in str(caught.value)
    assert field in str(caught.value)


def test_a_bad_timeout_is_refused() -> None:
    with pytest.raises(IntervalParseError):
        JobSpec(Every("5m"), handler="h", timeout="0s")


@pytest.mark.parametrize("grace", [timedelta(0), "0s", "0m", " 0H", plain(timedelta(0))], ids=repr)
def test_a_grace_may_be_zero(grace: Any) -> None:
    """As people write it, and as the JSON form of a job shows it."""
    assert JobSpec(Every("5m"), handler="h", misfire_grace=grace).misfire_grace == timedelta(0)


def test_an_id_may_have_200_characters() -> None:
    assert JobSpec(Every("5m"), handler="h", id="x" * 200).id == "x" * 200


def test_a_spec_takes_a_function_as_handler() -> None:
    async def send() -> None: ...

    assert JobSpec(Every("5m"), handler=send).handler is send


def test_a_job_shows_moments_as_datetimes() -> None:
    now = to_micros(NOON)
    job = add(JobSpec(Every("5m"), handler="h", id="a"), id="a", handler="h", now=now)

    assert job.next_run_at == NOON + timedelta(minutes=5)
    assert job.created_at == job.updated_at == NOON
    assert (job.last_run_at, job.last_success_at, job.last_error_at) == (None, None, None)
    assert (job.status, job.enabled, job.disabled_reason) == (Status.IDLE, True, None)
    assert (job.consecutive_errors, job.retry_count, job.last_exit_code) == (0, 0, None)
    assert (job.id, job.namespace, job.handler, job.key) == ("a", "default", "h", "default/a")
    assert (job.user_id, job.name, job.group, job.timeout, job.retry) == (None, None, None, None, None)
    assert (job.payload, job.metadata, job.priority) == (None, {}, Priority.STANDARD)
    assert (job.misfire, job.on_interrupt, job.last_error, job.last_message) == ("run_once", "rerun", None, None)
    assert repr(job) == "Job(id='a', namespace='default', handler='h')"
    with pytest.raises(AttributeError):
        job.id = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("phase", "activity", "status"),
    [
        (Phase.ACTIVE, Status.IDLE, "idle"),
        (Phase.ACTIVE, Status.QUEUED, "queued"),
        (Phase.ACTIVE, Status.RUNNING, "running"),
        (Phase.PAUSED, Status.IDLE, "paused"),
        (Phase.PAUSED, Status.RUNNING, "running"),
        (Phase.DISABLED, Status.IDLE, "disabled"),
    ],
)
def test_the_status_of_a_job(phase: Phase, activity: Status, status: str) -> None:

    job = add(JobSpec(Every("5m"), handler="h"), id="a", handler="h", now=0)

    assert replace(job, state=JobState(phase=phase, activity=activity)).status == status


def run_of(trigger: Trigger, attempt: int = 1, run_id: int = 1) -> Run:
    job = add(JobSpec(Cron("0 12 * * *"), handler="h", user_id="u"), id="a", handler="h", now=0)
    return Run(
        id=run_id,
        job=job,
        payload={},
        scheduled_for=NOON,
        fired_at=NOON + timedelta(milliseconds=1500),
        attempt=attempt,
        trigger=trigger,
        stopping=asyncio.Event(),
    )


def test_a_run_knows_its_job_and_how_late_it_is() -> None:
    run = run_of(Trigger.SCHEDULE)

    assert (run.job_id, run.namespace, run.user_id, run.delay_ms) == ("a", "default", "u", 1500.0)


def begun_like(run: Run) -> Run:
    """The same run, as the scheduler makes it: with what handlers seldom ask for left to be worked out."""
    attempt = Attempt(to_micros(run.scheduled_for), run.attempt, run.trigger, to_micros(run.scheduled_for))
    claimed = ClaimedRun.of(run.id, run.job, attempt, json.dumps(run.payload), run.job.state)
    return Run.begun(claimed, to_micros(run.fired_at), run.stopping)


def test_a_run_is_the_same_whether_all_of_it_was_given_or_is_worked_out() -> None:
    given = run_of(Trigger.RETRY, attempt=2)
    begun = begun_like(given)

    assert begun == given
    assert repr(begun_like(given)) == repr(given)
    assert begun.payload is begun.payload
    names = ("job_id", "namespace", "user_id", "delay_ms", "idempotency_key")
    assert [getattr(begun_like(given), name) for name in names] == [getattr(given, name) for name in names]
    assert copy.copy(begun_like(given)) == given


@runtime_checkable
class HasPayload(Protocol):
    payload: object
    scheduled_for: object


def test_what_is_worked_out_can_be_seen_by_those_who_look_for_it() -> None:
    """Protocols are looked up without asking, and debuggers show what `dir` tells."""
    run: Any = begun_like(run_of(Trigger.SCHEDULE))

    assert isinstance(run, HasPayload)
    assert {"job", "payload", "scheduled_for", "fired_at"} <= set(dir(run))
    assert dict(inspect.getmembers(begun_like(run_of(Trigger.SCHEDULE))))["payload"] == {}


def test_a_run_without_a_job_will_do_for_a_test() -> None:
    """Who tests a handler that asks for the payload alone need not make a job."""
    nothing: Any = None
    run = Run(
        id=1,
        job=nothing,
        payload={"to": "ops"},
        scheduled_for=NOON,
        fired_at=NOON,
        attempt=1,
        trigger=Trigger.MANUAL,
        stopping=asyncio.Event(),
    )

    assert run.payload == {"to": "ops"}


@pytest.mark.parametrize("make", [run_of, lambda trigger: begun_like(run_of(trigger))], ids=["given", "begun"])
def test_a_run_has_nothing_else_and_cannot_be_changed(make: Callable[[Trigger], Run]) -> None:
    run = make(Trigger.SCHEDULE)

    with pytest.raises(AttributeError, match="'Run' object has no attribute 'paylaod'"):
        run.paylaod  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(FrozenInstanceError):
        run.payload = 1  # type: ignore[misc]


@pytest.mark.parametrize("make", [run_of, lambda trigger: begun_like(run_of(trigger))], ids=["given", "begun"])
def test_a_run_keeps_what_is_written(make: Callable[[Trigger], Run]) -> None:
    run = make(Trigger.SCHEDULE)

    before = run.written
    run.write("one, ")
    run.write(b"two")

    assert (before, run.written) == (None, "one, two")


def test_all_attempts_at_an_occurrence_have_one_idempotency_key() -> None:
    assert run_of(Trigger.SCHEDULE).idempotency_key == "default/a@2026-01-05T12:00:00Z"
    assert run_of(Trigger.RETRY, attempt=2, run_id=2).idempotency_key == run_of(Trigger.SCHEDULE).idempotency_key
    assert run_of(Trigger.MANUAL).idempotency_key != run_of(Trigger.SCHEDULE).idempotency_key
    assert run_of(Trigger.MANUAL, run_id=2).idempotency_key != run_of(Trigger.MANUAL).idempotency_key


names = st.text(alphabet="a/%2F5", min_size=1, max_size=6)


@given(names, names, names, names)
@example("a", "b/c", "a/b", "c")
@example("a/b", "c", "a%2Fb", "c")
@example("a/b", "c", "a%2F/b", "c")
@example("a", "/b/c", "a/", "b/c")
def test_no_two_jobs_share_a_key(namespace: str, id: str, other_namespace: str, other_id: str) -> None:
    """Whoever uses it for idempotency must not take the work of one tenant for that of another."""
    one, other = (namespace, id), (other_namespace, other_id)

    assert (key_of(*one) == key_of(*other)) == (one == other)


@pytest.mark.parametrize(
    ("namespace", "id", "key"),
    [
        ("default", "a", "default/a"),
        ("50%", "a%2Fb", "50%/a%2Fb"),
        ("a", "b/c", "a/b/c"),
        ("a/b", "c", "/a%2Fb/c"),
        ("a/%", "c", "/a%2F%25/c"),
    ],
)
def test_only_a_namespace_with_a_slash_is_escaped_in_a_key(namespace: str, id: str, key: str) -> None:
    """Keys are in the databases of others: those of plain names stay what they were."""
    assert key_of(namespace, id) == key


@pytest.mark.parametrize(
    ("summary", "sentence"),
    [
        (
            PassSummary(executed=3, succeeded=2, failed=1, retry_queued=1),
            "3 tasks executed (2 success, 1 retry queued)",
        ),
        (PassSummary(executed=1, succeeded=1), "1 task executed (1 success)"),
        (PassSummary(executed=2, failed=2, retry_queued=1), "2 tasks executed (1 failed, 1 retry queued)"),
        (PassSummary(skipped=2), "0 tasks executed (2 skipped)"),
        (PassSummary(executed=2, succeeded=1, cancelled=1), "2 tasks executed (1 success, 1 cancelled)"),
        (PassSummary(), "Nothing was due"),
    ],
)
def test_a_pass_is_summed_up_in_a_sentence(summary: PassSummary, sentence: str) -> None:
    assert str(summary) == sentence


def test_a_result_checks_its_outcome() -> None:
    assert Result("noop", message="nothing new").outcome is Outcome.NOOP
    assert Result(Outcome.ERROR, exit_code=3).exit_code == 3
    assert Result().outcome is Outcome.SUCCESS
    with pytest.raises(SchedulerError, match="success, noop"):
        Result("fine")


def test_an_explanation_reads_as_its_sentence() -> None:
    assert str(Explanation(reason=SkipReason.PAUSED, until=None, sentence="It is paused.")) == "It is paused."
    advised = Explanation(reason=SkipReason.PAUSED, until=None, sentence="It is paused.", remedy="Resume it.")
    assert str(advised) == "It is paused. Resume it."


def test_priorities_have_an_order() -> None:
    assert sorted(Priority, key=lambda priority: priority.rank) == ["high", "standard", "low"]


@pytest.mark.parametrize(
    ("outcome", "is_failure"),
    [
        ("success", False),
        ("noop", False),
        ("skipped", False),
        ("error", True),
        ("timeout", True),
        ("cancelled", False),
        ("interrupted", True),
    ],
)
def test_which_outcomes_count_against_a_job(outcome: str, is_failure: bool) -> None:
    assert Outcome(outcome).is_failure is is_failure


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_jobs_and_descriptions_can_be_copied_and_sent(again: Callable[[Any], Any]) -> None:
    """They travel to other processes, and into the caches of programs."""
    spec = JobSpec(Every("1h"), handler="h", id="a", payload={"to": "ops"})
    job = add(spec, id="a", handler="h", now=5)

    assert (again(spec), again(job)) == (spec, job)


# ---------------------------------------------------------------- how deep JSON may be


def deep_json(levels: int) -> Any:
    value: Any = 'text with ]]] and {{{ and \\" in it'
    for level in range(levels):
        value = [value] if level % 2 else {"key]": value}
    return value


@pytest.mark.parametrize("field", ["payload", "metadata"])
@pytest.mark.parametrize("levels", [101, 300, 100_000])
def test_what_is_nested_more_than_a_hundred_levels_deep_is_refused(field: str, levels: int) -> None:
    """It could be stored, but a handler that is called from deep down could not read it."""
    fields: dict[str, Any] = {field: {"first": deep_json(levels - 1)}}

    with pytest.raises(InvalidJobError, match=f"{field} must be JSON nested at most 100 levels deep") as caught:
        JobSpec(Manual(), handler="h", **fields)

    assert caught.value.field == field


@pytest.mark.parametrize("field", ["payload", "metadata"])
def test_a_hundred_levels_are_not_too_deep(field: str) -> None:
    fields: dict[str, Any] = {field: {"first": deep_json(99), "wide": [[]] * 500, "text": "[" * 500}}

    assert getattr(JobSpec(Manual(), handler="h", **fields), field) == fields[field]
