"""What can be seen of a scheduler from outside."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler_async import StoreError, StoreOutdatedError
from scheduler_async.engine.checkup import MOST_COUNTED, Checkup, StoreAnswer
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import MINUTE, SECOND
from tests.cast import DAY, NOON
from tests.engine.parts import NOON_MICROS, Parts


@pytest.fixture
def parts(clock: VirtualClock) -> Parts:
    parts = Parts(clock)
    parts.clock_watch.begin()
    return parts


@pytest.fixture
def checkup(parts: Parts) -> Checkup:
    claimer: Any = SimpleNamespace(terms=lambda limit: limit, room=lambda: 3, claimed_at=0.0)
    loop: Any = SimpleNamespace(looked_at=0.0, looks_again_by=60.0)
    return Checkup(parts.setting, parts.agenda, parts.clock_watch, parts.troubles, claimer, loop)


def test_a_scheduler_that_works_has_no_problem(checkup: Checkup) -> None:
    assert checkup.problem is None


def test_the_worst_problem_comes_first(checkup: Checkup, parts: Parts, clock: VirtualClock) -> None:
    problems = []
    parts.troubles.report("loop", StoreError("It is gone."))
    problems.append(checkup.problem)
    clock.set(NOON + 1000 * DAY)
    parts.clock_watch.read()
    problems.append(checkup.problem)
    parts.troubles.note_outdated(StoreOutdatedError("jobs.db", 9, 8))
    problems.append(checkup.problem)

    assert problems[0] == "It is gone."
    assert "the wall clock jumped" in str(problems[1])
    assert problems[2] == parts.troubles.outdated


async def test_the_signs_are_measured_in_seconds(checkup: Checkup, parts: Parts, clock: VirtualClock) -> None:
    parts.setting.progress.started_at = NOON_MICROS
    await clock.advance("90s")

    signs = checkup.signs(StoreAnswer(earliest_due=NOON_MICROS + MINUTE), is_alive=True)

    assert (signs.running_for, signs.overdue, signs.last_pass_age, signs.overslept) == (90, 30, 90, 30)
    assert (signs.has_room, signs.unclaimed_for) == (True, 90)


def test_of_a_store_that_does_not_answer_the_last_that_is_known_counts(checkup: Checkup, parts: Parts) -> None:
    parts.agenda.learn_of_moments([NOON_MICROS - 5 * SECOND])

    signs = checkup.signs(StoreAnswer(problem="It is gone."), is_alive=True)

    assert (signs.overdue, signs.store_problem) == (5, "It is gone.")


async def test_the_store_is_asked_whether_it_works_and_what_is_due(checkup: Checkup, parts: Parts) -> None:
    parts.store.answers["earliest_due"] = NOON_MICROS

    answer = await checkup.ask_store(timeout=10)

    assert answer == StoreAnswer(earliest_due=NOON_MICROS)
    assert parts.store.questions() == ["check", "earliest_due"]


@pytest.mark.parametrize(
    ("error", "problem"), [(StoreError("It is gone."), "It is gone."), (ValueError(), "ValueError")]
)
async def test_why_the_store_fails_is_the_answer(
    checkup: Checkup, parts: Parts, error: Exception, problem: str
) -> None:
    parts.store.answers["check"] = error

    assert await checkup.ask_store(timeout=10) == StoreAnswer(problem=problem)


async def test_a_store_that_does_not_answer_is_not_asked_again_before_it_has(
    checkup: Checkup, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, asked = asyncio.Event(), []

    async def check() -> None:
        asked.append("check")
        await go.wait()

    monkeypatch.setattr(parts.store, "check", check, raising=False)

    answers = [await checkup.ask_store(timeout=0.001) for _ in range(3)]
    go.set()
    await checkup.finish()

    assert {answer.problem for answer in answers} == {"The store did not answer within 0.001 s."}
    assert asked == ["check"]


async def test_jobs_that_are_due_are_counted_only_while_somebody_observes(
    checkup: Checkup, parts: Parts, clock: VirtualClock
) -> None:
    parts.store.answers["count_due"] = 4
    counting = asyncio.create_task(checkup.count_due(asyncio.Event()))
    await clock.advance("3s")
    asked = len(parts.store.asked)
    parts.setting.events.observers.clear()

    await clock.advance("1m")
    counting.cancel()

    assert checkup.due == 4
    assert asked == len(parts.store.asked) == 4
    assert parts.store.asked[0][1][1] == MOST_COUNTED
