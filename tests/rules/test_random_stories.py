"""All rules together, in random stories: each occurrence runs once or has its row once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Job, Manual, Retry, Schedule, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.run import Attempt, Ending, Skip
from scheduler_async.rules.claiming import claim_manually
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.finishing import after_run
from scheduler_async.timekeeping.instants import DAY, MINUTE, SECOND, Micros, from_micros
from tests.rules.stories import (
    CANCELLED,
    ERROR,
    GIVE_UP,
    INTERRUPTED,
    NOON,
    RULES,
    SUCCESS,
    Story,
    changed,
    occurrences,
)

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "fail", "crash", "cancel", "pause", "resume", "edit", "trigger"]),
        st.integers(0, 400),
        st.integers(0, 90),
    ),
    max_size=25,
)


@given(
    actions=ACTIONS,
    schedule=st.sampled_from([Every("30s"), Cron("* * * * *", tz="UTC"), Delay("20s"), Every("50s", jitter="10%")]),
    retry=st.sampled_from([None, Retry.in_window(2), Retry.budget(3, "5m"), Retry.none()]),
    misfire=st.sampled_from(["run_once", "skip"]),
)
def test_whatever_happens_the_rules_hold(
    actions: Iterable[tuple[str, int, int]], schedule: Schedule, retry: Retry | None, misfire: str
) -> None:
    """No attempt is made twice, no occurrence runs twice, and every active job has a next run."""
    story = Story(schedule, retry=retry, misfire=misfire)
    endings = {"pass": SUCCESS, "fail": ERROR, "crash": INTERRUPTED, "cancel": CANCELLED}
    now = NOON
    for action, wait, takes in actions:
        now += wait * SECOND
        ran = False
        if action in endings:
            ran = story.pass_at(now, endings[action], takes=takes * SECOND) is not None
            now += takes * SECOND
        elif action == "pause":
            story.job = replace(story.job, state=pause(story.job, now).state)
        elif action == "resume":
            story.job = replace(story.job, state=resume(story.job, now).state)
        elif action == "edit":
            story.job = changed(story.job, now, schedule=schedule if wait % 2 else Every("45s"))
        else:
            taken = claim_manually(story.job, now)
            assert taken.attempt is not None
            running = replace(story.job, state=taken.state)
            story.job = replace(story.job, state=after_run(running, taken.attempt, ERROR, now, RULES).state)

        state = story.job.state
        assert state.activity is Status.IDLE
        assert (state.next_run_at is None) == (state.phase is Phase.DISABLED)
        assert state.next_run_at is None or state.phase is Phase.PAUSED or state.next_run_at >= story.job.created
        if ran and state.phase is Phase.ACTIVE:
            assert state.next_run_at is not None
            assert state.next_run_at >= now
    attempts = [(run.scheduled_for, run.attempt) for _, run in story.runs]
    assert len(attempts) == len(set(attempts))
    assert all(at >= run.scheduled_for for at, run in story.runs)
    assert all(skip.missed > 0 for skip in story.skips)


MEDDLING = st.lists(
    st.tuples(
        st.sampled_from(["pause", "resume", "disable", "edit", "edit", "edit and disable"]),
        st.integers(1, 300),
        st.sampled_from(
            [
                Every("1m"),
                Every("40s", jitter="35s"),
                Every("1m", end=from_micros(NOON + 20 * MINUTE)),
                Cron("* * * * *", tz="UTC"),
                Cron("* * * * *", tz="UTC", jitter="1m"),
                Delay("50s"),
                At(from_micros(NOON + 8 * MINUTE)),
                Manual(),
            ]
        ),
    ),
    max_size=8,
)


@given(
    start=st.sampled_from(["by its schedule", "late", "by hand", "by hand while paused", "by hand while disabled"]),
    meddling=MEDDLING,
    takes=st.integers(1, 300),
    ending=st.sampled_from([SUCCESS, ERROR, INTERRUPTED, CANCELLED, GIVE_UP]),
    retry=st.sampled_from([None, Retry.in_window(1, delay="3m"), Retry.budget(3, "10m"), Retry.none()]),
)
def test_whatever_is_done_to_a_job_while_it_runs_each_occurrence_has_its_row_once(
    start: str, meddling: Iterable[tuple[str, int, Schedule]], takes: int, ending: Ending, retry: Retry | None
) -> None:
    """Each schedule accounts for the time during which it was in force, and for no other."""
    story = Story(Every("1m"), retry=retry)
    now = NOON + (3 if start == "late" else 1) * MINUTE
    if start.startswith("by hand"):
        now -= 30 * SECOND
        if start != "by hand":
            story.change((pause if "paused" in start else partial(disable, reason="enough"))(story.job, now=now))
        run: Attempt | None = story.trigger_at(now + 1)
    else:
        run = story.start_at(now)
    assert run is not None
    story.skips.clear()
    began = run.claimed_at
    was_away: list[tuple[Micros, Micros]] = []

    def pass_time(seconds: int) -> None:
        nonlocal now
        if story.job.state.phase is not Phase.ACTIVE:
            was_away.append((now, now + seconds * SECOND))
        now += seconds * SECOND

    def settle(job: Job, rows: Iterable[Skip], until: Micros) -> None:
        """Compare *rows* with the occurrences of *job* from its anchor until *until*."""
        if isinstance(job.schedule, At | Delay):
            return  # which is owed still, and leaves a row whenever it is disabled or edited
        in_force = [at for at in occurrences(job, until) if at > max(began, job.anchor)]
        assert all(skip.reason in MEANWHILE for skip in rows)
        told = [at for skip in rows for at in expanded(skip, occurrences(job, now + DAY))]
        assert len(told) == len(set(told)), "a row too many"
        assert all(at in in_force for at in told), "a row of another time"
        left = [at for at in in_force if at not in told and not any(a < at <= b for a, b in was_away)]
        assert not left, "a row too few"

    for action, wait, schedule in meddling:
        pass_time(wait)
        if action == "pause":
            story.change(pause(story.job, now))
        elif action == "disable":
            story.change(disable(story.job, "enough", now))
        elif action == "resume" and story.job.state.disabled_reason != ENDED:
            story.change(resume(story.job, now))
        elif action.startswith("edit") and schedule != story.job.schedule:
            before = story.job
            story.reschedule(schedule, now, **({"enabled": False} if "disable" in action else {}))
            settle(before, story.skips, now)
            story.skips.clear()
    pass_time(takes)
    was_edited = story.job.anchor > NOON
    story.end_at(now, run, ending)

    settle(story.job, story.skips, now)
    state = story.job.state
    assert state.activity is Status.IDLE
    if state.phase is Phase.DISABLED:
        assert (state.next_run_at, state.regular_at) == (None, None)
        return
    assert was_edited <= (state.retry_of is None)
    assert (state.regular_at is not None) <= (state.consecutive_errors > 0 or ending is CANCELLED)
    if not isinstance(story.job.schedule, At | Delay | Manual):
        owed_from = state.next_run_at if state.regular_at is None else state.regular_at
        assert owed_from == occurrences(story.job, now + DAY)[len(occurrences(story.job, now))]


MEANWHILE = (SkipReason.ALREADY_RUNNING, SkipReason.INTERRUPTED)


def expanded(skip: Skip, moments: list[Micros]) -> list[Micros]:
    """Return the occurrences among *moments* that a row stands for."""
    first = moments.index(skip.scheduled_for)
    return moments[first : first + skip.missed]


JITTERED = [
    Every("1m", jitter="50s"),
    Every("1m", jitter="10h"),  # as late as it can be: a microsecond before the next
    Every("20s", jitter="10%", start=from_micros(NOON + 70 * SECOND), end=from_micros(NOON + 40 * MINUTE)),
    Every("1m", anchor=from_micros(NOON + 90 * SECOND), jitter="30s"),
    Cron("*/2 * * * *", tz="UTC", jitter="2m"),
    Cron("10,15,50 * * * * *", tz="UTC", jitter="20s"),
    At(from_micros(NOON + 5 * MINUTE), jitter="3m"),
    Every("1m"),
]


def covered(story: Story, moments: list[Micros]) -> list[tuple[Micros, SkipReason | None]]:
    """Return each of *moments* that ran, without a reason, or that a row stands for, with its reason."""
    ran = [run.scheduled_for for _, run in story.runs if run.attempt == 1 and run.trigger is not Trigger.MANUAL]
    found: list[tuple[Micros, SkipReason | None]] = [(at, None) for at in ran if at in moments]
    for skip in story.skips:
        is_regular = skip.scheduled_for in moments  # or the moment to which a failure had put a run off
        first = bisect_left(moments, skip.scheduled_for)
        found += [(at, skip.reason) for at in moments[first : first + skip.missed - (not is_regular)]]
    return found


@given(
    schedule=st.sampled_from(JITTERED),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["pass", "pass", "fail", "crash", "cancel", "trigger"]),
            st.sampled_from([0, 0, 1]).flatmap(lambda late: st.integers(0, 400 * late)),
            st.integers(0, 150),
        ),
        max_size=25,
    ),
    retry=st.sampled_from([None, Retry.in_window(2), Retry.budget(3, "5m"), Retry.none(), Retry.backoff(["70s"])]),
    misfire=st.sampled_from(["run_once", "skip"]),
)
def test_with_jitter_every_occurrence_is_run_or_accounted_for_once(
    schedule: Schedule, steps: Iterable[tuple[str, int, int]], retry: Retry | None, misfire: str
) -> None:
    """An occurrence belongs to its jittered time: a run passes over it only if that time came during the run."""
    story = Story(schedule, retry=retry, misfire=misfire)
    endings = {"pass": SUCCESS, "fail": ERROR, "crash": INTERRUPTED, "cancel": CANCELLED}
    spans: list[tuple[Micros, Micros]] = []
    now = NOON
    for action, late, takes in steps:
        following = story.job.state.next_run_at
        if following is None:
            break
        if action == "trigger":
            now += late * SECOND
            run: Attempt | None = story.trigger_at(now)
        else:
            now = max(now, following) + late * SECOND
            run = story.start_at(now)
        if run is not None:
            spans.append((now, now + takes * SECOND))
            now += takes * SECOND
            story.end_at(now, run, endings.get(action, SUCCESS))

    moments = occurrences(story.job, now + DAY)
    found = covered(story, moments)
    state = story.job.state
    owed_from = state.regular_at if state.retry_of is not None or state.regular_at is not None else state.next_run_at
    if owed_from is None:
        owed_from = moments[-1] + 1 if not state.disabled_reason or state.disabled_reason == ENDED else now + 1
    assert sorted(at for at, _ in found) == [at for at in moments if at < owed_from]
    for at, reason in found:
        if reason is SkipReason.ALREADY_RUNNING:
            assert any(start <= at <= end for start, end in spans)
    for _, attempt in story.runs:
        assert attempt.attempt > 1 or attempt.scheduled_for in moments or retry is None or retry.kind == "backoff"
