"""What an ending does to the job that waits for it, and cycles."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import After, Every, InvalidScheduleError, Job, Outcome, Retry, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.run import Attempt, Ending
from scheduler_async.rules.claiming import claim, ran_before, unclaim
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.finishing import after_run
from scheduler_async.rules.successors import Name, after_ending, check_cycles, predecessor_of
from scheduler_async.rules.terms import Transition
from scheduler_async.timekeeping.instants import HOUR, MINUTE, SECOND, Micros
from tests.rules.stories import CANCELLED, ERROR, GIVE_UP, INTERRUPTED, NOON, RULES, SUCCESS, Story, a_job

EXTRACT: Name = ("default", "extract")


def ended(job: Job, at: Micros = NOON, outcome: Outcome = Outcome.SUCCESS, name: Name = EXTRACT) -> Transition | None:
    return after_ending(job, name, outcome, at, RULES)


def woken(job: Job, at: Micros = NOON) -> Job:
    change = ended(job, at)
    assert change is not None
    return change.job


# ---------------------------------------------------------------- which endings count


def test_the_predecessor_is_in_the_same_namespace_unless_it_is_given() -> None:
    assert predecessor_of(a_job(After("extract"))) == ("default", "extract")
    assert predecessor_of(a_job(After("extract"), namespace="tenant")) == ("tenant", "extract")
    assert predecessor_of(a_job(After("extract", namespace="other"), namespace="tenant")) == ("other", "extract")
    assert predecessor_of(a_job(Every("1m"))) is None


@pytest.mark.parametrize("outcome", Outcome)
def test_an_outcome_counts_as_success_failure_or_neither(outcome: Outcome) -> None:
    counted = {
        wanted for wanted in ("success", "failure", "any") if ended(a_job(After("extract", wanted)), outcome=outcome)
    }

    expected = {
        Outcome.SUCCESS: {"success", "any"},
        Outcome.NOOP: {"success", "any"},
        Outcome.SKIPPED: {"any"},
        Outcome.CANCELLED: {"any"},
        Outcome.ERROR: {"failure", "any"},
        Outcome.TIMEOUT: {"failure", "any"},
        Outcome.INTERRUPTED: {"failure", "any"},
    }
    assert counted == expected[outcome]


def test_runs_of_other_jobs_do_not_count() -> None:
    assert ended(a_job(After("extract")), name=("other", "extract")) is None
    assert ended(a_job(After("extract")), name=("default", "load")) is None
    assert ended(a_job(Every("1m"))) is None


# ---------------------------------------------------------------- what they do


def test_the_first_ending_makes_it_due_and_others_change_nothing() -> None:
    job = a_job(After("extract", delay="5m"))

    first = woken(job, NOON)
    again = woken(first, NOON + MINUTE)

    assert first.state.next_run_at == NOON + 5 * MINUTE
    assert again == first


def test_an_ending_during_its_run_makes_it_due_again() -> None:
    job = claim(woken(a_job(After("extract"))), NOON, RULES).job

    during = woken(job, NOON + SECOND)

    assert (during.state.next_run_at, during.state.activity) == (NOON + SECOND, Status.QUEUED)
    run = Attempt(NOON, 1, claim(woken(a_job(After("extract"))), NOON, RULES).attempt.trigger, NOON)  # type: ignore[union-attr]
    assert after_run(during, run, SUCCESS, NOON + MINUTE, RULES).state.next_run_at == NOON + SECOND
    assert after_run(job, run, SUCCESS, NOON + MINUTE, RULES).state.next_run_at is None


@pytest.mark.parametrize("misfire", ["run_once", "skip", "run_all"])
@pytest.mark.parametrize("retry", [None, Retry.in_window(1)])
def test_an_ending_during_a_long_run_causes_one_more_run_which_is_not_late(misfire: str, retry: Retry | None) -> None:
    """It waited for the run, and not for a scheduler."""
    story = Story(After("extract"), misfire=misfire, retry=retry)
    story.job = woken(story.job)
    run = story.start_at(NOON)
    assert run is not None
    story.job = woken(story.job, NOON + MINUTE)
    story.end_at(NOON + HOUR, run, SUCCESS if retry is None else ERROR)

    again = story.pass_at(NOON + HOUR + 1)

    assert again is not None
    assert (again.scheduled_for, again.trigger) == (NOON + MINUTE, Trigger.SCHEDULE)
    assert story.skips == []
    assert story.job.state.next_run_at is None


@pytest.mark.parametrize("misfire", ["run_once", "skip", "run_all"])
def test_a_late_successor_follows_its_misfire_policy(misfire: str) -> None:
    taken = claim(woken(a_job(After("extract"), misfire=misfire)), NOON + 10 * MINUTE, RULES)

    skipped = [(skip.reason, skip.scheduled_for, skip.missed) for skip in taken.skips]
    if misfire == "skip":
        assert (taken.attempt, skipped) == (None, [(SkipReason.MISFIRE, NOON, 1)])
    else:
        assert taken.attempt is not None
        assert (taken.attempt.scheduled_for, skipped) == (NOON, [])
    assert taken.state.next_run_at is None
    assert taken.state.phase is Phase.ACTIVE


def test_a_claim_that_is_undone_leaves_one_occurrence_although_another_run_has_ended() -> None:
    waiting = woken(a_job(After("extract")))
    taken = claim(waiting, NOON, RULES)
    assert taken.attempt is not None

    freed, _ = unclaim(woken(taken.job, NOON + SECOND), taken.job, waiting.state, taken.attempt)

    assert (freed.state.next_run_at, freed.skips) == (NOON, ())


def test_it_ends_after_so_many_runs_and_further_endings_leave_no_rows() -> None:
    story = Story(After("extract"), max_runs=1)
    story.job = woken(story.job)
    story.pass_at(NOON)

    assert story.job.ended
    assert ended(story.job, NOON + MINUTE) is None


# ---------------------------------------------------------------- cycles

NAMES = [("n", name) for name in "abcdefg"]


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(NAMES)), st.sampled_from(NAMES))
def test_a_cycle_is_refused_if_and_only_if_there_is_one(links: dict[Name, Name], changed: Name) -> None:
    seen = []
    at: Name | None = changed
    while at is not None and at not in seen:
        seen.append(at)
        at = links.get(at)

    if at is None:
        check_cycles(links, [changed])
    else:
        with pytest.raises(InvalidScheduleError, match="cycle") as caught:
            check_cycles(links, [changed])
        *shown, last = str(caught.value).partition("cycle: ")[2].partition(".")[0].split(" → ")
        assert shown[0] == last
        assert {("n", name) for name in shown} == set(seen[seen.index(at) :])
        assert all(
            links["n", later] == ("n", earlier) for earlier, later in zip(shown, [*shown[1:], last], strict=True)
        )


# ---------------------------------------------------------------- accounting

ENDINGS = [SUCCESS, SUCCESS, ERROR, INTERRUPTED, CANCELLED, GIVE_UP]
RETRIES = [None, Retry.in_window(1, delay="3m"), Retry.budget(3, "10m"), Retry.none(), Retry.backoff(["70s"])]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            ["ending", "ending", "ending", "start", "start", "end", "trigger", "pause", "resume", "disable"]
        ),
        st.sampled_from([0, 1, 30, 60, 61, 150, 300]),
        st.sampled_from(ENDINGS),
    ),
    max_size=25,
)


@given(
    deeds=DEEDS,
    delay=st.sampled_from([None, "1m", "4m"]),
    retry=st.sampled_from(RETRIES),
    misfire=st.sampled_from(["run_once", "skip", "run_all"]),
    overlap=st.sampled_from(["skip", "queue"]),
)
def test_each_ending_is_followed_by_a_run_or_has_a_row(
    deeds: list[tuple[str, int, Ending]], delay: str | None, retry: Retry | None, misfire: str, overlap: str
) -> None:
    """Whatever is done to the successor: a run claimed after the ending, a row, or it still waits for its run."""
    story = Story(After("extract", delay=delay), retry=retry, misfire=misfire, overlap=overlap)
    wait = {None: 0, "1m": MINUTE, "4m": 4 * MINUTE}[delay]
    now, run = NOON, None
    open_endings: list[Micros] = []
    for deed, seconds, ending in deeds:
        now += seconds * SECOND
        state = story.job.state
        is_due = state.phase is Phase.ACTIVE and state.next_run_at is not None and state.next_run_at <= now
        rows = len(story.skips)
        if deed == "ending":
            change = ended(story.job, now)
            if change is not None:
                story.change(change)
                if len(story.skips) == rows:
                    open_endings.append(now + wait)
        elif deed == "start" and run is None and is_due:
            run = story.start_at(now)
            if run is not None or len(story.skips) > rows:
                open_endings.clear()  # they have become one
        elif deed == "trigger" and run is None:
            run = story.trigger_at(now)
        elif deed == "end" and run is not None:
            story.end_at(now, run, ending)
            run = None
        elif deed == "pause":
            story.change(pause(story.job, now))
        elif deed == "disable":
            story.change(disable(story.job, "enough", now))
        elif deed == "resume":
            story.change(resume(story.job, now))
        if len(story.skips) > rows and deed != "ending":
            open_endings.clear()
        state = story.job.state
        assert (state.activity is Status.IDLE) == (run is None)
        owed = [at for at in (state.next_run_at, state.regular_at) if at is not None]
        if open_endings:
            assert owed, (deed, state)
            assert min(owed) <= max(open_endings) + 40 * MINUTE  # a policy may put it off
        if state.phase is Phase.DISABLED and run is None:
            assert not owed
    attempts = [(run.scheduled_for, run.attempt) for _, run in story.runs]
    assert len(attempts) == len(set(attempts))
    assert all(skip.missed == 1 for skip in story.skips)


@given(st.lists(st.tuples(st.sampled_from(["ending", "start", "end"]), st.integers(0, 1)), max_size=30))
def test_no_time_is_used_twice_however_fast_runs_follow_each_other(steps: list[tuple[str, int]]) -> None:
    story, now, run = Story(After("extract")), NOON, None
    for step, later in steps:
        now += later
        if step == "ending":
            story.job = woken(story.job, now)
        elif step == "start" and run is None and (at := story.job.state.next_run_at) is not None and at <= now:
            run = story.start_at(now)
        elif step == "end" and run is not None:
            story.end_at(now, run)
            run = None

    times = [run.scheduled_for for _, run in story.runs]
    repeated = len(times) - len(set(times))
    assert repeated <= sum(one == other for one, other in pairwise(times))  # stores move these, see below


def test_a_time_that_was_used_all_the_same_moves_by_a_microsecond() -> None:
    """A store finds the row of the earlier run, and the job is due at the next microsecond."""
    job = woken(a_job(After("extract")))

    assert ran_before(job, job.state, NOON, NOON).next_run_at == NOON + 1
    assert ran_before(job, replace(job.state, next_run_at=NOON - 5), NOON, NOON).next_run_at == NOON + 1
