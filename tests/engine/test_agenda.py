"""What the loop knows of the jobs that are due next, and what wakes it."""

from __future__ import annotations

from scheduler_async.engine.agenda import Agenda
from scheduler_async.stores.messages import Claims
from scheduler_async.timekeeping.instants import MINUTE
from tests.engine.parts import NOON_MICROS, new_job


def test_at_first_nothing_is_known_of_the_store() -> None:
    agenda = Agenda()

    assert agenda.is_stale
    assert agenda.next.at is None


def test_a_job_that_is_due_sooner_than_the_others_wakes_the_loop() -> None:
    agenda = Agenda()
    agenda.learn_of_moments([NOON_MICROS + MINUTE])
    agenda.changed.clear()

    agenda.learn_of_moments([NOON_MICROS, NOON_MICROS + MINUTE, NOON_MICROS])

    assert agenda.changed.is_set()
    assert (agenda.next.at, agenda.next.count) == (NOON_MICROS, 2)


def test_a_job_that_is_due_later_than_the_next_one_does_not_wake_the_loop() -> None:
    agenda = Agenda()
    agenda.learn_of_moments([NOON_MICROS])
    agenda.changed.clear()

    agenda.learn_of([new_job()])  # due in a minute
    agenda.learn_of_moments([])

    assert not agenda.changed.is_set()
    assert agenda.next.at == NOON_MICROS


def test_the_answer_to_a_claim_replaces_what_was_known() -> None:
    agenda = Agenda()
    agenda.learn_of_moments([NOON_MICROS])
    agenda.begin_claim()

    agenda.end_claim(Claims(next_due=NOON_MICROS + MINUTE, next_count=3, is_full=True), counted_all=True)

    assert (agenda.next.at, agenda.next.count, agenda.counted) == (NOON_MICROS + MINUTE, 3, NOON_MICROS + MINUTE)
    assert agenda.is_hungry


def test_what_is_learned_during_a_claim_is_kept_if_it_is_sooner() -> None:
    """The store may have answered before the job was added."""
    agenda = Agenda()
    agenda.begin_claim()
    agenda.learn_of_moments([NOON_MICROS])

    agenda.end_claim(Claims(next_due=NOON_MICROS + MINUTE, next_count=1), counted_all=False)

    assert agenda.next.at == NOON_MICROS
    assert agenda.counted is None


def test_a_change_of_another_process_without_a_moment_may_be_anything() -> None:
    agenda = Agenda()
    agenda.is_stale = False
    agenda.hear_of_change(NOON_MICROS, 1)
    is_stale_with_a_moment = agenda.is_stale

    agenda.hear_of_change(None, 0)

    assert (is_stale_with_a_moment, agenda.is_stale) == (False, True)
    assert agenda.next.at == NOON_MICROS
