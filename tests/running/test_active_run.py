"""Where a run of this process stands, and the steps that it may take."""

from __future__ import annotations

import asyncio
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_async.running.active_run import ActiveRun, IllegalStepError, Interference, Stage
from tests.cast import PATIENCE

CLAIMED_AT, BEGAN_AT = 1_000, 2_000

STEPS = {
    (Stage.CLAIMED, Stage.STARTING),
    (Stage.CLAIMED, Stage.ENDED),  # its handler was removed
    (Stage.HELD, Stage.STARTING),
    (Stage.HELD, Stage.ENDED),  # it was put back
    (Stage.STARTING, Stage.RUNNING),
    (Stage.STARTING, Stage.ENDED),  # it was cancelled before it began
    (Stage.RUNNING, Stage.ENDED),
    (Stage.ENDED, Stage.OVER),
}


def active_run(stage: Stage = Stage.CLAIMED) -> ActiveRun:
    claimed: Any = SimpleNamespace(id=7, claimed_at=CLAIMED_AT)
    return ActiveRun(claimed, stage)


@pytest.mark.parametrize(("before", "after"), sorted(STEPS))
def test_a_run_goes_on_step_by_step(before: Stage, after: Stage) -> None:
    active = active_run(before)

    active.step(after)

    assert active.stage is after


@pytest.mark.parametrize(("before", "after"), sorted({*product(Stage, Stage)} - STEPS))
def test_a_step_that_no_run_can_take_is_refused(before: Stage, after: Stage) -> None:
    """The run stays where it is, and the error says where that is."""
    active = active_run(before)

    with pytest.raises(IllegalStepError, match=f"Run 7 cannot get from {before.name} to {after.name}") as caught:
        active.step(after)

    assert active.stage is before
    assert (caught.value.run_id, caught.value.before, caught.value.after) == (7, before, after)


def test_a_run_that_never_began_is_recorded_as_of_its_claim() -> None:
    begun, unbegun = active_run(Stage.STARTING), active_run(Stage.STARTING)

    begun.begin(cast(Any, None), BEGAN_AT)
    unbegun.step(Stage.ENDED)

    assert (begun.has_begun, begun.has_ended, begun.began_at) == (True, False, BEGAN_AT)
    assert (unbegun.has_begun, unbegun.has_ended, unbegun.began_at) == (False, True, None)


REASONS = list(Interference)


@pytest.mark.parametrize(("one", "other"), [*product(REASONS, REASONS)])
def test_of_two_reasons_to_end_a_run_the_stronger_one_counts(one: Interference, other: Interference) -> None:
    """A run that is not ours any more stays so, even if it takes too long to end, or the scheduler stops."""
    active = active_run()

    active.interfere(one)
    active.interfere(other)

    assert active.interference is max(one, other)
    assert active.is_disowned is (Interference.DISOWNED in (one, other))


def test_an_exception_is_let_go_of_when_the_ending_is_committed() -> None:
    """Callers may hold the run for long, and an exception holds the variables of a whole program."""
    active = ActiveRun(active_run().claimed, Stage.ENDED, error=ValueError("no"))

    active.settle()

    kept: object = active.error
    assert kept is None


async def test_callers_wait_for_the_beginning_and_for_the_end() -> None:
    active = active_run(Stage.STARTING)
    beginning, ending = asyncio.create_task(active.begun_or_over()), asyncio.create_task(active.over())
    await asyncio.sleep(0)

    active.begin(cast(Any, None), BEGAN_AT)
    async with asyncio.timeout(PATIENCE):
        await beginning
    has_ended_early = ending.done()
    active.step(Stage.ENDED)
    active.settle()
    async with asyncio.timeout(PATIENCE):
        await ending

    assert not has_ended_early


async def test_a_caller_does_not_wait_for_the_beginning_of_a_run_that_is_over() -> None:
    active = active_run(Stage.STARTING)
    beginning = asyncio.create_task(active.begun_or_over())
    await asyncio.sleep(0)

    active.step(Stage.ENDED)
    active.settle()

    async with asyncio.timeout(PATIENCE):
        await beginning
