"""All rules together, in random stories: each occurrence runs once or has its row once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from scheduler_async import At, Cron, Delay, Every, Job, Manual, Retry, Schedule, SkipReason, Status, Trigger
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.run import Attempt, Ending
from scheduler_async.rules.claiming import CLAIMED_FIELDS, claim_manually
from scheduler_async.rules.edits import disable, pause, resume
from scheduler_async.rules.finishing import after_run
from scheduler_async.stores.decisions import resumed_by_itself
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

POLICIES = st.fixed_dictionaries(
    {
        "misfire": st.sampled_from(["run_once", "skip", "run_all"]),
        "overlap": st.sampled_from(["skip", "queue"]),
        "misfire_grace": st.sampled_from([None, "0s", "2m"]),
        "catch_up_limit": st.sampled_from([1, 2, 100]),
        "catch_up_window": st.sampled_from([None, None, "100s"]),
        "max_runs": st.sampled_from([None, None, None, 3]),
    }
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
    policy=POLICIES,
)
def test_whatever_happens_the_rules_hold(
    actions: Iterable[tuple[str, int, int]], schedule: Schedule, retry: Retry | None, policy: Any
) -> None:
    """No attempt is made twice, no occurrence runs twice, and every active job has a next run."""
    story = Story(schedule, retry=retry, **policy)
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
        elif action == "resume" and not story.job.ended:
            story.job = replace(story.job, state=resume(story.job, now).state)
        elif action == "edit":
            story.job = changed(story.job, now, schedule=schedule if wait % 2 else Every("45s"))
        elif action == "trigger":
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
            assert state.next_run_at >= now or state.owed_until is not None
    attempts = [(run.scheduled_for, run.attempt) for _, run in story.runs]
    assert len(attempts) == len(set(attempts))
    assert all(at >= run.scheduled_for for at, run in story.runs)
    assert all(skip.missed > 0 for skip in story.skips)
    assert story.job.state.occurrences_run <= (policy["max_runs"] or 0)


GRIDS = [
    Every("1m"),
    Every("40s", jitter="35s"),
    Every("1m", end=from_micros(NOON + 20 * MINUTE)),
    Cron("* * * * *", tz="UTC"),
    Cron("* * * * *", tz="UTC", jitter="1m"),
]
OTHERS = [Delay("50s"), At(from_micros(NOON + 8 * MINUTE)), Manual()]
ENDINGS = [SUCCESS, SUCCESS, ERROR, INTERRUPTED, CANCELLED, GIVE_UP]
RETRIES = [None, Retry.in_window(1, delay="3m"), Retry.budget(3, "10m"), Retry.none(), Retry.backoff(["70s"])]
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "start",
                "start",
                "end",
                "end",
                "trigger",
                "pause",
                "pause for a while",
                "resume",
                "resume",
                "disable",
                "edit",
                "edit, disabled",
            ]
        ),
        st.sampled_from([0, 1, 30, 60, 61, 150, 300]),
        st.sampled_from(GRIDS + OTHERS),
        st.sampled_from(ENDINGS),
    ),
    max_size=20,
)


class Ledger:
    """What becomes of each occurrence of a job, schedule by schedule."""

    def __init__(self, story: Story) -> None:
        self.story, self.now = story, NOON
        self.run: Attempt | None = None
        self.runs: list[tuple[Micros, Micros]] = []
        """When a run was in progress."""
        self.away: list[tuple[Micros, Micros]] = []
        """When the job was paused or disabled."""

    def wait(self, seconds: int) -> None:
        later = self.now + seconds * SECOND
        if self.run is not None:
            self.runs.append((self.now, later))
        state = self.story.job.state
        until = later if state.paused_until is None else min(later, state.paused_until)
        if state.phase is not Phase.ACTIVE:
            self.away.append((self.now, until))
        if until == state.paused_until:  # which may be noticed only later
            self.story.change(resumed_by_itself(self.story.job, later))
        self.now = later

    def do(self, deed: str, schedule: Schedule, ending: Ending) -> None:
        story, now, state = self.story, self.now, self.story.job.state
        is_idle, at = self.run is None, state.next_run_at
        if deed == "start" and is_idle and state.phase is Phase.ACTIVE and at is not None and at <= now:
            self.run = story.start_at(now)
            was, is_now = asdict(state), asdict(story.job.state)
            changed_fields = {name for name, value in is_now.items() if value != was[name]}
            assert self.run is None or changed_fields <= set(CLAIMED_FIELDS), "a store would not write them"
        elif deed == "trigger" and is_idle:
            self.run = story.trigger_at(now)
        elif deed == "end" and self.run is not None:
            story.end_at(now, self.run, ending)
            self.run = None
        elif deed == "pause":
            story.change(pause(story.job, now))
        elif deed == "pause for a while":
            story.change(pause(story.job, now, until=now + 2 * MINUTE))
        elif deed == "disable":
            story.change(disable(story.job, "enough", now))
        elif deed == "resume" and state.disabled_reason != ENDED:
            story.change(resume(story.job, now))
        elif deed.startswith("edit") and schedule != story.job.schedule:
            before = story.job
            story.reschedule(schedule, now, **({"enabled": False} if "disabled" in deed else {}))
            self.check(before, now + 1)
            story.skips.clear()
            story.runs.clear()

    def check(self, job: Job, owed_from: Micros) -> None:
        """Each occurrence of the schedule of *job* before *owed_from* has run, or has its row, once."""
        if isinstance(job.schedule, At | Delay | Manual):
            return  # one occurrence, which stays owed; or none
        moments = occurrences(job, self.now + DAY)
        found = covered(self.story, moments)
        assert sorted(at for at, _ in found) == [at for at in moments if at < owed_from], job.state
        for at, reason in found:
            was_running = any(start <= at <= end for start, end in self.runs)
            was_away = any(start < at < end for start, end in self.away)
            if reason in (SkipReason.ALREADY_RUNNING, SkipReason.INTERRUPTED):
                assert was_running
                assert not was_away
            elif reason in (None, SkipReason.MISFIRE, SkipReason.BACKOFF):
                assert not was_away

    def owed_from(self) -> Micros:
        """The first occurrence that needs no row yet."""
        state = self.story.job.state
        if state.phase is not Phase.ACTIVE:
            assert state.counted_until is not None
            return state.counted_until + 1
        owed = state.regular_at if state.retry_of is not None or state.regular_at is not None else state.next_run_at
        if owed is not None:
            return owed
        if state.counted_until is not None and state.retry_of is not None:
            return state.counted_until + 1  # only a retry is left, and its end gives a row to the others
        if self.run is None:
            return self.now + 1  # it has ended, or fails for good with its last occurrence
        return max(self.run.claimed_at, state.counted_until or 0) + 1


@given(schedule=st.sampled_from(GRIDS), deeds=DEEDS, retry=st.sampled_from(RETRIES), policy=POLICIES)
def test_whatever_is_done_to_a_job_each_occurrence_has_run_or_has_its_row_once(
    schedule: Schedule, deeds: Iterable[tuple[str, int, Schedule, Ending]], retry: Retry | None, policy: Any
) -> None:
    """Each schedule accounts for the time during which it was in force, paused and disabled stretches included."""
    ledger = Ledger(Story(schedule, retry=retry, **policy))
    for deed, seconds, other, ending in deeds:
        ledger.wait(seconds)
        ledger.do(deed, other, ending)
        state = ledger.story.job.state
        ledger.check(ledger.story.job, ledger.owed_from())
        assert state.occurrences_run <= (policy["max_runs"] or 0)
        assert (state.activity is Status.IDLE) == (ledger.run is None)
        assert (state.counted_until is not None) >= (state.phase is not Phase.ACTIVE)
        if state.phase is Phase.ACTIVE and ledger.run is None:
            assert state.counted_until is None or state.occurrences_run == policy["max_runs"]
        assert policy["max_runs"] is None or state.occurrences_run <= policy["max_runs"]
        if state.phase is Phase.DISABLED and ledger.run is None:
            assert (state.next_run_at, state.regular_at) == (None, None)


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
    policy=POLICIES,
)
def test_with_jitter_every_occurrence_is_run_or_accounted_for_once(
    schedule: Schedule, steps: Iterable[tuple[str, int, int]], retry: Retry | None, policy: Any
) -> None:
    """An occurrence belongs to its jittered time: a run passes over it only if that time came during the run."""
    story = Story(schedule, retry=retry, **policy)
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
        ran_out = state.disabled_reason in (None, ENDED) and state.occurrences_run < (policy["max_runs"] or 1)
        owed_from = moments[-1] + 1 if ran_out else now + 1
    assert sorted(at for at, _ in found) == [at for at in moments if at < owed_from]
    assert state.occurrences_run <= (policy["max_runs"] or 0)
    for at, reason in found:
        if reason is SkipReason.ALREADY_RUNNING:
            assert any(start <= at <= end for start, end in spans)
    for _, attempt in story.runs:
        assert attempt.attempt > 1 or attempt.scheduled_for in moments or retry is None or retry.kind == "backoff"
