"""Edits that callers make at the same time leave what the same edits leave one after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler_async import (
    At,
    Every,
    Job,
    JobAlreadyRunningError,
    JobExistsError,
    JobNotFoundError,
    JobSpec,
    Manual,
    OnConflict,
    QuotaError,
    Scheduler,
    SchedulerError,
    Status,
)
from scheduler_async.rules.claim_ahead import ClaimAhead
from scheduler_async.testing import VirtualClock
from tests.cast import NOON, NewScheduler, Worker
from tests.postgres_server import url_of_schema

Call = Callable[[Scheduler], Awaitable[object]]

TENANT = "tenant"
# How many jobs the tenant may have: fewer than the calls ask for.
QUOTA = 3


def spec(id: str, namespace: str = "default", on_conflict: str = "raise") -> JobSpec:
    return JobSpec(
        Every("5m"), handler="work", id=id, namespace=namespace, payload={"id": id}, on_conflict=OnConflict(on_conflict)
    )


def calls_of(dice: random.Random, count: int) -> list[Call]:
    """Return calls about a few jobs. Many of them are refused: the job exists, does not exist, is disabled, or …"""

    def one() -> Call:
        name, other = dice.choice("abcdef"), dice.choice("abcdef")
        conflict = dice.choice(["raise", "raise", "keep", "replace"])
        reason = f"reason {dice.randrange(100)}"
        kinds: list[Call] = [
            lambda s: s.add_jobs([spec(name, on_conflict=conflict)]),
            lambda s: s.add_jobs([spec(name), spec(other)]),
            lambda s: s.add_jobs([spec(f"{name}{other}"), spec(other, on_conflict=conflict)]),
            lambda s: s.namespace(TENANT, max_jobs=QUOTA).add_job(Every("1h"), handler="work", id=name),
            lambda s: s.add_job(
                At("2020-01-01T00:00:00Z"), handler="work", id=name, misfire="skip", on_conflict=conflict
            ),
            lambda s: s.pause_job(name, reason=reason),
            lambda s: s.resume_job(name),
            lambda s: s.disable_job(name, reason=reason),
        ]
        return dice.choice(kinds)

    return [one() for _ in range(count)]


def answer_of(answer: object) -> object:
    """Return what a caller learns, without what differs between two stores."""
    if isinstance(answer, SchedulerError):
        return type(answer), str(answer)
    if isinstance(answer, list):
        return [answer_of(part) for part in answer]
    assert isinstance(answer, Job), answer
    return answer.to_json()


async def left_in(scheduler: Scheduler) -> tuple[object, ...]:
    jobs = [job.to_json() for job in await scheduler.list_jobs()]
    changes = [row.to_json() for row in await scheduler.changes(limit=10_000)]
    skipped = [(row.job_id, row.scheduled_for, row.reason, row.missed) for row in await scheduler.run_log(limit=1000)]
    return jobs, changes, sorted(map(str, skipped))


def store_for(kind: str, tmp_path: Path, name: str) -> str:
    if kind == "postgres":
        return url_of_schema(f"{tmp_path}-{name}")
    return ":memory:" if kind == "memory" else str(tmp_path / f"{name}.db")


@pytest.mark.parametrize("kind", ["memory", "file", pytest.param("postgres", marks=pytest.mark.once)])
@pytest.mark.parametrize("seed", range(6))
async def test_edits_at_once_leave_what_edits_in_turn_leave(
    kind: str, seed: int, tmp_path: Path, clock: VirtualClock, new_scheduler: NewScheduler
) -> None:
    """One that is refused affects no other, `add_jobs` adds all or none, a quota holds, and the order is kept."""
    calls = calls_of(random.Random(seed), 60)
    together, in_turn = (new_scheduler(store_for(kind, tmp_path, name)) for name in ("together", "in-turn"))
    for scheduler in (together, in_turn):
        await scheduler.add_job(Manual(), handler="work", id="a")

    answers = await asyncio.gather(*(call(together) for call in calls), return_exceptions=True)

    others = [(await asyncio.gather(call(in_turn), return_exceptions=True))[0] for call in calls]
    assert list(map(answer_of, answers)) == list(map(answer_of, others))
    assert await left_in(together) == await left_in(in_turn)
    refused = {type(answer) for answer in answers if isinstance(answer, BaseException)}
    assert {JobExistsError, JobNotFoundError} <= refused, "the calls must be worth the test"
    assert len(await together.list_jobs(namespace=TENANT)) <= QUOTA


async def test_a_quota_holds_for_jobs_that_are_added_at_once(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    tenant = scheduler.namespace(TENANT, max_jobs=QUOTA)

    answers = await asyncio.gather(
        *(tenant.add_job(Every("1h"), handler="work", id=f"job-{number}") for number in range(10)),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers] == [Job] * QUOTA + [QuotaError] * 7


async def test_updates_at_once_are_all_made(every_store: str, new_scheduler: NewScheduler) -> None:
    """Each of them reads the job first, and starts over if it has changed meanwhile."""
    scheduler = new_scheduler(every_store)
    await scheduler.add_jobs([spec("a"), spec("b")])
    fields: list[dict[str, object]] = [{"name": "new"}, {"group": "mail"}, {"user_id": "u1"}, {"payload": {"n": 1}}]

    calls = [scheduler.update_job(name, **change) for change in fields for name in ("a", "b", "nowhere")]  # type: ignore[arg-type]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Job, Job, JobNotFoundError] * len(fields)
    for job in await scheduler.list_jobs():
        assert (job.name, job.group, job.user_id, job.payload) == ("new", "mail", "u1", {"n": 1})


@pytest.mark.parametrize("limit", [None, 2])
async def test_jobs_triggered_at_once_run_once_each(
    every_store: str, new_scheduler: NewScheduler, worker: Worker, limit: int | None
) -> None:
    """Each job has one run at a time, and no more run at once than may."""
    worker.blocks = True
    scheduler = new_scheduler(every_store, max_concurrent=limit)
    await scheduler.start()
    await scheduler.add_jobs([JobSpec(Manual(), handler="work", id=name) for name in "abcde"])

    answers = await asyncio.gather(*(scheduler.trigger_job(name) for name in "abcdeabcdex"), return_exceptions=True)

    assert sorted({type(answer).__name__ for answer in answers[:5]}) == ["int"]
    assert [type(answer) for answer in answers[5:10]] == [JobAlreadyRunningError] * 5
    assert isinstance(answers[10], JobNotFoundError)
    assert len(set(answers[:5])) == 5
    assert scheduler.state().running == (limit or 5)
    assert scheduler.state().running + scheduler.state().queued == 5
    worker.go.set()


async def test_edits_at_once_put_back_what_was_claimed_ahead(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each edit finds its job idle. What is not paused runs once."""

    def learn(learner: ClaimAhead, _took: float, _count: int) -> None:
        learner._took, learner._took_each = 0.01, 0.1  # on a virtual clock, a claim takes no time

    monkeypatch.setattr(ClaimAhead, "learn", learn)
    scheduler = new_scheduler(every_store)
    await scheduler.start()
    ids = [f"job-{number}" for number in range(70)]
    await scheduler.add_job(At(NOON.replace(second=1)), handler="work", id="first")
    await scheduler.add_jobs([JobSpec(At(NOON.replace(minute=1)), handler="work", id=name) for name in ids])
    await clock.advance(timedelta(seconds=59.9))
    assert len(scheduler._engine.session.launcher.waiting) == len(ids)

    updates = [scheduler.update_job(name, name=name) for name in ids]
    updated = await asyncio.gather(*updates, *(scheduler.pause_job(name) for name in ids[:5]))
    await clock.advance("10s")

    assert {job.status for job in updated} <= {Status.IDLE, Status.PAUSED}
    rows = await scheduler.run_log(limit=None)
    assert sorted(row.job_id for row in rows if row.outcome == "success") == sorted([*ids[5:], "first"])
