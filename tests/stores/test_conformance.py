"""What every store promises, whatever it is made of: one suite, run on each. Only the protocol of `store.py` is used.

A new store joins by a name in `STORES`, one in `SHARED` if several processes can open it, and a line in `store_at`. To
test a store of another project, name the function that makes one: STORE_UNDER_TEST="package.module:function". It gets a
directory, and returns a store that is not open; called again with the same directory, another connection to the same
store, if it is shared.
"""

# ruff: noqa: A001 - id is the public name of an id

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import Phase as Phases
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from scheduler_async import (
    At,
    Cron,
    Delay,
    Every,
    Job,
    JobChangedError,
    JobExistsError,
    JobSpec,
    Manual,
    MemoryStore,
    Outcome,
    PostgresStore,
    Priority,
    Retry,
    RunRow,
    Schedule,
    SkipReason,
    SQLiteStore,
    Status,
    Store,
    StoreError,
    Trigger,
)
from scheduler_async.jobs.enums import ENDED, Phase
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.run import ClaimedRun, EndedRun, Ending, Skip
from scheduler_async.rules import claiming, edits, next_run
from scheduler_async.rules.explaining import decide
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.order import order
from scheduler_async.rules.terms import Room, Rules, Transition
from scheduler_async.stores.copy_records import LeftOut, Ruling, RunRecord, Verdict
from scheduler_async.stores.copying import Copy
from scheduler_async.stores.liveness import LEASE
from scheduler_async.stores.messages import (
    MOST_UNHANDLED,
    REMOVED,
    Change,
    Claims,
    ClaimTerms,
    Decision,
    JobFilter,
    NodeIdentity,
    NodeLost,
    NodeRow,
    RunFilter,
)
from scheduler_async.stores.searches import RunSearch, TallySearch
from scheduler_async.texts import storable
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, SECOND, Micros, from_micros, to_micros
from tests.postgres_server import url_of_schema

NOON = to_micros(datetime(2026, 1, 5, 12, tzinfo=UTC))
RULES = Rules()

EVERY_MINUTE = Every("1m", immediately=True)  # due as soon as it is added
HOURLY = Every("1h")

SUCCESS = Ending(outcome=Outcome.SUCCESS)
ERROR = Ending(outcome=Outcome.ERROR, error="ValueError: no")

UNDER_TEST = os.environ.get("STORE_UNDER_TEST")

STORES = [UNDER_TEST] if UNDER_TEST else ["memory", "file", pytest.param("postgres", marks=pytest.mark.once)]

T = TypeVar("T")


def store_at(kind: str, directory: Path) -> Store:
    """A store of this kind; asked again, another connection to the same one, if it is shared."""
    if kind == UNDER_TEST:
        module, _, function = kind.partition(":")
        made: Store = getattr(import_module(module), function)(directory)
        return made
    if kind == "postgres":
        return PostgresStore(url_of_schema(str(directory)))
    if kind == "memory":
        return MemoryStore()
    return SQLiteStore(directory / "jobs.db")


SHARED = ["file", pytest.param("postgres", marks=pytest.mark.once)]
if UNDER_TEST:
    is_private = not store_at(UNDER_TEST, Path()).is_shared
    SHARED = [pytest.param(UNDER_TEST, marks=pytest.mark.skipif(is_private, reason="only one process can open it"))]


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = store_at(request.param, tmp_path)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(params=SHARED)
async def neighbours(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two connections to one store, as two processes have them."""
    one, other = store_at(request.param, tmp_path), store_at(request.param, tmp_path)
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


@pytest.fixture
async def node(store: Store) -> int:
    return await store.join(identity("first"), NOON)


def identity(name: str) -> NodeIdentity:
    return NodeIdentity(name=name, host="here", pid=4711, process_start="17")


# ---------------------------------------------------------------- what the tests say


def adding(
    id: str,
    schedule: Schedule = EVERY_MINUTE,
    *,
    now: Micros = NOON,
    handler: str = "h",
    state: dict[str, Any] | None = None,
    **fields: Any,
) -> Change:
    """Adding a job; *state* says what it has been through already."""
    spec = JobSpec(schedule, handler=handler, id=id, **fields)

    def decide_(existing: Job | None) -> Transition:
        if existing is not None:
            raise JobExistsError(id, spec.namespace)
        job = edits.add(spec, id=id, handler=handler, now=now)
        return Transition(job.with_state(replace(job.state, **(state or {}))), kind=EventKind.ADDED)

    return Decision(namespace=spec.namespace, id=id, decide=decide_)


async def add(store: Store, id: str, schedule: Schedule = EVERY_MINUTE, *, now: Micros = NOON, **fields: Any) -> Job:
    (edit,) = await store.change([adding(id, schedule, now=now, **fields)], now)
    assert edit is not None
    return edit.job


def editing(id: str, *, now: Micros = NOON, **changes: Any) -> Change:
    def decide_(job: Job | None) -> Transition:
        assert job is not None
        spec = edits.edited_spec(job, changes)
        edited = edits.edit(job, spec, handler=str(spec.handler), now=now)
        return replace(edited, kind=EventKind.UPDATED)

    return Decision(namespace="default", id=id, decide=decide_)


async def edit(store: Store, id: str, *, now: Micros = NOON, **changes: Any) -> Job:
    (done,) = await store.change([editing(id, now=now, **changes)], now)
    assert done is not None
    return done.job


async def change_state(store: Store, id: str, change: Callable[[Job, Micros], Transition], now: Micros = NOON) -> None:
    """Pause, resume or disable a job."""

    def decide_(job: Job | None) -> Transition:
        assert job is not None
        changed = change(job, now)
        return Transition(replace(changed.job, updated=now), changed.skips, EventKind.UPDATED)

    await store.change([Decision(namespace="default", id=id, decide=decide_)], now)


async def reschedule(store: Store, id: str, at: Micros) -> None:
    """Let a job be due at a moment of our choice."""
    await change_state(store, id, lambda job, _: Transition(job.with_state(replace(job.state, next_run_at=at))))


def disable(job: Job, now: Micros) -> Transition:
    return Transition(job.with_state(next_run.disabled(job.state, "enough", now)))


def disabling(job: Job, now: Micros) -> Transition:
    """As `disable_job` does."""
    return edits.disable(job, "enough", now)


def raising(error: Exception, id: str = "z") -> Change:
    def decide_(job: Job | None) -> Transition | None:
        raise error

    return Decision(namespace="default", id=id, decide=decide_)


async def job_of(store: Store, id: str, namespace: str = "default") -> Job:
    job = await store.get(namespace, id)
    assert job is not None
    return job


async def ids(store: Store, **wanted: Any) -> list[str]:
    return [job.id for job in await store.list_jobs(JobFilter(**wanted))]


async def runs(store: Store, **wanted: Any) -> list[RunRow]:
    return await store.list_runs(RunFilter(**wanted))


def on_terms(node: int, **terms: Any) -> ClaimTerms:
    return ClaimTerms(**{"node": node, "limit": 100, "slots": None, "handlers": None, "rules": RULES, **terms})


async def claim(store: Store, node: int, now: Micros = NOON, **terms: Any) -> Claims:
    return await store.claim_due(now, on_terms(node, **terms))


async def claim_only(store: Store, node: int, now: Micros = NOON, **terms: Any) -> ClaimedRun:
    (run,) = (await claim(store, node, now, **terms)).runs
    return run


async def trigger(store: Store, node: int, id: str, now: Micros = NOON, *, queued: bool = False) -> ClaimedRun:
    run = await store.claim_one("default", id, None, now, node=node, queued=queued)
    assert isinstance(run, ClaimedRun)
    return run


def claimed_ids(claims: Claims) -> list[str]:
    return [run.job.id for run in claims.runs]


def ended(run: ClaimedRun, ending: Ending = SUCCESS, at: Micros = NOON + SECOND) -> EndedRun:
    return EndedRun(run=run, ending=ending, started_at=run.claimed_at, finished_at=at)


async def finish(
    store: Store, run: ClaimedRun, ending: Ending = SUCCESS, at: Micros = NOON + SECOND
) -> Transition | None:
    (done,) = await store.finish([ended(run, ending, at)], RULES)
    return done


async def node_row(store: Store, number: int, *, seen_by: int) -> NodeRow:
    """A node as *seen_by* another sees it when it beats."""
    return next(row for row in await store.beat(seen_by) if row.id == number)


# ---------------------------------------------------------------- change


async def test_a_job_comes_back_as_it_was_added(store: Store) -> None:
    """Everything a user says about a job must survive being stored."""
    given: dict[str, Any] = {
        "namespace": "reports",
        "user_id": "ann",
        "name": "Daily report",
        "payload": {"to": ["ops", None, 1.5, True]},
        "metadata": {"team": "blue"},
        "priority": "high",
        "group": "mail",
        "misfire": "skip",
        "retry": Retry.budget(3, "2h"),
        "timeout": "90s",
        "on_interrupt": "skip",
    }

    added = await add(store, "a", Cron("0 9 * * 1-5", tz="Europe/Stockholm", jitter="5m"), handler="send", **given)

    found = await job_of(store, "a", "reports")
    assert found == added
    assert found.uid > 0
    assert found.handler == "send"
    assert {name: getattr(found, name) for name in given} == {**given, "timeout": found.timeout}
    assert str(found.timeout) == "0:01:30"
    assert found.schedule == Cron("0 9 * * 1-5", tz="Europe/Stockholm", jitter="5m")


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(Every("5m", anchor="2026-01-01T00:00:00Z"), id="every"),
        pytest.param(Delay("5m"), id="delay"),
        pytest.param(Cron("0 9 * * *", tz="UTC"), id="cron"),
        pytest.param(At("2026-06-15T09:00:00Z"), id="at"),
        pytest.param(Manual(), id="manual"),
    ],
)
async def test_every_kind_of_schedule_can_be_stored(store: Store, schedule: Schedule) -> None:
    """A job is worth nothing without the moment it runs at."""
    added = await add(store, "a", schedule)

    found = await job_of(store, "a")
    assert found.schedule == schedule
    assert found.state == added.state


ODD_NAMES = [
    "'; DROP TABLE job; --",
    '" OR 1=1',
    "%",
    "_",
    "a?b",
    ":id",
    "$1",
    "\\",
    "naïve",
    "日本",
    "🐍",
    "null",
    "0",
    "1e3",
]


@pytest.mark.parametrize("id", ODD_NAMES)
async def test_an_id_is_only_ever_a_name(store: Store, id: str) -> None:
    """Ids come from users; one that looks like SQL, or like a pattern, names a job and does nothing else."""
    await add(store, "bystander", handler=id, group=id, user_id=id, payload=id, metadata={id: id})

    await add(store, id, namespace=id, payload={id: id})

    assert (await job_of(store, id, id)).payload == {id: id}
    assert await ids(store, namespace=id) == [id]
    assert await ids(store, handler=id, group=id, user_id=id, metadata={id: id}) == ["bystander"]
    removed = await store.remove(id, id, NOON)
    assert removed is not None
    assert removed.id == id
    assert (await job_of(store, "bystander")).payload == id


async def test_many_are_found_by_namespace_and_id_only(store: Store) -> None:
    """Who adds many at once must learn which of them exist, whatever they and their namespaces are called."""
    names = [(namespace, id) for namespace in ODD_NAMES for id in ODD_NAMES]
    await store.change([adding(id, namespace=namespace) for namespace, id in names[::2]], NOON)
    met: dict[tuple[str, str], tuple[str, str] | None] = {}

    def looking(namespace: str, id: str) -> Change:
        def decide_(job: Job | None) -> None:
            met[namespace, id] = None if job is None else (job.namespace, job.id)

        return Decision(namespace=namespace, id=id, decide=decide_)

    await store.change([looking(namespace, id) for namespace, id in names], NOON)

    assert met == {**dict.fromkeys(names), **{name: name for name in names[::2]}}


async def test_jobs_of_all_sorts_are_added_together(store: Store) -> None:
    """Most jobs that are added look much the same; those that do not are kept as they are, too."""
    edits = await store.change(
        [
            adding("plain"),
            adding("far", At("2027-01-01T00:00:00Z"), priority="high", retry=Retry.none(), timeout="5m"),
            adding("in a group", group="g", payload={"n": 1}),
            adding("disabled", enabled=False),
            adding("manual", Manual()),
            adding("ended", Every("1h", end="2026-01-01T00:00:00Z")),
            adding("another plain", handler="other", priority="low"),
            adding("tried before", state={"retry_of": NOON - MINUTE, "attempts": 2, "last_error": "no"}),
            adding("paused", state={"phase": Phase.PAUSED}),
            adding("at the epoch", At("1970-01-01T00:00:00Z")),
        ],
        NOON,
    )

    added = [edit.job for edit in edits if edit is not None]
    assert len(added) == 10
    for job in added:
        assert await job_of(store, job.id) == job
    assert await ids(store, status=Status.DISABLED) == ["disabled", "ended"]
    due = (await claim(store, await store.join(identity("first"), NOON))).runs
    assert [run.job.id for run in due] == ["at the epoch", "in a group", "plain", "tried before", "another plain"]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(None, id="nothing"),
        pytest.param("", id="an empty text"),
        pytest.param("line\nbreak \x00 \u2028 \\ \" ' é 🐍", id="odd characters"),
        pytest.param({"": [], "a": {}, "ü": [None, True, -1, 1e300, 2**53 + 1]}, id="every type"),
        pytest.param([[[[[["deep"]]]]]], id="nested"),
        pytest.param("x" * 1_000_000, id="a megabyte"),
    ],
)
async def test_a_payload_reaches_the_run_unchanged(store: Store, node: int, payload: Any) -> None:
    """A handler acts on its payload; a store that bends it makes it act wrongly."""
    await add(store, "a", payload=payload)

    run = await claim_only(store, node)

    assert run.job.payload == payload
    assert (await job_of(store, "a")).payload == payload
    assert run.payload_json == run.job.description.payload_json


async def test_when_a_job_was_edited_is_known_to_others_too(neighbours: tuple[Store, Store]) -> None:
    """A pause changes no description, which others may remember."""
    ours, theirs = neighbours
    await add(ours, "a")
    await job_of(ours, "a")

    def pause(job: Job | None) -> Transition:
        assert job is not None
        return Transition(replace(edits.pause(job, NOON).job, updated=NOON + MINUTE), kind=EventKind.PAUSED)

    await theirs.change([Decision("default", "a", pause)], NOON + MINUTE)

    assert (await job_of(ours, "a")).updated == NOON + MINUTE
    assert (await ours.list_jobs(JobFilter()))[0].updated == NOON + MINUTE
    await edit(ours, "a", now=NOON + 2 * MINUTE, name="b")
    assert (await job_of(theirs, "a")).updated == NOON + 2 * MINUTE


async def test_an_edit_keeps_the_job_and_its_runs(store: Store, node: int) -> None:
    """Editing is not removing and adding: the history and the identity stay."""
    added = await add(store, "a")
    await finish(store, await claim_only(store, node))

    await edit(store, "a", now=NOON + 2 * SECOND, name="New", priority="low", group="g", handler="other")

    found = await job_of(store, "a")
    assert (found.uid, found.revision) == (added.uid, added.revision + 1)
    assert (found.name, found.priority, found.group, found.handler) == ("New", Priority.LOW, "g", "other")
    assert found.updated == NOON + 2 * SECOND
    assert len(await runs(store, namespace="default", id="a")) == 1


async def test_an_edit_decides_who_may_claim_and_in_which_order(store: Store, node: int) -> None:
    """Handler, priority and group are looked at when a job is claimed: the new ones, not the old."""
    for id in ("a", "b", "c"):
        await add(store, id)

    await edit(store, "a", priority="low")
    await edit(store, "b", group="full")
    await edit(store, "c", handler="other")

    assert claimed_ids(await claim(store, node, handlers=["h"], group_limits={"full": 0})) == ["a"]
    assert claimed_ids(await claim(store, node, handlers=["h", "other"])) == ["b", "c"]


async def test_several_changes_are_made_in_order_and_each_sees_those_before(store: Store) -> None:
    """A list that adds a job and edits it must work as if the two came one after the other."""
    edits = await store.change([adding("a"), adding("b"), editing("a", name="Edited")], NOON)

    assert [item is not None and item.job.id for item in edits] == ["a", "b", "a"]
    assert (await job_of(store, "a")).name == "Edited"
    assert sorted(await ids(store)) == ["a", "b"]


async def test_when_one_change_raises_none_is_made(store: Store) -> None:
    """Half of a list of jobs is nobody's wish."""
    before = await add(store, "a")

    with pytest.raises(LookupError, match="gone"):
        await store.change([adding("b"), editing("a", name="New"), raising(LookupError("gone"))], NOON)

    assert await store.list_jobs(JobFilter()) == [before]


async def test_a_list_that_failed_is_forgotten_altogether(store: Store) -> None:
    """What was rolled back must not come back as the description of the next job."""
    with pytest.raises(JobExistsError):
        await store.change([adding("a", payload="of a"), adding("a")], NOON)

    await add(store, "b", payload="of b")

    found = await job_of(store, "b")
    assert (found.id, found.payload) == ("b", "of b")


async def test_an_edit_that_failed_is_forgotten_altogether(store: Store) -> None:
    """The next edit has the same revision as the one that was rolled back, and must not be taken for it."""
    await add(store, "a")
    with pytest.raises(LookupError):
        await store.change([editing("a", name="Wrong"), editing("a"), raising(LookupError("gone"))], NOON)

    await edit(store, "a", name="Right")

    assert (await job_of(store, "a")).name == "Right"


async def test_a_change_that_decides_nothing_writes_nothing(store: Store) -> None:
    """`on_conflict="keep"` and declared jobs that have not changed leave the job alone."""
    job = await add(store, "a")
    other = replace(job, description=replace(job.description, name="Other"))

    edits = await store.change(
        [
            Decision(namespace="default", id="a", decide=lambda _: None),
            Decision(namespace="default", id="a", decide=lambda _: Transition(other)),
            Decision(namespace="default", id="new", decide=lambda _: None),
        ],
        NOON,
    )

    assert edits == [None, Transition(other), None]
    assert await store.list_jobs(JobFilter()) == [job]


async def test_a_change_is_shown_the_job_as_it_is(store: Store) -> None:
    """A decision made on anything but the present state would undo what others did."""
    job = await add(store, "a")
    seen: list[Job | None] = []

    def look(existing: Job | None) -> None:
        seen.append(existing)

    await store.change([Decision(namespace="default", id=id, decide=look) for id in ("a", "b")], NOON)
    await store.change([Decision(namespace="other", id="a", decide=look)], NOON)

    assert seen == [job, None, None]


async def test_what_a_change_leaves_out_is_in_the_log(store: Store) -> None:
    """Nothing is lost silently: an occurrence that an edit or a pause passes over has a row."""
    await add(store, "a")

    await change_state(store, "a", edits.pause, NOON + 2 * MINUTE)

    (row,) = await runs(store)
    assert (row.outcome, row.reason, row.missed) == (Outcome.SKIPPED, SkipReason.PAUSED, 3)
    assert (row.job_id, row.namespace, row.attempt) == ("a", "default", 0)
    assert (row.scheduled_for, row.finished_at) == (from_micros(NOON), from_micros(NOON + 2 * MINUTE))
    assert (row.started_at, row.duration_ms, row.delay_ms, row.node) == (None, None, None, None)


async def test_no_changes_are_fine(store: Store) -> None:
    """A scheduler without declared jobs makes none."""
    assert await store.change([], NOON) == []


# ---------------------------------------------------------------- remove


async def test_the_runs_of_a_removed_job_stay_in_the_log(store: Store, node: int) -> None:
    """A job that is gone leaves nothing else behind, and another one cannot be mixed up with it."""
    await add(store, "a")
    await add(store, "b")
    await store.finish([ended(run) for run in (await claim(store, node)).runs], RULES)
    as_it_was = await job_of(store, "a")

    removed = await store.remove("default", "a", NOON)

    assert removed == as_it_was
    assert await store.get("default", "a") is None
    assert await ids(store) == ["b"]
    assert [row.job_id for row in await runs(store)] == ["b", "a"]
    assert [row.job_id for row in await runs(store, namespace="default", id="a")] == ["a"]


async def test_the_runs_of_removed_jobs_are_purged_a_few_jobs_at_a_time(store: Store, node: int) -> None:
    """Those that were removed first go first; one whose own run goes on waits for that."""
    for id in ("a", "b", "c", "busy"):
        await add(store, id)
    claims = await claim(store, node)
    busy = next(run for run in claims.runs if run.job.id == "busy")
    await store.finish([ended(run) for run in claims.runs if run is not busy], RULES)
    await store.remove("default", "busy", NOON, busy.id)
    for place, id in enumerate(("c", "b", "a"), 1):
        await store.remove("default", id, NOON + place)

    assert await store.purge_removed(NOON + 1, 10) == 0
    assert await store.purge_removed(NOON + HOUR, 2) == 2
    assert {row.job_id for row in await runs(store)} == {"a", "busy"}
    assert await store.purge_removed(NOON + HOUR, 2) == 1
    assert await finish(store, busy) is not None
    assert await store.purge_removed(NOON + HOUR, 2) == 1
    assert await runs(store) == []


async def test_a_run_that_removes_its_own_job_is_recorded_when_it_ends(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node)

    await store.remove("default", "a", NOON, run.id)

    assert await ids(store) == []
    assert await store.held(node) == {run.id}
    assert await finish(store, run) is not None
    assert [row.outcome for row in await runs(store)] == [Outcome.SUCCESS]
    assert await store.held(node) == set()


async def test_removing_what_is_not_there_says_so(store: Store) -> None:
    """The scheduler turns this into `JobNotFoundError`."""
    await add(store, "a")

    assert await store.remove("default", "b", NOON) is None
    assert await store.remove("other", "a", NOON) is None
    assert await ids(store) == ["a"]


async def test_a_job_is_removed_only_as_it_was_read(store: Store) -> None:
    """Somebody else may have edited it since."""
    await add(store, "a")
    read = await job_of(store, "a")

    with pytest.raises(JobChangedError):
        await store.remove("default", "a", NOON, revision=read.revision + 1)
    assert await job_of(store, "a") == read
    assert await store.remove("default", "a", NOON, revision=read.revision) == read


async def test_the_late_end_of_a_removed_job_is_refused(store: Store, node: int) -> None:
    """A run that was removed can write nothing."""
    await add(store, "a")
    run = await claim_only(store, node)
    await store.remove("default", "a", NOON)

    assert await finish(store, run) is None
    assert await store.start([run], NOON) == set()
    assert await store.held(node) == set()
    assert [(row.outcome, row.error) for row in await runs(store)] == [(Outcome.CANCELLED, REMOVED)]


async def test_a_job_that_is_added_again_starts_fresh(store: Store, node: int) -> None:
    """It has another identity, so that the late end of its namesake's run does not reach it."""
    first = await add(store, "a", payload=1)
    run = await claim_only(store, node)
    await store.remove("default", "a", NOON)

    second = await add(store, "a", payload=2)

    assert second.uid != first.uid
    assert await finish(store, run, ERROR) is None
    await store.release([run])
    assert await job_of(store, "a") == second
    assert (await job_of(store, "a")).payload == 2
    assert [(row.outcome, row.error) for row in await runs(store)] == [(Outcome.CANCELLED, REMOVED)]


async def test_the_newest_job_leaves_its_number_to_nobody(store: Store) -> None:
    """The highest number is the one a store is most tempted to give out again."""
    numbers = []
    for _ in range(3):
        numbers.append((await add(store, "a")).uid)
        await store.remove("default", "a", NOON)

    assert len(set(numbers)) == 3


async def test_claims_are_right_however_many_handlers_there_are(store: Store, node: int) -> None:
    """A tenant may use any number of names, of which each claim looks at some."""
    others = [adding(f"other {n}", HOURLY, handler=f"h{n}", state={"next_run_at": NOON + HOUR}) for n in range(1_100)]
    await store.change(others, NOON)
    await add(store, "due", HOURLY, handler="here", state={"next_run_at": NOON})
    await add(store, "next", HOURLY, handler="here", state={"next_run_at": NOON + MINUTE})
    await add(store, "waits", HOURLY, handler="absent", state={"next_run_at": NOON})

    first = await claim(store, node, handlers=["here"])
    second = await claim(store, node, handlers=["here"])

    assert claimed_ids(first) == ["due"]
    assert claimed_ids(second) == []
    assert (second.next_due, second.next_count) == (NOON + MINUTE, 1)


# ---------------------------------------------------------------- get and list_jobs


async def test_a_job_is_found_by_namespace_and_id_only(store: Store) -> None:
    """Two extensions may use the same id."""
    await add(store, "a", namespace="one", payload=1)
    await add(store, "a", namespace="two", payload=2)

    assert (await job_of(store, "a", "one")).payload == 1
    assert (await job_of(store, "a", "two")).payload == 2
    assert await store.get("default", "a") is None
    assert await store.get("ONE", "a") is None
    assert await store.get("one", "A") is None


async def test_a_name_that_no_job_can_have_is_not_found(store: Store) -> None:
    """Whatever a caller asks for, the answer is a job or none."""
    await add(store, "a")

    assert await store.get("default", "") is None
    assert await store.get("default", "a\x00") is None
    assert await store.get("default", "a" * 100_000) is None


async def test_jobs_are_listed_by_their_next_run(store: Store) -> None:
    """Those without one come last, and ties are settled by name, so that a list is the same every time."""
    await add(store, "never", Manual())
    await add(store, "later", Every("2h"))
    await add(store, "b", Every("1h"))
    await add(store, "a", Every("1h"))
    await add(store, "a", Every("1h"), namespace="another")
    await add(store, "at once")
    await add(store, "disabled", enabled=False)

    listed = [job.key for job in await store.list_jobs(JobFilter())]

    assert listed == [
        "default/at once",
        "another/a",
        "default/a",
        "default/b",
        "default/later",
        "default/disabled",
        "default/never",
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({}, ["ann", "bob", "carl"], id="all"),
        pytest.param({"namespace": "one"}, ["ann"], id="namespace"),
        pytest.param({"user_id": "u"}, ["bob"], id="user"),
        pytest.param({"handler": "other"}, ["carl"], id="handler"),
        pytest.param({"group": "g"}, ["ann", "bob"], id="group"),
        pytest.param({"priority": Priority.HIGH}, ["bob"], id="priority"),
        pytest.param({"metadata": {"k": 1}}, ["ann", "bob"], id="metadata"),
        pytest.param({"metadata": {"k": 1, "l": [2]}}, ["bob"], id="all of the metadata"),
        pytest.param({"metadata": {"k": "1"}}, [], id="metadata of another type"),
        pytest.param({"metadata": {"missing": None}}, [], id="metadata that is not there"),
        pytest.param({"metadata": {"nothing": None}}, ["carl"], id="metadata that is null"),
        pytest.param({"metadata": {}}, ["ann", "bob", "carl"], id="no metadata in particular"),
        pytest.param({"due_before": NOON + 2 * HOUR}, ["ann"], id="due before, exclusively"),
        pytest.param({"due_before": NOON + 2 * HOUR + 1}, ["ann", "bob"], id="due before, just"),
        pytest.param({"limit": 2}, ["ann", "bob"], id="limit"),
        pytest.param({"limit": 0}, [], id="limit of none"),
        pytest.param({"metadata": {"k": 1}, "limit": 1}, ["ann"], id="metadata and limit"),
        pytest.param({"metadata": {"l": [2]}, "limit": 1}, ["bob"], id="the limit counts what matches"),
        pytest.param({"group": "g", "priority": Priority.HIGH}, ["bob"], id="two at once"),
        pytest.param({"group": "g", "handler": "other"}, [], id="two that exclude each other"),
    ],
)
async def test_jobs_are_filtered(store: Store, wanted: dict[str, Any], expected: list[str]) -> None:
    """Each filter lets through what it names; together they all must."""
    await add(store, "ann", Every("1h"), namespace="one", group="g", metadata={"k": 1})
    await add(store, "bob", Every("2h"), user_id="u", group="g", priority="high", metadata={"k": 1, "l": [2]})
    await add(store, "carl", Every("3h"), handler="other", priority="low", metadata={"nothing": None})

    assert await ids(store, **wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "is_there"),
    [
        pytest.param({"flag": True}, True, id="a boolean"),
        pytest.param({"flag": 1}, False, id="a number for a boolean"),
        pytest.param({"count": 1}, True, id="a number"),
        pytest.param({"count": 1.0}, True, id="the same number"),
        pytest.param({"count": True}, False, id="a boolean for a number"),
        pytest.param({"deep": {"list": [0, {"flag": False}]}}, True, id="booleans and numbers below"),
        pytest.param({"deep": {"list": [False, {"flag": False}]}}, False, id="a boolean for a number below"),
        pytest.param({"deep": {"list": [0, {"flag": 0}]}}, False, id="a number for a boolean below"),
        pytest.param({"deep": {"list": [0]}}, False, id="a shorter list"),
        pytest.param({"deep": {}}, False, id="a smaller object"),
    ],
)
async def test_metadata_is_compared_as_json(store: Store, wanted: dict[str, Any], is_there: bool) -> None:
    """In JSON, true is not 1, however deep it is; Python thinks otherwise."""
    await add(store, "ann", metadata={"flag": True, "count": 1, "deep": {"list": [0, {"flag": False}]}})

    assert await ids(store, metadata=wanted) == (["ann"] if is_there else [])


async def test_jobs_are_filtered_by_status(store: Store, node: int) -> None:
    """The filter and the job itself must agree about what it is doing."""
    for id in ("paused", "disabled", "idle"):
        await add(store, id, HOURLY)
    await change_state(store, "paused", edits.pause)
    await change_state(store, "disabled", disable)
    await add(store, "queued", state={"last_run_at": NOON - HOUR})
    await add(store, "running")
    await add(store, "running but paused")
    assert len((await claim(store, node, slots=2)).runs) == 3
    await change_state(store, "running but paused", edits.pause)

    everyone = await store.list_jobs(JobFilter())

    for status in Status:
        expected = [job.id for job in everyone if job.status is status]
        assert expected
        assert await ids(store, status=status) == expected
    assert sorted(await ids(store, status=Status.RUNNING)) == ["running", "running but paused"]


async def test_what_cannot_start_is_not_due_before_anything(store: Store) -> None:
    """A preview is made of this list: a paused job would be a false promise."""
    await add(store, "paused", HOURLY)
    await add(store, "active", HOURLY)
    await change_state(store, "paused", edits.pause)

    assert await ids(store, due_before=NOON + DAY) == ["active"]


# ---------------------------------------------------------------- list_runs


async def a_history(store: Store, node: int) -> list[ClaimedRun]:
    """Three runs of "a", a minute apart, and one of "a" elsewhere: success, error, success, and success."""
    await add(store, "a", retry=Retry.none())
    found = []
    for number, ending in enumerate([SUCCESS, ERROR, SUCCESS]):
        now = NOON + number * MINUTE
        found.append(await claim_only(store, node, now))
        await finish(store, found[-1], ending, now + SECOND)
    await add(store, "a", namespace="elsewhere", now=NOON + 3 * MINUTE)
    await add(store, "b", Manual(), now=NOON + 3 * MINUTE)
    for run in (await claim(store, node, NOON + 3 * MINUTE)).runs:
        if run.job.namespace == "elsewhere":
            found.append(run)
            await finish(store, run, at=NOON + 3 * MINUTE + SECOND)
        else:
            await store.release([run])
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param({}, [3, 2, 1, 0], id="all"),
        pytest.param({"limit": 3}, [3, 2, 1], id="limit"),
        pytest.param({"limit": 0}, [], id="limit of none"),
        pytest.param({"namespace": "default"}, [2, 1, 0], id="namespace"),
        pytest.param({"namespace": "default", "id": "a"}, [2, 1, 0], id="job"),
        pytest.param({"namespace": "elsewhere", "id": "a"}, [3], id="its namesake"),
        pytest.param({"id": "a"}, [3, 2, 1, 0], id="id in any namespace"),
        pytest.param({"namespace": "default", "id": "b"}, [], id="a job without runs"),
        pytest.param({"namespace": "default", "id": "c"}, [], id="no such job"),
        pytest.param({"outcome": Outcome.ERROR}, [1], id="outcome"),
        pytest.param({"outcome": Outcome.SUCCESS, "limit": 2}, [3, 2], id="the limit counts what matches"),
        pytest.param({"since": NOON + MINUTE}, [3, 2, 1], id="since, inclusively"),
        pytest.param({"since": NOON + MINUTE + 1}, [3, 2], id="since, just after"),
        pytest.param({"namespace": "default", "since": NOON + MINUTE, "outcome": Outcome.SUCCESS}, [2], id="three"),
    ],
)
async def test_runs_are_filtered_and_newest_first(
    store: Store, node: int, wanted: dict[str, Any], expected: list[int]
) -> None:
    """The log is read from its end; each filter lets through what it names."""
    made = await a_history(store, node)

    found = [row.id for row in await runs(store, **wanted)]

    assert found == [made[number].id for number in expected]


async def test_a_row_tells_all_about_its_run(store: Store, node: int) -> None:
    """The log is the evidence: who, what, when, how late, how long, how it ended."""
    await add(store, "a", namespace="ns")
    run = await claim_only(store, node, NOON + 5 * SECOND)
    (during,) = await runs(store)
    ending = Ending(outcome=Outcome.ERROR, error="E: é\x00", message="half done", exit_code=-9)

    await store.finish(
        [EndedRun(run=run, ending=ending, started_at=NOON + 6 * SECOND, finished_at=NOON + 8 * SECOND)], RULES
    )

    assert (during.outcome, during.finished_at, during.duration_ms) == (None, None, None)
    assert during.started_at == from_micros(NOON + 5 * SECOND)
    assert await runs(store) == [
        RunRow(
            id=run.id,
            job_id="a",
            namespace="ns",
            scheduled_for=from_micros(NOON),
            started_at=from_micros(NOON + 6 * SECOND),
            finished_at=from_micros(NOON + 8 * SECOND),
            duration_ms=2000.0,
            delay_ms=6000.0,
            attempt=1,
            trigger=Trigger.SCHEDULE,
            outcome=Outcome.ERROR,
            error="E: é\x00",
            message="half done",
            exit_code=-9,
            node="first",
            claimed_at=from_micros(NOON + 5 * SECOND),
        )
    ]


# ---------------------------------------------------------------- claim_due


async def test_only_what_is_due_is_claimed(store: Store, node: int) -> None:
    """Not a microsecond early, and nothing that is paused, disabled, manual or running."""
    await add(store, "due", state={"next_run_at": NOON})
    await add(store, "almost due", state={"next_run_at": NOON + 1})
    await add(store, "manual", Manual())
    await add(store, "paused", state={"phase": Phase.PAUSED})
    await add(store, "disabled", enabled=False)
    await add(store, "running")
    await trigger(store, node, "running")

    claims = await claim(store, node)

    assert claimed_ids(claims) == ["due"]
    assert not claims.edits


async def test_a_claim_marks_the_job_and_writes_the_row_before_anything_runs(store: Store, node: int) -> None:
    """Should the process die the next moment, the run is on record as begun."""
    before = await add(store, "a")

    run = await claim_only(store, node)

    found = await job_of(store, "a")
    (row,) = await runs(store)
    assert run.job == found
    assert run.before == before.state
    assert (found.status, found.state.next_run_at, found.state.last_run_at) == (Status.RUNNING, None, NOON)
    assert (row.id, row.outcome, row.node, row.trigger) == (run.id, None, "first", Trigger.SCHEDULE)
    assert (run.scheduled_for, run.attempt, run.claimed_at) == (NOON, 1, NOON)
    assert await store.held(node) == {run.id}


async def test_what_is_due_soon_can_be_claimed_ahead_as_of_its_time(store: Store, node: int) -> None:
    """So that its handler starts on time: its run looks as if it had been claimed when it was due."""
    await add(store, "overdue", state={"next_run_at": NOON - SECOND})
    await add(store, "soon", At(from_micros(NOON + 10)))
    await add(store, "later", At(from_micros(NOON + 11)))

    claims = await claim(store, node, ahead=10)

    moments = {run.job.id: run.claimed_at for run in claims.runs}
    rows = {row.job_id: row for row in await runs(store)}
    found = await job_of(store, "soon")
    assert moments == {"overdue": NOON, "soon": NOON + 10}
    assert (found.status, found.state.last_run_at) == (Status.RUNNING, NOON + 10)
    assert rows["soon"].started_at == rows["soon"].scheduled_for == from_micros(NOON + 10)
    assert rows["overdue"].started_at == from_micros(NOON)
    assert claims.next_due == NOON + 11
    assert not claims.is_full


async def test_what_is_claimed_ahead_is_never_late(store: Store, node: int) -> None:
    """However little lateness is forgiven, and whatever is done about it."""
    await add(store, "a", At(from_micros(NOON + SECOND)), misfire="skip")

    run = await claim_only(store, node, ahead=2 * SECOND, rules=replace(RULES, misfire_grace=0))

    assert (run.scheduled_for, run.trigger) == (NOON + SECOND, Trigger.SCHEDULE)


async def test_a_claim_ahead_of_an_occurrence_that_ran_goes_on_with_the_next(store: Store, node: int) -> None:
    """The clock went back; the next occurrence is told of, and not looked for again and again."""
    await add(store, "a", Cron("5 12 * * *", tz="UTC"))
    await finish(store, await claim_only(store, node, NOON + 5 * MINUTE), at=NOON + 6 * MINUTE)
    await reschedule(store, "a", NOON + 5 * MINUTE)

    again = await claim(store, node, NOON + 5 * MINUTE - 10, ahead=20)

    assert not again.runs
    assert (await job_of(store, "a")).state.next_run_at == NOON + DAY + 5 * MINUTE
    assert (await claim(store, node, NOON + 5 * MINUTE - 10, ahead=20)).next_due == NOON + DAY + 5 * MINUTE


async def test_what_a_claim_ahead_passes_over_is_told_of_though_it_comes_soon(store: Store, node: int) -> None:
    """It waits for a moment that the claim has looked at already."""
    await add(store, "a", Every("1s", anchor=from_micros(NOON)), state={"next_run_at": NOON, "forgotten_until": NOON})

    claims = await claim(store, node, NOON, ahead=2 * SECOND)

    assert not claims.runs
    assert claims.next_due == NOON + SECOND
    assert claimed_ids(await claim(store, node, NOON, ahead=2 * SECOND)) == ["a"]


async def test_a_claim_tells_how_many_come_due_next(store: Store, node: int) -> None:
    later = {f"later {number}": NOON + HOUR for number in range(3)}
    for id_, at in {"now": NOON, "soon": NOON + 5, "next": NOON + MINUTE, "and": NOON + MINUTE, **later}.items():
        await add(store, id_, state={"next_run_at": at})
    await add(store, "of another handler", handler="another", state={"next_run_at": NOON + MINUTE})
    await add(store, "paused", state={"next_run_at": NOON + MINUTE, "phase": Phase.PAUSED})

    moments = {NOON: 10, NOON + MINUTE: 2, NOON + HOUR: 10}
    looks = [await claim(store, node, moment, ahead=10, count=most) for moment, most in moments.items()]

    next_due = [(claims.next_due, claims.next_count) for claims in looks]
    assert next_due == [(NOON + MINUTE, 3), (NOON + HOUR, 2), (None, 0)]


async def test_a_death_shortly_before_its_time_counts_as_of_its_time(store: Store, node: int) -> None:
    """What was claimed ahead is not run again before it is due."""
    due = NOON + SECOND // 100
    await add(store, "a", At(from_micros(due)))
    await claim_only(store, node, ahead=SECOND // 50)
    (row,) = [status.node for status in await store.nodes()]

    await store.recover([row], NOON + 1, RULES)

    (log,) = await runs(store)
    assert (await job_of(store, "a")).state.next_run_at == due
    assert (log.outcome, log.finished_at) == (Outcome.INTERRUPTED, from_micros(due))


async def test_claims_come_in_order(store: Store, node: int) -> None:
    """Priority, then longest since the last run, never run first, then id: whoever waited is not overtaken."""
    await add(store, "1", priority="low", state={"last_run_at": None})
    await add(store, "2", state={"last_run_at": NOON - MINUTE})
    await add(store, "3", state={"last_run_at": NOON - HOUR})
    await add(store, "5", state={"last_run_at": None})
    await add(store, "4", state={"last_run_at": None})
    await add(store, "6", priority="high", state={"last_run_at": NOON - SECOND})
    await add(store, "é", state={"last_run_at": None})
    await add(store, "Z", state={"last_run_at": None})
    jobs = await store.list_jobs(JobFilter())

    claims = await claim(store, node)

    assert claimed_ids(claims) == ["6", "4", "5", "Z", "é", "3", "2", "1"]
    assert claimed_ids(claims) == [job.id for job in sorted(jobs, key=order)]
    assert [run.id for run in claims.runs] == sorted(run.id for run in claims.runs)


async def test_a_limit_takes_the_first_and_leaves_the_rest(store: Store, node: int) -> None:
    """What is over the limit stays due, and goes with the next claim."""
    for id in "abcde":
        await add(store, id, priority="high" if id == "d" else "standard")

    assert claimed_ids(await claim(store, node, limit=2)) == ["d", "a"]
    assert claimed_ids(await claim(store, node, limit=0)) == []
    assert claimed_ids(await claim(store, node, limit=2)) == ["b", "c"]
    assert claimed_ids(await claim(store, node, limit=2)) == ["e"]
    assert claimed_ids(await claim(store, node, limit=2)) == []


async def a_line_of_two(store: Store, node: int) -> None:
    """Three jobs are due, the first is claimed: "b" and "c" wait."""
    for id in "abc":
        await add(store, id)
    assert claimed_ids(await claim(store, node, limit=1)) == ["a"]


async def test_who_comes_later_and_matters_more_goes_first(store: Store, node: int) -> None:
    """The order is that of those who wait now, not of those who waited when somebody last looked."""
    await a_line_of_two(store, node)

    await add(store, "urgent", priority="high")
    await add(store, "overdue", At(from_micros(NOON - DAY)), priority="high")
    await add(store, "soon", At(from_micros(NOON + SECOND)), priority="high")

    assert claimed_ids(await claim(store, node, NOON + SECOND, limit=9)) == ["overdue", "soon", "urgent", "b", "c"]


async def test_an_edit_changes_the_place_in_line(store: Store, node: int) -> None:
    await a_line_of_two(store, node)

    await edit(store, "b", priority="low")
    await edit(store, "c", group="g")

    assert claimed_ids(await claim(store, node, group_limits={"g": 0})) == ["b"]
    assert claimed_ids(await claim(store, node)) == ["c"]


@pytest.mark.parametrize("leave", [edits.pause, disable], ids=["paused", "disabled"])
async def test_who_leaves_the_line_is_not_claimed(
    store: Store, node: int, leave: Callable[[Job, Micros], Transition]
) -> None:
    await a_line_of_two(store, node)

    await change_state(store, "b", leave)

    assert claimed_ids(await claim(store, node)) == ["c"]


async def test_who_comes_back_to_the_line_is_claimed(store: Store, node: int) -> None:
    """A run that did not begin, or ran by hand meanwhile, is due as before."""
    await a_line_of_two(store, node)
    (taken,) = (await claim(store, node, limit=1)).runs
    by_hand = await trigger(store, node, "c")

    assert claimed_ids(await claim(store, node)) == []
    await store.release([taken])
    assert claimed_ids(await claim(store, node)) == ["b"]
    await finish(store, by_hand, at=NOON)
    await reschedule(store, "c", NOON)

    assert claimed_ids(await claim(store, node)) == ["c"]


async def test_who_stands_in_line_twice_is_claimed_once(store: Store, node: int) -> None:
    """Removed and added again, and edited: whichever place comes first, and however many are taken at a time."""
    await a_line_of_two(store, node)
    await store.remove("default", "b", NOON)
    await add(store, "b")
    for number in range(3):
        await edit(store, "b", payload=number)

    assert claimed_ids(await claim(store, node, limit=2)) == ["b", "c"]
    assert claimed_ids(await claim(store, node, limit=2)) == []


async def test_who_was_edited_meanwhile_comes_back_to_another_place(store: Store, node: int) -> None:
    """A run that did not begin goes back to the line as the job is now, not as it was when it was claimed."""
    await a_line_of_two(store, node)
    (taken,) = (await claim(store, node, limit=1)).runs
    await edit(store, "b", priority="low")

    await store.release([taken])

    assert claimed_ids(await claim(store, node, limit=1)) == ["c"]


async def test_the_line_goes_back_with_the_clock(store: Store, node: int) -> None:
    await add(store, "late", At(from_micros(NOON + HOUR)))
    await a_line_of_two(store, node)
    assert claimed_ids(await claim(store, node, NOON + HOUR, limit=1)) == ["b"]

    assert claimed_ids(await claim(store, node, NOON)) == ["c"]
    assert claimed_ids(await claim(store, node, NOON + HOUR)) == ["late"]


async def test_a_neighbour_changes_the_line(neighbours: tuple[Store, Store]) -> None:
    """What another process adds, takes or edits counts at once for who goes first."""
    one, other = neighbours
    node = await one.join(identity("first"), NOON)
    second = await other.join(identity("second"), NOON)
    await a_line_of_two(one, node)

    await add(other, "urgent", priority="high")
    await edit(other, "c", priority="high")
    assert claimed_ids(await claim(other, second, limit=1)) == ["c"]

    assert claimed_ids(await claim(one, node)) == ["urgent", "b"]


async def test_a_claim_that_fails_takes_nobody_out_of_the_line(store: Store, node: int) -> None:
    await a_line_of_two(store, node)

    with pytest.raises(NodeLost):
        await claim(store, node + 1)
    with pytest.raises(TypeError):
        await claim(store, node, slots="half way")

    assert claimed_ids(await claim(store, node)) == ["b", "c"]


@pytest.mark.parametrize(
    ("slots", "running"),
    [(None, ["a", "b", "c"]), (0, []), (2, ["a", "b"]), (5, ["a", "b", "c"])],
    ids=["any number", "none", "two", "more than are due"],
)
async def test_beyond_the_slots_runs_are_queued(store: Store, node: int, slots: int | None, running: list[str]) -> None:
    """A queued run is claimed, so nobody else takes it, but it has not started."""
    for id in "abc":
        await add(store, id)

    claims = await claim(store, node, slots=slots)

    assert claimed_ids(claims) == ["a", "b", "c"]
    started = [row.job_id for row in await runs(store) if row.started_at is not None]
    assert sorted(started) == running
    for run in claims.runs:
        expected = Status.RUNNING if run.job.id in running else Status.QUEUED
        assert run.job.status is (await job_of(store, run.job.id)).status is expected


async def test_only_jobs_with_a_handler_are_claimed(store: Store, node: int) -> None:
    """A job waits for a process that can run it, and does not stand in the way of others."""
    for id in ("a", "b", "c"):
        await add(store, id, handler=f"handle {id}", priority="high" if id == "a" else "low")

    assert claimed_ids(await claim(store, node, handlers=[])) == []
    assert claimed_ids(await claim(store, node, handlers=["unheard of"])) == []
    assert claimed_ids(await claim(store, node, handlers=["handle b", "unheard of"], limit=1)) == ["b"]
    assert claimed_ids(await claim(store, node, handlers=None)) == ["a", "c"]


async def test_a_handler_that_is_new_to_the_store_is_found(store: Store, node: int) -> None:
    """What was looked for in vain must not be remembered as absent."""
    assert claimed_ids(await claim(store, node, handlers=["h"])) == []

    await add(store, "a", handler="h")

    assert claimed_ids(await claim(store, node, handlers=["h"])) == ["a"]


async def test_each_missing_handler_is_told_of_by_one_job(store: Store, node: int) -> None:
    """A warning for each handler is helpful; one for each of ten thousand jobs is a flood."""
    await add(store, "a", handler="here")
    await add(store, "b", handler="gone")
    await add(store, "c", handler="gone")
    await add(store, "d", handler="lost")
    await add(store, "e", HOURLY, handler="not due")
    await add(store, "f", handler="paused", state={"phase": Phase.PAUSED})

    claims = await claim(store, node, handlers=["here"])

    assert sorted(job.handler for job in claims.unhandled) == ["gone", "lost"]
    assert {job.id for job in claims.unhandled} <= {"b", "c", "d"}
    for job in claims.unhandled:
        assert job == await job_of(store, job.id)
    assert not (await claim(store, node, handlers=None, limit=0)).unhandled


async def test_a_group_runs_no_more_than_its_limit(store: Store, node: int) -> None:
    """Over the limit a job stays due, and goes as soon as a slot frees."""
    for id in "abcd":
        await add(store, id, group="g")

    first = await claim(store, node, group_limits={"g": 2})
    second = await claim(store, node, group_limits={"g": 2})
    await finish(store, first.runs[0])
    third = await claim(store, node, group_limits={"g": 2})

    assert claimed_ids(first) == ["a", "b"]
    assert claimed_ids(second) == []
    assert claimed_ids(third) == ["c"]
    assert (await job_of(store, "d")).state.next_run_at == NOON


async def test_jobs_of_a_full_group_do_not_stand_in_the_way_of_others(store: Store, node: int) -> None:
    """However many of them come first, and however small the limit of the claim."""
    for number in range(20):
        await add(store, f"blocked {number:02}", group="full", priority="high")
    for number in range(20):
        await add(store, f"narrow {number:02}", group="narrow", priority="high")
    for id in ("x", "y", "z"):
        await add(store, id, priority="low")

    claims = await claim(store, node, limit=3, group_limits={"full": 0, "narrow": 1})

    assert claimed_ids(claims) == ["narrow 00", "x", "y"]


async def test_groups_without_a_limit_of_their_own_have_the_general_one(store: Store, node: int) -> None:
    """`group_limits=2` means every group; jobs in no group are free."""
    for group in ("g", "h", None):
        for number in range(3):
            await add(store, f"{group} {number}", group=group)

    claims = await claim(store, node, group_limit=1, group_limits={"h": 2})

    assert sorted(claimed_ids(claims)) == ["None 0", "None 1", "None 2", "g 0", "h 0", "h 1"]


async def test_a_group_is_counted_across_nodes_and_kinds_of_runs(store: Store, node: int) -> None:
    """The limit is the group's, not the process's: queued, triggered and foreign runs all count."""
    other = await store.join(identity("second"), NOON)
    for id in "abcd":
        await add(store, id, group="g")
    await trigger(store, other, "a")
    await claim(store, other, limit=1, slots=0)

    claims = await claim(store, node, group_limits={"g": 3})

    assert claimed_ids(claims) == ["c"]
    assert await store.running_by_group() == {group_key("default", "g"): 3}


async def test_a_group_belongs_to_its_namespace(store: Store, node: int) -> None:
    """A tenant that fills its group must not keep the group of another from running."""
    for namespace, id in (("one", "a"), ("one", "b"), ("two", "c"), ("two", "d"), ("a/b", "e")):
        await add(store, id, namespace=namespace, group="mail")
    await add(store, "f", namespace="one/mail", group="other")

    first = await claim(store, node, group_limits={"mail": 1})
    second = await claim(store, node, group_limit=1)

    assert claimed_ids(first) == ["a", "c", "e", "f"]
    assert claimed_ids(second) == []
    assert await store.running_by_group() == {
        group_key("one", "mail"): 1,
        group_key("two", "mail"): 1,
        group_key("a/b", "mail"): 1,
        group_key("one/mail", "other"): 1,
    }


async def test_a_group_can_be_bounded_across_all_namespaces(store: Store, node: int) -> None:
    """For what all tenants share: with the limit within a namespace, or without. The order is that of the line."""
    names = [("one", "a"), ("one", "b"), ("one", "c"), ("two", "d"), ("two", "e"), ("three", "f"), ("three", "g")]
    for namespace, id in names:
        await add(store, id, namespace=namespace, group="mail")
    await add(store, "h", namespace="*", group="mail")
    await add(store, "i", namespace="one", group="other")
    limits = {"mail": 1, "*/mail": 3}

    first = await claim(store, node, group_limits=limits)
    full = await claim(store, node, group_limits=limits)
    await finish(store, first.runs[0])
    second = await claim(store, node, group_limits=limits)
    rest = await claim(store, node, group_limits={"*/mail": 5})

    assert claimed_ids(first) == ["a", "d", "f", "i"]
    assert claimed_ids(full) == []
    assert claimed_ids(second) == ["b"]
    assert claimed_ids(rest) == ["c", "e"]


async def test_a_job_that_waits_for_its_group_is_not_late(store: Store, node: int) -> None:
    """Within its namespace, or in all of them: what cannot start is not the earliest that could."""
    await add(store, "running", now=NOON - 9 * MINUTE, namespace="one", group="mail")
    await claim(store, node)
    await add(store, "waiting", now=NOON - 8 * MINUTE, namespace="one", group="mail")
    await add(store, "free", now=NOON - 7 * MINUTE, namespace="two", group="mail")
    await add(store, "later", now=NOON - 6 * MINUTE, namespace="two", group="other")

    async def earliest(**limits: Any) -> Micros | None:
        return await store.earliest_due(NOON, on_terms(node, **limits))

    assert await earliest(group_limits={"mail": 1}) == NOON - 7 * MINUTE
    assert await earliest(group_limit=1) == NOON - 7 * MINUTE
    assert await earliest(group_limits={"*/mail": 1}) == NOON - 6 * MINUTE
    assert await earliest(group_limits={"*/mail": 2}) == NOON - 8 * MINUTE
    assert await earliest(group_limits={"mail": 1, "*/mail": 2}) == NOON - 7 * MINUTE


async def test_a_job_keeps_its_group_through_edits_and_copies(store: Store, node: int, tmp_path: Path) -> None:
    """Whatever writes its state writes whose group it is in."""
    await add(store, "a", group="old")
    await add(store, "b", group="g")
    await edit(store, "a", group="g")
    target = SQLiteStore(tmp_path / "copy.db")
    await target.open()
    async for _ in Copy(store, target).slices():
        pass
    there = await target.join(identity("there"), NOON)

    assert claimed_ids(await claim(store, node, group_limits={"g": 1})) == ["a"]
    assert claimed_ids(await claim(target, there, group_limits={"g": 1})) == ["a"]

    await target.close()


async def test_the_earliest_due_job_is_found_among_those_that_could_start(store: Store, node: int) -> None:
    """How late a scheduler is shows in what it could start, and has not."""
    await add(store, "running", now=NOON - 9 * MINUTE, group="full")
    await claim(store, node)
    await add(store, "elsewhere", now=NOON - 8 * MINUTE, handler="other")
    await add(store, "waiting", now=NOON - 7 * MINUTE, group="full")
    await add(store, "paused", now=NOON - 6 * MINUTE, state={"phase": Phase.PAUSED})
    await add(store, "late", now=NOON - 5 * MINUTE, group="free")
    await add(store, "later", now=NOON - 4 * MINUTE)
    await add(store, "tomorrow", HOURLY)

    async def earliest(now: Micros = NOON, **terms: Any) -> Micros | None:
        return await store.earliest_due(now, on_terms(node, **terms))

    assert await earliest(handlers=["h"], group_limits={"full": 1}) == NOON - 5 * MINUTE
    assert await earliest(handlers=["h"], group_limit=1) == NOON - 5 * MINUTE
    assert await earliest(handlers=["h"], group_limits={"full": 1, "free": 0}) == NOON - 4 * MINUTE
    assert await earliest(handlers=["h"], group_limit=2) == NOON - 7 * MINUTE
    assert await earliest(handlers=["h"]) == NOON - 7 * MINUTE
    assert await earliest(handlers=["h", "other"]) == NOON - 8 * MINUTE
    assert await earliest(handlers=None) == NOON - 8 * MINUTE
    assert await earliest(handlers=["unknown"]) is None
    assert await earliest(handlers=[]) is None
    assert await earliest(NOON - 10 * MINUTE, handlers=None) is None


async def test_a_run_that_was_missed_is_made_up_for_once(store: Store, node: int) -> None:
    """Never a backlog: the oldest runs, the others merge into one row."""
    await add(store, "a")

    claims = await claim(store, node, NOON + 10 * MINUTE)

    (run,) = claims.runs
    (told,) = claims.edits
    skip, row = await runs(store)
    assert (run.trigger, run.scheduled_for) == (Trigger.CATCH_UP, NOON)
    assert told.skips == (Skip(reason=SkipReason.MISFIRE, scheduled_for=NOON + MINUTE, missed=10),)
    assert (row.id, row.outcome) == (run.id, None)
    assert (skip.outcome, skip.reason, skip.missed) == (Outcome.SKIPPED, SkipReason.MISFIRE, 10)


async def test_a_missed_run_that_is_to_be_skipped_only_leaves_a_row(store: Store, node: int) -> None:
    """`misfire="skip"` does not run late, and goes on."""
    await add(store, "a", HOURLY, misfire="skip")
    now = NOON + 3 * HOUR + 30 * MINUTE

    claims = await claim(store, node, now)

    (told,) = claims.edits
    (row,) = await runs(store)
    found = await job_of(store, "a")
    assert not claims.runs
    assert told.job == found
    assert (found.status, found.state.next_run_at, found.last_run_at) == (Status.IDLE, NOON + 4 * HOUR, None)
    assert (row.reason, row.missed, row.scheduled_for) == (SkipReason.MISFIRE, 3, from_micros(NOON + HOUR))
    assert claims.next_due == NOON + 4 * HOUR


async def test_a_one_shot_that_was_missed_and_skipped_has_ended(store: Store, node: int) -> None:
    """The disabling is told, as every disabling is."""
    await add(store, "a", At(from_micros(NOON)), misfire="skip")

    claims = await claim(store, node, NOON + HOUR)

    assert [(told.kind, told.job.status) for told in claims.edits] == [("disabled", Status.DISABLED)]
    assert (await job_of(store, "a")).disabled_reason == "ended"
    assert [row.reason for row in await runs(store)] == [SkipReason.MISFIRE]


async def test_the_next_due_time_ignores_what_is_due_already(store: Store, node: int) -> None:
    """A job that cannot start must not make the loop spin."""
    await add(store, "due, over the limit")
    await add(store, "due, no handler", handler="gone")
    await add(store, "paused", state={"phase": Phase.PAUSED, "next_run_at": NOON + SECOND})
    await add(store, "soon", Every("2m"), handler="another")
    await add(store, "later", Every("3m"))

    claims = await claim(store, node, limit=0, handlers=["h"])

    assert claims.next_due == NOON + 2 * MINUTE


async def test_what_is_due_can_be_counted(store: Store, node: int) -> None:
    """Whoever has no room for it, and whatever it waits for."""
    for name in "abc":
        await add(store, name)
    await add(store, "no handler", handler="gone")
    await add(store, "paused", state={"phase": Phase.PAUSED})
    await add(store, "later", Every("3m"))
    await add(store, "running")

    await store.claim_one("default", "running", None, NOON, node=node, queued=False)

    assert await store.count_due(NOON, 100) == 4
    assert await store.count_due(NOON, 3) == 3
    assert await store.count_due(NOON - 1, 100) == 0
    assert await store.count_due(NOON + 3 * MINUTE, 100) == 5


async def test_without_a_job_to_come_there_is_no_next_due_time(store: Store, node: int) -> None:
    """The loop then sleeps as long as it may."""
    assert (await claim(store, node)).next_due is None
    await add(store, "manual", Manual())
    await add(store, "due")

    assert (await claim(store, node)).next_due is None


async def test_who_is_not_a_node_claims_nothing(store: Store, node: int) -> None:
    """A node that others declared dead must stop, and may not take up work that nobody would recover."""
    await add(store, "a")

    with pytest.raises(NodeLost):
        await claim(store, node + 1)
    with pytest.raises(NodeLost):
        await trigger(store, node + 1, "a")

    assert (await job_of(store, "a")).status is Status.IDLE
    assert await runs(store) == []


async def test_a_job_is_claimed_once(store: Store, node: int) -> None:
    """One run of a job at a time, whoever asks, and however late it gets."""
    other = await store.join(identity("second"), NOON)
    await add(store, "a")
    await claim_only(store, node)

    for later in (NOON, NOON + MINUTE, NOON + DAY):
        assert not (await claim(store, node, later)).runs
        assert not (await claim(store, other, later)).runs
        answer = await store.claim_one("default", "a", None, later, node=other, queued=False)
        assert answer == await job_of(store, "a")


async def test_two_nodes_that_claim_at_once_share_the_jobs(store: Store, node: int) -> None:
    """Between them they get each job once."""
    other = await store.join(identity("second"), NOON)
    for number in range(30):
        await add(store, f"{number:02}")

    claims = await asyncio.gather(*(claim(store, who, limit=7) for who in (node, other) * 3))

    taken = [id for each in claims for id in claimed_ids(each)]
    assert sorted(taken) == [f"{number:02}" for number in range(30)]
    assert len(await store.held(node)) + len(await store.held(other)) == 30


async def test_two_processes_that_claim_at_once_share_the_jobs(neighbours: tuple[Store, Store]) -> None:
    """The same through two connections, where only the store itself can keep them apart."""
    numbers = [await each.join(identity(str(n)), NOON) for n, each in enumerate(neighbours)]
    await neighbours[0].change([adding(f"{number:02}") for number in range(40)], NOON)

    claims = await asyncio.gather(
        *(claim(each, number, limit=5) for _ in range(5) for each, number in zip(neighbours, numbers, strict=True))
    )

    taken = [run for each in claims for run in each.runs]
    assert sorted(run.job.id for run in taken) == [f"{number:02}" for number in range(40)]
    assert len({run.id for run in taken}) == 40


async def test_an_occurrence_that_ran_is_not_run_again_when_the_clock_goes_back(store: Store, node: int) -> None:
    """An hour that comes twice must not send the report twice; the job goes on with the next occurrence."""
    await add(store, "a", Cron("5 12 * * *", tz="UTC"))
    await finish(store, await claim_only(store, node, NOON + 5 * MINUTE), at=NOON + 6 * MINUTE)
    await reschedule(store, "a", NOON + 5 * MINUTE)

    again = await claim(store, node, NOON + 5 * MINUTE)

    found = await job_of(store, "a")
    assert not again.runs
    assert (found.status, found.state.next_run_at) == (Status.IDLE, NOON + DAY + 5 * MINUTE)
    assert found.state.last_run_at == NOON + 5 * MINUTE
    assert await store.held(node) == set()
    assert len(await runs(store)) == 1


async def test_an_occurrence_that_ran_does_not_hold_up_others(store: Store, node: int) -> None:
    """Its neighbours in the same claim run, with rows of their own."""
    for id in "abc":
        await add(store, id)
    for run in (await claim(store, node)).runs:
        await finish(store, run)
    for id in "ac":
        await store.remove("default", id, NOON)
        await add(store, id)
    await reschedule(store, "b", NOON)

    claims = await claim(store, node)

    assert claimed_ids(claims) == ["a", "c"]
    assert await store.held(node) == {run.id for run in claims.runs}
    rows = {row.id: row.job_id for row in await runs(store) if row.outcome is None}
    assert rows == {run.id: run.job.id for run in claims.runs}
    assert (await job_of(store, "b")).state.next_run_at == NOON + MINUTE


async def test_run_ids_are_never_used_again(store: Store, node: int) -> None:
    """A late result names its run by id; it must not fit a younger one."""
    await add(store, "a")
    used = []
    for _ in range(3):
        run = await claim_only(store, node)
        used.append(run.id)
        await store.release([run])
    await store.remove("default", "a", NOON)
    await add(store, "a")
    used.append((await claim_only(store, node)).id)

    assert len(set(used)) == 4
    assert used == sorted(used)


# ---------------------------------------------------------------- claim_one


async def test_a_triggered_run_leaves_the_schedule_alone(store: Store, node: int) -> None:
    """Trying a job out must not move its next run, nor its failure count."""
    await add(store, "a", HOURLY, state={"consecutive_errors": 3})

    run = await trigger(store, node, "a", NOON + SECOND)
    done = await finish(store, run, ERROR, NOON + 2 * SECOND)

    assert (run.trigger, run.scheduled_for) == (Trigger.MANUAL, NOON + SECOND)
    assert done is not None
    found = await job_of(store, "a")
    assert found == done.job
    assert (found.state.next_run_at, found.consecutive_errors) == (NOON + HOUR, 3)
    assert (found.state.last_run_at, found.last_error) == (NOON + SECOND, "ValueError: no")


@pytest.mark.parametrize("queued", [False, True], ids=["at once", "queued"])
async def test_a_triggered_run_starts_when_there_is_room(store: Store, node: int, queued: bool) -> None:
    """Over `max_concurrent` it queues like any other."""
    await add(store, "a", Manual())

    run = await trigger(store, node, "a", queued=queued)

    (row,) = await runs(store)
    assert run.job == await job_of(store, "a")
    assert run.job.status is (Status.QUEUED if queued else Status.RUNNING)
    assert (row.id, row.trigger) == (run.id, Trigger.MANUAL)
    assert row.started_at == (None if queued else from_micros(NOON))


async def test_a_triggered_run_may_have_a_payload_of_its_own(store: Store, node: int) -> None:
    """It is for this run only."""
    await add(store, "a", Manual(), payload="usual")

    run = await store.claim_one("default", "a", '"special"', NOON, node=node, queued=False)

    assert isinstance(run, ClaimedRun)
    assert run.payload_json == '"special"'
    assert (await job_of(store, "a")).payload == "usual"
    await store.release([run])
    assert (await trigger(store, node, "a")).payload_json == '"usual"'


async def test_triggering_what_cannot_be_claimed_says_why(store: Store, node: int) -> None:
    """None is "no such job", the job itself is "running already"."""
    await add(store, "a")
    await claim_only(store, node)

    assert await store.claim_one("default", "b", None, NOON, node=node, queued=False) is None
    assert await store.claim_one("other", "a", None, NOON, node=node, queued=False) is None
    assert await store.claim_one("default", "a", None, NOON, node=node, queued=False) == await job_of(store, "a")
    assert len(await runs(store)) == 1


@pytest.mark.parametrize("change", [edits.pause, disable], ids=["paused", "disabled"])
async def test_what_is_paused_or_disabled_can_be_triggered(
    store: Store, node: int, change: Callable[[Job, Micros], Transition]
) -> None:
    """Somebody asked for it; afterwards it is as it was."""
    await add(store, "a", HOURLY)
    await change_state(store, "a", change)
    before = await job_of(store, "a")

    await finish(store, await trigger(store, node, "a"))

    after = await job_of(store, "a")
    assert (after.status, after.next_run_at) == (before.status, before.next_run_at)
    assert after.disabled_reason == before.disabled_reason


async def test_a_job_can_be_triggered_twice_in_one_instant(store: Store, node: int) -> None:
    """Each is an occurrence of its own, even when the clock has not moved in between."""
    await add(store, "a", Manual())

    for _ in range(2):
        assert await finish(store, await trigger(store, node, "a"), at=NOON) is not None

    assert [row.outcome for row in await runs(store)] == [Outcome.SUCCESS, Outcome.SUCCESS]


# ---------------------------------------------------------------- start and release


async def test_a_queued_run_is_marked_when_it_starts(store: Store, node: int) -> None:
    """How long it waited can be read from its row."""
    await add(store, "a")
    await add(store, "b")
    first, second = (await claim(store, node, slots=0)).runs

    ours = await store.start([first], NOON + 5 * SECOND)

    assert ours == {first.id}
    assert (await job_of(store, "a")).status is Status.RUNNING
    assert (await job_of(store, "b")).status is Status.QUEUED
    rows = {row.id: row for row in await runs(store)}
    assert rows[first.id].started_at == from_micros(NOON + 5 * SECOND)
    assert rows[first.id].delay_ms == 5000
    assert rows[second.id].started_at is None


async def test_only_runs_that_are_still_ours_start(store: Store, node: int) -> None:
    """One that was released, removed or recovered while it queued must not run here as well."""
    for id in ("released", "removed", "kept"):
        await add(store, id)
    queued = {run.job.id: run for run in (await claim(store, node, slots=0)).runs}
    await store.release([queued["released"]])
    await store.remove("default", "removed", NOON)

    assert await store.start(list(queued.values()), NOON) == {queued["kept"].id}
    assert await store.start([], NOON) == set()
    assert (await job_of(store, "released")).status is Status.IDLE


STATES_BEFORE_A_CLAIM = [
    pytest.param(EVERY_MINUTE, {}, {}, NOON, id="never run"),
    pytest.param(EVERY_MINUTE, {"last_run_at": NOON - MINUTE, "last_message": "ok"}, {}, NOON, id="run before"),
    pytest.param(EVERY_MINUTE, {}, {}, NOON + HOUR, id="missed, with a row for the others"),
    pytest.param(
        HOURLY,
        {"next_run_at": NOON, "retry_of": NOON - MINUTE, "attempts": 2, "regular_at": NOON + HOUR, "retry_count": 1},
        {"retry": Retry.in_window(2)},
        NOON,
        id="a retry",
    ),
    pytest.param(
        HOURLY,
        {"next_run_at": NOON + HOUR, "regular_at": NOON + MINUTE, "consecutive_errors": 4},
        {},
        NOON + HOUR,
        id="held back after failures",
    ),
    pytest.param(At(from_micros(NOON)), {}, {}, NOON, id="a one-shot"),
]


@pytest.mark.parametrize("ahead", [0, SECOND])
@pytest.mark.parametrize(("schedule", "state", "fields", "now"), STATES_BEFORE_A_CLAIM)
async def test_a_released_claim_never_was(
    store: Store, node: int, schedule: Schedule, state: dict[str, Any], fields: dict[str, Any], now: Micros, ahead: int
) -> None:
    """A run that never started must leave no trace: same job, same rows, due as before. Claimed ahead or not."""
    before = await add(store, "a", schedule, state=state, **fields)
    run = await claim_only(store, node, now - ahead, slots=0, ahead=ahead)

    await store.release([run])

    assert await job_of(store, "a") == before
    assert await runs(store) == []
    assert await store.held(node) == set()
    again = await claim_only(store, node, now)
    assert (again.scheduled_for, again.attempt, again.trigger) == (run.scheduled_for, run.attempt, run.trigger)


async def test_a_released_claim_does_not_bring_back_a_schedule_that_was_taken_away(store: Store, node: int) -> None:
    await add(store, "a")
    run = await claim_only(store, node, slots=0)
    await edit(store, "a", schedule=Manual())

    await store.release([run])

    job = await store.get("default", "a")
    assert job is not None
    assert (job.status, job.next_run_at) == (Status.IDLE, None)


@pytest.mark.parametrize("schedule", [HOURLY, Manual()], ids=["with a next run", "without one"])
async def test_a_released_trigger_never_was(store: Store, node: int, schedule: Schedule) -> None:
    """`last_run_at` is the start of the last run, and there was none; it also decides who goes first."""
    before = await add(store, "a", schedule, state={"last_run_at": NOON - DAY})

    await store.release([await trigger(store, node, "a", queued=True)])

    assert await job_of(store, "a") == before
    assert await runs(store) == []


async def test_releasing_a_claim_keeps_the_rows_of_others(store: Store, node: int) -> None:
    """Only what the claim itself wrote is undone, not what an edit wrote in the same instant."""
    now = NOON + 5 * MINUTE
    await add(store, "a")
    await edit(store, "a", now=now, schedule=Every("2m", anchor=from_micros(now)))
    await reschedule(store, "a", now)
    log = await runs(store)
    assert [(row.reason, row.missed) for row in log] == [(SkipReason.MISFIRE, 6)]

    await store.release([await claim_only(store, node, now)])

    assert await runs(store) == log


async def test_releasing_keeps_an_edit_made_meanwhile(store: Store, node: int) -> None:
    """An edit says what comes next, and the undone claim has no say in it."""
    await add(store, "a")
    run = await claim_only(store, node, slots=0)
    await edit(store, "a", now=NOON + SECOND, schedule=Every("2h"), name="New")

    await store.release([run])

    found = await job_of(store, "a")
    assert (found.status, found.name) == (Status.IDLE, "New")
    assert found.state.next_run_at == NOON + SECOND + 2 * HOUR


async def test_releasing_a_job_that_was_disabled_meanwhile_keeps_it_disabled(store: Store, node: int) -> None:
    """A disabled job has no next run; one that showed one would be a false promise."""
    await add(store, "a")
    run = await claim_only(store, node, slots=0)
    await change_state(store, "a", disable)

    await store.release([run])

    found = await job_of(store, "a")
    assert (found.status, found.disabled_reason, found.next_run_at) == (Status.DISABLED, "enough", None)
    assert not (await claim(store, node, NOON + DAY)).runs


async def test_releasing_a_job_that_was_paused_meanwhile_keeps_it_paused(store: Store, node: int) -> None:
    """The pause was asked for after the claim, and the claim came to nothing."""
    await add(store, "a")
    run = await claim_only(store, node, slots=0)
    await change_state(store, "a", edits.pause)

    await store.release([run])

    assert (await job_of(store, "a")).status is Status.PAUSED
    assert not (await claim(store, node, NOON + DAY)).runs


STOPPED_MEANWHILE: list[Any] = [
    pytest.param(disabling, SkipReason.DISABLED, id="disabled"),
    pytest.param(edits.pause, SkipReason.PAUSED, id="paused"),
]
OWED = [
    pytest.param(EVERY_MINUTE, {}, NOON, [(NOON, 1)], id="in time"),
    pytest.param(EVERY_MINUTE, {}, NOON + 5 * MINUTE, [(NOON, 6)], id="missed, with those that the claim left out"),
    pytest.param(HOURLY, {"next_run_at": NOON, "retry_of": NOON - HOUR, "attempts": 1}, NOON, [], id="a retry"),
    pytest.param(
        HOURLY,
        {"next_run_at": NOON + HOUR, "regular_at": NOON, "consecutive_errors": 4},
        NOON + HOUR,
        [(NOON, 2)],
        id="held back after failures",
    ),
]


@pytest.mark.parametrize(("how", "reason"), STOPPED_MEANWHILE)
@pytest.mark.parametrize(("schedule", "state", "now", "owed"), OWED)
async def test_what_was_queued_and_never_ran_leaves_a_row_if_its_job_was_stopped_meanwhile(
    store: Store,
    node: int,
    schedule: Schedule,
    state: dict[str, Any],
    now: Micros,
    owed: list[tuple[Micros, int]],
    how: Callable[[Job, Micros], Transition],
    reason: SkipReason,
) -> None:
    """Nothing is lost silently: the row says what it would say if the job had not been claimed at all."""
    for id in ("queued", "idle"):
        await add(store, id, schedule, state=state)
    queued = {run.job.id: run for run in (await claim(store, node, now, slots=0)).runs}
    await store.release([queued["idle"]])
    for id in ("queued", "idle"):
        await change_state(store, id, how, now + SECOND)

    await store.release([queued["queued"]])

    job, idle = await job_of(store, "queued"), await job_of(store, "idle")
    log = [row for row in await runs(store) if row.job_id == "queued"]
    assert [(to_micros(row.scheduled_for), row.missed) for row in log] == owed
    assert {(row.outcome, row.reason, row.finished_at) for row in log} <= {
        (Outcome.SKIPPED, reason, from_micros(now + SECOND))
    }
    assert job.state == idle.state
    assert [(row.scheduled_for, row.reason, row.missed) for row in log] == [
        (row.scheduled_for, row.reason, row.missed) for row in await runs(store) if row.job_id == "idle"
    ]


@pytest.mark.parametrize(("how", "reason"), STOPPED_MEANWHILE)
async def test_what_was_claimed_ahead_of_its_time_and_stopped_before_that_is_not_owed(
    store: Store, node: int, how: Callable[[Job, Micros], Transition], reason: SkipReason
) -> None:
    before = await add(store, "a", HOURLY)
    due = NOON + HOUR
    run = await claim_only(store, node, due - SECOND, slots=0, ahead=SECOND)
    await change_state(store, "a", how, due - SECOND // 2)

    await store.release([run])

    assert await runs(store) == []
    assert (await job_of(store, "a")).state.next_run_at == (None if how is disabling else before.state.next_run_at)


@pytest.mark.parametrize("schedule", [Every("2h"), Manual()], ids=["another schedule", "none"])
async def test_what_was_queued_and_never_ran_leaves_a_row_if_its_schedule_was_changed_meanwhile(
    store: Store, node: int, schedule: Schedule
) -> None:
    """As it does if the schedule of a job is changed that is due and was not claimed."""
    await add(store, "a")
    run = await claim_only(store, node, NOON + 2 * MINUTE, slots=0)
    await edit(store, "a", now=NOON + 2 * MINUTE + SECOND, schedule=schedule)

    await store.release([run])

    (row,) = await runs(store)
    assert (row.scheduled_for, row.missed) == (from_micros(NOON), 3)
    assert (row.outcome, row.reason) == (Outcome.SKIPPED, SkipReason.MISFIRE)


async def test_a_schedule_that_fails_keeps_no_claim_from_being_undone(store: Store, node: int) -> None:
    """The next claim of the job finds out about it; the others of the batch must not wait for that."""
    for id in ("a", "b"):
        await add(store, id, Cron("0 9 * * *", tz="UTC"), state={"next_run_at": NOON})
    queued = (await claim(store, node, slots=0)).runs
    await change_state(store, "a", edits.pause, NOON + SECOND)

    def fail(*_: object) -> None:
        raise ValueError("it does not compute")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Cron, "count_micros", fail)
        await store.release(queued)

    found = {id: await job_of(store, id) for id in ("a", "b")}
    assert {id: job.status for id, job in found.items()} == {"a": Status.PAUSED, "b": Status.IDLE}
    assert {id: job.state.next_run_at for id, job in found.items()} == {"a": NOON + 21 * HOUR, "b": NOON}
    assert [(row.job_id, row.reason, row.missed) for row in await runs(store)] == [("a", SkipReason.PAUSED, 1)]


async def test_another_process_may_have_paused_what_is_released(neighbours: tuple[Store, Store]) -> None:
    """When it did is read from the store, and not remembered."""
    store, other = neighbours
    node = await store.join(identity("first"), NOON)
    await add(store, "a", HOURLY)
    run = await claim_only(store, node, NOON + HOUR, slots=0)
    await change_state(other, "a", edits.pause, NOON + HOUR + SECOND)

    await store.release([run])

    (row,) = await runs(store)
    assert (row.scheduled_for, row.reason) == (from_micros(NOON + HOUR), SkipReason.PAUSED)
    assert row.finished_at == from_micros(NOON + HOUR + SECOND)


async def test_releasing_what_is_not_ours_changes_nothing(store: Store, node: int) -> None:
    """A claim that was released, or recovered and claimed again, cannot be undone by its first owner."""
    await add(store, "a")
    run = await claim_only(store, node)
    await store.release([run])
    again = await claim_only(store, node)

    await store.release([run])
    await store.release([])

    assert (await job_of(store, "a")).status is Status.RUNNING
    assert await store.held(node) == {again.id}
    assert [row.id for row in await runs(store)] == [again.id]


# ---------------------------------------------------------------- finish


async def test_an_ending_is_recorded_whole(store: Store, node: int) -> None:
    """Outcome, counters and next run belong together."""
    await add(store, "a")
    run = await claim_only(store, node)
    ending = Ending(outcome=Outcome.SUCCESS, message="42 sent", exit_code=0)

    done = await finish(store, run, ending)

    found = await job_of(store, "a")
    (row,) = await runs(store)
    assert done is not None
    assert (done.job, done.skips, done.kind) == (found, (), None)
    assert (found.status, found.state.next_run_at) == (Status.IDLE, NOON + MINUTE)
    assert (found.state.last_success_at, found.last_message, found.last_exit_code) == (NOON + SECOND, "42 sent", 0)
    assert (row.outcome, row.message, row.exit_code, row.duration_ms) == (Outcome.SUCCESS, "42 sent", 0, 1000)
    assert await store.held(node) == set()


async def test_a_plain_run_leaves_nothing_of_those_before(store: Store, node: int) -> None:
    """What it says of its job is what is kept: no message of another run, no failure that is held against it."""
    await add(store, "a", Every("1m"), retry=Retry.none())
    talkative = Ending(outcome=Outcome.SUCCESS, message="42 sent", exit_code=0)

    for number, ending in enumerate([ERROR, SUCCESS, talkative, SUCCESS], 1):
        due = (await job_of(store, "a")).state.next_run_at
        assert due is not None
        done = await finish(store, await claim_only(store, node, due), ending, due + SECOND)
        assert done is not None
        assert done.job == await job_of(store, "a"), f"after run {number}"

    found = (await job_of(store, "a")).state
    assert (found.last_message, found.last_exit_code, found.consecutive_errors, found.retry_count) == (None, None, 0, 0)
    assert found.last_error is not None, "when it last failed, and why, is remembered"
    assert await store.held(node) == set()


async def test_the_last_run_of_a_job_ends_it(store: Store, node: int) -> None:
    """What it says of its job is what is kept, among others that go on."""
    await add(store, "once", At(from_micros(NOON + MINUTE)))
    await add(store, "often", Every("1m"))
    claims = await claim(store, node, NOON + MINUTE)

    done = await store.finish([ended(run, at=NOON + MINUTE + SECOND) for run in claims.runs], RULES)

    assert sorted(one.job.id for one in done if one) == ["often", "once"]
    for one in done:
        assert one is not None
        assert one.job == await job_of(store, one.job.id)
    once = (await job_of(store, "once")).state
    assert (once.phase, once.disabled_reason, once.next_run_at) == (Phase.DISABLED, ENDED, None)
    assert (once.last_success_at, once.disabled_at) == (NOON + MINUTE + SECOND, NOON + MINUTE + SECOND)
    assert (await job_of(store, "often")).state.next_run_at == NOON + 2 * MINUTE


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_every_outcome_can_be_recorded(store: Store, node: int, outcome: Outcome) -> None:
    """A run that cannot be recorded would be running for ever."""
    await add(store, "a")

    await finish(store, await claim_only(store, node), Ending(outcome=outcome, error="why"))

    assert [row.outcome for row in await runs(store, outcome=outcome)] == [outcome]
    assert (await job_of(store, "a")).status is Status.IDLE


async def test_a_failure_is_tried_again_as_the_same_occurrence(store: Store, node: int) -> None:
    """The second attempt has its own row, and the same `scheduled_for`."""
    await add(store, "a", HOURLY, retry=Retry.in_window(2))
    await finish(store, await claim_only(store, node, NOON + HOUR), ERROR, NOON + HOUR + SECOND)

    again = await claim_only(store, node, NOON + HOUR + 2 * SECOND)

    assert (again.attempt, again.trigger) == (2, Trigger.RETRY)
    assert again.scheduled_for == NOON + HOUR
    assert [row.attempt for row in await runs(store)] == [2, 1]


async def test_runs_that_end_together_do_not_share_what_was_done_to_one_of_their_jobs(store: Store, node: int) -> None:
    """One is edited, one removed, one has something to say, and each is recorded as if it had ended by itself."""
    for id in ("edited", "plain", "removed", "wordy"):
        await add(store, id)
    claims = await claim(store, node)
    await edit(store, "edited", name="New")
    await store.remove("default", "removed", NOON)
    wordy = Ending(outcome=Outcome.SUCCESS, output="said")

    done = await store.finish([ended(run, wordy if run.job.id == "wordy" else SUCCESS) for run in claims.runs], RULES)

    by_id = {run.job.id: edit for run, edit in zip(claims.runs, done, strict=True)}
    assert {id for id, edit in by_id.items() if edit is None} == {"removed"}
    assert {(row.job_id, row.outcome) for row in await runs(store)} == {
        *((id, Outcome.SUCCESS) for id in ("edited", "plain", "wordy")),
        ("removed", Outcome.CANCELLED),
    }
    assert ((await job_of(store, "edited")).name, (await job_of(store, "plain")).status) == ("New", Status.IDLE)
    assert await store.output_of(next(run.id for run in claims.runs if run.job.id == "wordy")) == "said"


async def test_what_passed_while_it_ran_is_in_the_log(store: Store, node: int) -> None:
    """Occurrences that pass while a job runs merge into one row."""
    await add(store, "a")

    done = await finish(store, await claim_only(store, node), at=NOON + 3 * MINUTE + SECOND)

    skip, _ = await runs(store)
    assert done is not None
    assert done.skips == (Skip(reason=SkipReason.ALREADY_RUNNING, scheduled_for=NOON + MINUTE, missed=3),)
    assert (skip.reason, skip.missed, skip.outcome) == (SkipReason.ALREADY_RUNNING, 3, Outcome.SKIPPED)
    assert skip.scheduled_for == from_micros(NOON + MINUTE)


async def test_a_run_ends_once(store: Store, node: int) -> None:
    """The second ending is late, whatever it says."""
    await add(store, "a")
    run = await claim_only(store, node)
    await finish(store, run)
    settled = await job_of(store, "a")

    assert await finish(store, run, ERROR, NOON + 2 * SECOND) is None
    assert await job_of(store, "a") == settled
    assert [row.outcome for row in await runs(store)] == [Outcome.SUCCESS]


async def test_an_ending_with_another_run_id_is_refused(store: Store, node: int) -> None:
    """The run id is the fence: the same job and node are not enough."""
    await add(store, "a")
    run = await claim_only(store, node)

    assert await finish(store, replace(run, id=run.id + 1), ERROR) is None
    assert await finish(store, replace(run, id=run.id - 1), ERROR) is None
    assert await store.held(node) == {run.id}
    assert await finish(store, run) is not None


async def test_what_a_released_claim_had_skipped_does_not_count(store: Store, node: int) -> None:
    """The next claim skips it again. Whatever finds such rows forgets them, too."""
    await add(store, "a", Every("1m"))
    run = await claim_only(store, node, NOON + HOUR)
    assert [row.missed for row in await runs(store) if row.outcome is Outcome.SKIPPED] == [59]

    await store.release([run])

    assert [row.outcome for row in await runs(store)] == []
    assert (await store.tally(TallySearch(since=NOON, until=NOON + DAY, limit=5))).items == []
    found = await store.runs_page(RunSearch(outcome=Outcome.SKIPPED, limit=5))
    assert list(found.items) == []
    if isinstance(store, PostgresStore):
        assert await store._ask(store._edits, lambda db: db.fetchval("SELECT count(*) FROM unusual")) == 0


async def test_the_ending_of_a_released_claim_is_refused(store: Store, node: int) -> None:
    """Whoever claims the job next owns it."""
    await add(store, "a")
    run = await claim_only(store, node)
    await store.release([run])
    again = await claim_only(store, node)

    assert await finish(store, run, ERROR) is None
    assert await store.held(node) == {again.id}
    assert await finish(store, again) is not None


async def test_the_ending_of_a_recovered_run_is_refused(store: Store, node: int) -> None:
    """A process that was only asleep wakes up after others took over: it writes nothing."""
    sleeper = await store.join(identity("sleeper"), NOON)
    await add(store, "a")
    run = await claim_only(store, sleeper)
    await store.recover([await node_row(store, sleeper, seen_by=node)], NOON + MINUTE, RULES)
    again = await claim_only(store, node, NOON + MINUTE)

    assert await finish(store, run, at=NOON + 2 * MINUTE) is None
    assert await store.start([run], NOON + 2 * MINUTE) == set()
    await store.release([run])

    rows = {row.id: row.outcome for row in await runs(store)}
    assert rows[run.id] is Outcome.INTERRUPTED
    assert rows[again.id] is None
    assert await store.held(node) == {again.id}


async def test_an_edit_during_the_run_survives_its_end(store: Store, node: int) -> None:
    """A finishing run never overwrites an edit."""
    await add(store, "a", payload="old", group="old")
    run = await claim_only(store, node)
    await edit(store, "a", now=NOON + SECOND, schedule=Every("2h"), payload="new", group="new", handler="new")

    await finish(store, run, at=NOON + 5 * SECOND)

    found = await job_of(store, "a")
    assert (found.payload, found.group, found.handler) == ("new", "new", "new")
    assert (found.schedule, found.state.next_run_at) == (Every("2h"), NOON + SECOND + 2 * HOUR)
    assert (found.status, found.state.last_success_at) == (Status.IDLE, NOON + 5 * SECOND)


async def test_a_pause_during_the_run_survives_its_end(store: Store, node: int) -> None:
    """The run finishes, and nothing follows it."""
    await add(store, "a")
    run = await claim_only(store, node)
    await change_state(store, "a", edits.pause, NOON + SECOND)
    during = await job_of(store, "a")

    await finish(store, run, at=NOON + 5 * SECOND)

    assert during.status is Status.RUNNING
    assert (await job_of(store, "a")).status is Status.PAUSED
    assert not (await claim(store, node, NOON + DAY)).runs


async def test_disabling_during_the_run_survives_its_end(store: Store, node: int) -> None:
    """The reason that was given stays, too, and it is not told a second time."""
    await add(store, "a")
    run = await claim_only(store, node)
    await change_state(store, "a", disable, NOON + SECOND)

    done = await finish(store, run, at=NOON + 5 * SECOND)

    found = await job_of(store, "a")
    assert done is not None
    assert (done.job, done.skips, done.kind) == (found, (), None)
    assert (found.status, found.disabled_reason, found.next_run_at) == (Status.DISABLED, "enough", None)


async def test_many_runs_end_at_once(store: Store, node: int) -> None:
    """Group commit: each gets its own answer, in the order asked, whoever is refused among them."""
    for number in range(300):
        await add(store, f"{number:03}")
    taken = (await claim(store, node, limit=300)).runs
    for number in (0, 150, 299):
        await store.remove("default", f"{number:03}", NOON)
    endings = [ended(run, ERROR if number % 2 else SUCCESS) for number, run in enumerate(taken)]
    endings.reverse()

    answers = await store.finish(endings, RULES)

    assert len(answers) == 300
    for item, answer in zip(endings, answers, strict=True):
        if item.run.job.id in ("000", "150", "299"):
            assert answer is None
        else:
            assert answer is not None
            assert answer.job.id == item.run.job.id
            assert answer.job.consecutive_errors == (item.ending is ERROR)
    assert await store.held(node) == set()
    outcomes = {row.id: row.outcome for row in await runs(store)}
    assert outcomes == {
        item.run.id: Outcome.CANCELLED if item.run.job.id in ("000", "150", "299") else item.ending.outcome
        for item in endings
    }
    assert await store.list_jobs(JobFilter()) == sorted(
        (answer.job for answer in answers if answer is not None), key=lambda job: (job.state.next_run_at, job.id)
    )


async def test_nothing_to_finish_is_fine(store: Store) -> None:
    """The writer may find that all it had was refused."""
    assert await store.finish([], RULES) == []


@pytest.mark.parametrize(
    "text", ["caf\udce9.txt", "\x00", "x" * 1_000_000, "", "'; --"], ids=lambda text: ascii(text)[:20]
)
async def test_whatever_an_error_says_it_can_be_recorded(store: Store, node: int, text: str) -> None:
    """File names come as odd text in messages; one that cannot be stored would hold up every ending after it."""
    await add(store, "odd")
    await add(store, "plain")
    odd, plain = (await claim(store, node)).runs
    ending = Ending(outcome=Outcome.ERROR, error=text, message=text)

    answers = await store.finish([ended(odd, ending), ended(plain)], RULES)

    assert None not in answers
    rows = {row.id: row for row in await runs(store)}
    assert (rows[odd.id].outcome, rows[plain.id].outcome) == (Outcome.ERROR, Outcome.SUCCESS)
    if text.isascii():
        assert rows[odd.id].error == rows[odd.id].message == storable(text)


# ---------------------------------------------------------------- nodes


async def test_nodes_join_beat_and_leave(store: Store) -> None:
    """Liveness is a counter that others watch."""
    first = await store.join(identity("first"), NOON)
    second = await store.join(identity("second"), NOON + SECOND)

    seen = sorted(await store.beat(first), key=lambda row: row.id)
    await store.leave(second)
    left = await store.beat(first)

    assert seen == [
        NodeRow(id=first, identity=identity("first"), beat=1, since=NOON),
        NodeRow(id=second, identity=identity("second"), beat=0, since=NOON + SECOND),
    ]
    assert left == [NodeRow(id=first, identity=identity("first"), beat=2, since=NOON)]


async def test_a_node_number_is_never_given_out_again(store: Store) -> None:
    """A node that was declared dead must not mistake its successor for itself."""
    numbers = []
    for name in "abc":
        numbers.append(await store.join(identity(name), NOON))
        await store.leave(numbers[-1])

    assert len(set(numbers)) == 3


async def test_who_is_no_node_any_more_learns_it_when_it_beats(store: Store, node: int) -> None:
    """That is how a process that slept finds out that it was declared dead."""
    await store.leave(node)

    with pytest.raises(NodeLost):
        await store.beat(node)
    await store.leave(node)


async def test_a_node_holds_what_it_claimed_and_did_not_finish(store: Store, node: int) -> None:
    """Queued, running and triggered, and nobody else's."""
    other = await store.join(identity("second"), NOON)
    for id in "abcde":
        await add(store, id)
    queued, running, done, released = (await claim(store, node, limit=4, slots=3)).runs
    triggered = await trigger(store, other, "e")
    await finish(store, done)
    await store.release([released])

    assert await store.held(node) == {queued.id, running.id}
    assert await store.held(other) == {triggered.id}
    assert await store.held(other + 1) == set()


async def test_nodes_are_told_of_whoever_asks(store: Store) -> None:
    """An operator is no node, and wants to know who is."""
    late = await store.join(identity("late"), NOON + SECOND)
    early = await store.join(identity("early"), NOON)
    for id in "abc":
        await add(store, id)
    await claim(store, early, limit=2, slots=1)
    await store.beat(late)

    told = await store.nodes()

    assert [(status.node.id, status.running) for status in told] == [(early, 2), (late, 0)]
    assert [status.node for status in told] == [
        NodeRow(id=early, identity=identity("early"), beat=0, since=NOON),
        NodeRow(id=late, identity=identity("late"), beat=1, since=NOON + SECOND),
    ]
    assert all(0 <= status.age < LEASE * SECOND for status in told)


async def test_who_has_left_is_not_told_of(store: Store, node: int) -> None:
    await store.leave(node)

    assert await store.nodes() == []


# ---------------------------------------------------------------- recover


async def test_the_runs_of_a_dead_node_are_interrupted_and_run_again_at_once(store: Store, node: int) -> None:
    """It counts as a failure, and the same occurrence is attempted again."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a", HOURLY, payload="p", state={"next_run_at": NOON})
    run = await claim_only(store, dead)

    ((told, lost),) = await store.recover([await node_row(store, dead, seen_by=node)], NOON + MINUTE, RULES)

    found = await job_of(store, "a")
    (row,) = await runs(store)
    assert told.job == found
    assert (lost.id, lost.attempt, lost.payload_json) == (run.id, run.attempt, '"p"')
    assert (found.status, found.consecutive_errors) == (Status.IDLE, 1)
    assert found.last_error is not None
    assert "dead" in found.last_error
    assert (row.outcome, row.reason, row.error) == (Outcome.INTERRUPTED, SkipReason.INTERRUPTED, found.last_error)
    assert (row.started_at, row.finished_at) == (from_micros(NOON), from_micros(NOON + MINUTE))
    again = await claim_only(store, node, NOON + MINUTE)
    assert (again.attempt, again.scheduled_for) == (2, NOON)


async def test_an_interrupted_run_that_is_not_to_be_repeated_waits_for_its_next_time(store: Store, node: int) -> None:
    """`on_interrupt="skip"`: some work must not be done twice."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a", on_interrupt="skip", retry=Retry.none())
    await claim_only(store, dead)

    await store.recover([await node_row(store, dead, seen_by=node)], NOON + 90 * SECOND, RULES)

    found = await job_of(store, "a")
    assert (found.state.next_run_at, found.state.retry_of) == (NOON + 2 * MINUTE, None)
    assert [(row.outcome, row.reason, row.missed) for row in await runs(store)] == [
        (Outcome.SKIPPED, SkipReason.INTERRUPTED, 1),
        (Outcome.INTERRUPTED, SkipReason.INTERRUPTED, 0),
    ]


async def test_a_node_that_beats_again_is_left_alone(store: Store, node: int) -> None:
    """Between the look and the recovery it may have come back: its runs go on."""
    slow = await store.join(identity("slow"), NOON)
    await add(store, "a")
    run = await claim_only(store, slow)
    seen = await node_row(store, slow, seen_by=node)
    await store.beat(slow)

    assert await store.recover([seen], NOON + MINUTE, RULES) == []
    assert await store.held(slow) == {run.id}
    assert await finish(store, run) is not None


async def test_the_dead_are_recovered_once(store: Store, node: int) -> None:
    """Two nodes may notice the same death; the second finds nothing to do."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a")
    await claim_only(store, dead)
    seen = await node_row(store, dead, seen_by=node)

    first = await store.recover([seen], NOON + MINUTE, RULES)
    second = await store.recover([seen], NOON + MINUTE, RULES)

    assert (len(first), second) == (1, [])
    assert (await job_of(store, "a")).consecutive_errors == 1
    with pytest.raises(NodeLost):
        await store.beat(dead)


async def test_only_the_runs_of_the_dead_are_recovered(store: Store, node: int) -> None:
    """Queued, running and triggered runs of all the dead, and none of the living."""
    dead = [await store.join(identity(name), NOON) for name in ("one", "two", "idle")]
    for id in "abcd":
        await add(store, id)
    mine = await claim_only(store, node, limit=1)
    theirs = [*(await claim(store, dead[0], limit=2, slots=1)).runs, await trigger(store, dead[1], "d")]
    rows = [row for row in await store.beat(node) if row.id in dead]

    recovered = await store.recover(rows, NOON + SECOND, RULES)

    assert sorted(run.id for _, run in recovered) == sorted(run.id for run in theirs)
    assert await store.held(node) == {mine.id}
    assert [row.id for row in await store.beat(node)] == [node]
    assert {row.id: row.outcome for row in await runs(store) if row.node is not None} == {
        mine.id: None,
        **{run.id: Outcome.INTERRUPTED for run in theirs},
    }
    (again,) = [row for row in await runs(store) if row.attempt and row.node is None]
    assert (again.job_id, again.outcome, again.attempt) == ("d", None, 2)  # the one that was triggered
    assert await store.recover([], NOON, RULES) == []


async def test_a_run_that_never_started_has_no_start_in_the_log(store: Store, node: int) -> None:
    """It was queued when its process died."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a")
    await claim_only(store, dead, slots=0)

    await store.recover([await node_row(store, dead, seen_by=node)], NOON + SECOND, RULES)

    ((started, outcome),) = [(row.started_at, row.outcome) for row in await runs(store)]
    assert (started, outcome) == (None, Outcome.INTERRUPTED)


async def test_a_job_that_kills_its_process_every_time_is_given_up(store: Store) -> None:
    """The count ends it, even under a policy that would go on for ever."""
    await add(store, "a", retry=Retry.none())
    observer = await store.join(identity("observer"), NOON)

    for number in range(5):
        victim = await store.join(identity(f"victim {number}"), NOON)
        await claim_only(store, victim, NOON + number)
        await store.recover([await node_row(store, victim, seen_by=observer)], NOON + number, RULES)

    found = await job_of(store, "a")
    assert (found.status, found.consecutive_errors) == (Status.DISABLED, 5)
    assert sorted(row.attempt for row in await runs(store)) == [1, 2, 3, 4, 5]


async def test_a_paused_job_stays_paused_through_a_recovery(store: Store, node: int) -> None:
    """What was decided during the run survives its violent end as well."""
    dead = await store.join(identity("dead"), NOON)
    await add(store, "a")
    await claim_only(store, dead)
    await change_state(store, "a", edits.pause)

    await store.recover([await node_row(store, dead, seen_by=node)], NOON + MINUTE, RULES)

    assert (await job_of(store, "a")).status is Status.PAUSED
    assert not (await claim(store, node, NOON + DAY)).runs


# ---------------------------------------------------------------- upkeep


async def test_jobs_without_a_user_are_disabled_when_one_is_required(store: Store, node: int) -> None:
    """They are returned, so that each gets its warning, once."""
    await add(store, "hers", user_id="ann")
    await add(store, "nobody's")
    await add(store, "nobody's, running")
    running = await trigger(store, node, "nobody's, running")
    await add(store, "nobody's, disabled", enabled=False)

    disabled = await store.disable_without_user("it has no user", NOON + SECOND)

    assert sorted(job.id for job in disabled) == ["nobody's", "nobody's, running"]
    for job in disabled:
        assert job == await job_of(store, job.id)
        assert (job.disabled_reason, job.state.disabled_at) == ("it has no user", NOON + SECOND)
        assert job.next_run_at is None
    assert (await job_of(store, "nobody's, disabled")).disabled_reason == "it was added disabled"
    assert claimed_ids(await claim(store, node)) == ["hers"]
    assert await store.disable_without_user("it has no user", NOON + MINUTE) == []
    assert await finish(store, running) is not None
    assert (await job_of(store, "nobody's, running")).status is Status.DISABLED


async def test_a_job_without_a_user_is_disabled_as_by_hand(store: Store, node: int) -> None:
    """A run in progress goes on, and what comes next is kept until it ends. What is owed leaves a row."""
    names = ("idle", "running", "triggered")
    for name in names:
        for id in (name, f"{name}, by hand"):
            user, first = None if id == name else "ann", NOON if name == "running" else NOON + MINUTE
            await add(store, id, HOURLY, user_id=user, state={"next_run_at": first})
    taken = list((await claim(store, node)).runs)
    taken += [await trigger(store, node, id) for id in ("triggered", "triggered, by hand")]
    now = NOON + 2 * MINUTE

    without = await store.disable_without_user("enough", now)
    for name in names:
        await change_state(store, f"{name}, by hand", disabling, now)

    for name in names:
        job, other = await job_of(store, name), await job_of(store, f"{name}, by hand")
        assert job.state == other.state
        assert await rows_of(store, name) == await rows_of(store, f"{name}, by hand")
    assert {job.id: job.state for job in without} == {name: (await job_of(store, name)).state for name in names}
    triggered = await job_of(store, "triggered")
    assert triggered.state.next_run_at is not None
    assert len(await rows_of(store, "idle")) == 1
    await change_state(store, "triggered", edits.resume, now + SECOND)
    await store.finish([ended(run, at=now + MINUTE) for run in taken], RULES)
    assert (await job_of(store, "triggered")).state.next_run_at == triggered.state.next_run_at
    assert (await job_of(store, "running")).status is Status.DISABLED


async def rows_of(store: Store, id: str) -> list[tuple[object, ...]]:
    """What the log says about a job, besides its runs that go on."""
    log = await runs(store, namespace="default", id=id)
    return [(row.scheduled_for, row.outcome, row.reason, row.missed) for row in log if row.outcome is not None]


async def test_a_schedule_that_fails_keeps_no_job_without_a_user_from_being_disabled(store: Store) -> None:
    for id in ("a", "b"):
        await add(store, id, Cron("0 9 * * *", tz="UTC"), state={"next_run_at": NOON})

    def fail(*_: object) -> None:
        raise ValueError("it does not compute")

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Cron, "count_micros", fail)
        found = await store.disable_without_user("enough", NOON + SECOND)

    assert [(job.id, job.disabled_reason) for job in found] == [("a", "enough"), ("b", "enough")]


@pytest.mark.parametrize(("keep", "left"), [(0, 0), (1, 1), (3, 3), (5, 5), (100, 5)])
async def test_only_the_newest_rows_are_kept(store: Store, node: int, keep: int, left: int) -> None:
    """The log must not grow for ever; the oldest go first, and only those of the job that was named."""
    job = await add(store, "a")
    await add(store, "b")
    for number in range(5):
        now = NOON + number * MINUTE
        await store.finish([ended(run, at=now + SECOND) for run in (await claim(store, node, now)).runs], RULES)
    log = [row.id for row in await runs(store, namespace="default", id="a")]

    await store.purge_runs([job.uid], keep, NOON + HOUR)

    assert [row.id for row in await runs(store, namespace="default", id="a")] == log[:left]
    assert len(await runs(store, namespace="default", id="b")) == 5


async def test_rows_about_what_is_yet_to_come_are_kept(store: Store, node: int) -> None:
    """The clock was ahead, and went back: when their time comes again, they say that it has run."""
    job = await add(store, "a")
    for now in (NOON, NOON + MINUTE):
        await store.finish([ended(run, at=now + SECOND) for run in (await claim(store, node, now)).runs], RULES)

    await store.purge_runs([job.uid], 0, NOON + 30 * SECOND)

    assert [row.scheduled_for for row in await runs(store)] == [from_micros(NOON + MINUTE)]
    assert (await job_of(store, "a")).state.forgotten_until == NOON


async def test_several_jobs_are_purged_at_once(store: Store, node: int) -> None:
    """Upkeep takes them in slices; one that was removed meanwhile does not matter."""
    uids = [(await add(store, id, Manual())).uid for id in "abc"]
    for id in "abc" * 3:
        await finish(store, await trigger(store, node, id))
    await store.remove("default", "c", NOON)

    await store.purge_runs(uids, 1, NOON + HOUR)
    await store.purge_runs([], 0, NOON + HOUR)

    assert sorted(row.job_id for row in await runs(store)) == ["a", "b", "c"]


async def test_a_run_in_progress_is_never_purged(store: Store, node: int) -> None:
    """Its end must find its row."""
    job = await add(store, "a")
    run = await claim_only(store, node)

    await store.purge_runs([job.uid], 0, NOON + HOUR)

    assert [row.id for row in await runs(store)] == [run.id]
    assert await finish(store, run) is not None
    assert [row.outcome for row in await runs(store)] == [Outcome.SUCCESS]


async def test_jobs_that_were_disabled_long_ago_are_forgotten(store: Store, node: int) -> None:
    """The oldest first, up to the limit; never one that runs, was enabled again, or is only paused."""
    for number, id in enumerate("abcd"):
        await add(store, id, now=NOON + number * SECOND, enabled=False)
    await add(store, "running", Manual())
    await trigger(store, node, "running")
    await change_state(store, "running", disable)
    await add(store, "paused")
    await change_state(store, "paused", edits.pause)
    await add(store, "resumed", enabled=False)
    await change_state(store, "resumed", edits.resume)

    first = await store.purge_disabled(NOON + 3 * SECOND, 2, NOON + HOUR, ended=False)
    second = await store.purge_disabled(NOON + 3 * SECOND, 2, NOON + HOUR, ended=False)

    assert [job.id for job in first] == ["a", "b"]
    assert [job.id for job in second] == ["c"]
    assert await store.purge_disabled(NOON + 3 * SECOND, 2, NOON + HOUR, ended=False) == []
    assert sorted(await ids(store)) == ["d", "paused", "resumed", "running"]


async def test_the_runs_of_a_purged_job_stay_in_the_log(store: Store, node: int) -> None:
    """As with a removal by hand."""
    await add(store, "a")
    await finish(store, await claim_only(store, node), Ending(outcome=Outcome.SUCCESS, disable=True))
    settled = await job_of(store, "a")

    assert await store.purge_disabled(NOON + HOUR, 10, NOON + HOUR, ended=False) == [settled]
    found = await runs(store, namespace="default", id="a")
    assert [(row.outcome, row.reason) for row in found] == [
        (Outcome.SKIPPED, SkipReason.DISABLED),
        (Outcome.SUCCESS, None),
    ]
    assert await store.purge_removed(NOON + 2 * HOUR, 10) == 1
    assert await runs(store) == []


# ---------------------------------------------------------------- copying


@pytest.fixture(params=STORES)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores that have nothing to do with each other."""
    stores = []
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
        stores.append(store_at(request.param, tmp_path / name))
        await stores[-1].open()
    yield stores[0], stores[1]
    for opened in stores:
        await opened.close()


async def copied(source: Store, target: Store) -> Copy:
    copy = Copy(source, target)
    async for _ in copy.slices():
        pass
    return copy


async def all_of(store: Store) -> tuple[list[Job], list[RunRecord]]:
    """What a store holds, but for the numbers that are its own."""
    plain = [replace(job, uid=0, revision=0) for job in await jobs_in(store)]
    return sorted(plain, key=lambda job: (job.namespace, job.id)), [run._replace(id=0) for run in await runs_in(store)]


async def jobs_in(store: Store, after: int = 0, limit: int = 10_000) -> list[Job]:
    """The jobs of a store, all of which can be read."""
    jobs = await store.read_jobs(after, limit)
    assert not [job for job in jobs if isinstance(job, LeftOut)]
    return [job for job in jobs if isinstance(job, Job)]


async def runs_in(store: Store, after: int = 0, limit: int = 10_000) -> list[RunRecord]:
    """The runs of a store, all of which can be read."""
    rows = await store.read_runs(after, limit)
    assert not [row for row in rows if isinstance(row, LeftOut)]
    return [row for row in rows if isinstance(row, RunRecord)]


async def a_life(store: Store) -> None:
    """Jobs in every state that outlives a process, and runs of every kind."""
    node = await store.join(identity("first"), NOON)
    await a_history(store, node)
    full: dict[str, Any] = {
        "user_id": "ann",
        "name": "Daily report",
        "payload": {"to": ["ops", None, 1.5, "é"]},
        "metadata": {"team": "blue"},
        "priority": "high",
        "group": "mail",
        "misfire": "skip",
        "retry": Retry.budget(3, "2h"),
        "timeout": "90s",
        "on_interrupt": "skip",
    }
    await add(store, "full", Cron("0 9 * * *", tz="Europe/Stockholm"), namespace="reports", **full)
    await add(store, "failing", retry=Retry.in_window(2), now=NOON + 4 * MINUTE)
    await add(store, "talks", now=NOON + 4 * MINUTE)
    told = Ending(outcome=Outcome.SUCCESS, message="done", exit_code=0, output="hello\n")
    for run in (await claim(store, node, NOON + 9 * MINUTE)).runs:
        await finish(store, run, ERROR if run.job.id == "failing" else told, NOON + 9 * MINUTE + SECOND)
    await finish(store, await trigger(store, node, "b", NOON + 10 * MINUTE), at=NOON + 10 * MINUTE + 1)
    await add(store, "ended", At(from_micros(NOON + 11 * MINUTE)))
    await change_state(store, "talks", edits.pause)
    await finish(store, await claim_only(store, node, NOON + 11 * MINUTE, handlers=["h"], limit=1), at=NOON + HOUR)
    await store.purge_runs([(await job_of(store, "a")).uid], 2, NOON + HOUR)
    await store.leave(node)


async def test_a_copy_is_all_of_it(pair: tuple[Store, Store]) -> None:
    """What a job is, what it has been through, and what its runs said and wrote."""
    source, target = pair
    await a_life(source)
    jobs, rows = await all_of(source)
    assert {row.outcome for row in rows} >= {"success", "error", "skipped"}
    assert {row.trigger for row in rows} >= {"schedule", "manual"}
    assert {row.output for row in rows} == {None, "hello\n"}

    await copied(source, target)

    assert await all_of(target) == (jobs, rows)
    assert await target.count() == (len(jobs), len(rows))
    listed = [replace(job, uid=0) for job in await source.list_jobs(JobFilter())]
    assert [replace(job, uid=0) for job in await target.list_jobs(JobFilter())] == listed


async def test_a_copy_can_be_copied_back(pair: tuple[Store, Store]) -> None:
    """Either way: nothing is lost, and nothing is doubled."""
    source, target = pair
    await a_life(source)
    before = await all_of(source)
    await copied(source, target)

    back = await copied(target, source)

    assert await all_of(source) == before
    assert (back.verdicts[Verdict.SAME], back.runs_added) == (len(before[0]), 0)


async def test_a_second_copy_adds_what_is_new_and_nothing_else(pair: tuple[Store, Store]) -> None:
    source, target = pair
    await a_life(source)
    await copied(source, target)
    node = await source.join(identity("second"), NOON + 2 * HOUR)
    await add(source, "new", Manual(), now=NOON + 2 * HOUR)
    await finish(source, await trigger(source, node, "b", NOON + 2 * HOUR), at=NOON + 2 * HOUR + SECOND)
    numbers = {row.scheduled_for: row.id for row in await runs_in(target)}

    copy = await copied(source, target)

    assert (copy.verdicts[Verdict.ADDED], copy.verdicts[Verdict.UPDATED], copy.runs_added) == (1, 1, 1)
    assert await all_of(target) == await all_of(source)
    assert {row.scheduled_for: row.id for row in await runs_in(target)}.items() > numbers.items()
    again = await copied(source, target)
    assert (again.verdicts, again.runs_added) == ({Verdict.SAME: copy.jobs}, 0)


async def test_what_was_copied_is_run_by_the_target(pair: tuple[Store, Store]) -> None:
    """Also by a node that has looked already, and that has never heard of the handler."""
    source, target = pair
    node = await target.join(identity("first"), NOON)
    await claim(target, node, NOON + HOUR, handlers=["h"])
    await add(source, "low", priority="low")
    await add(source, "high", priority="high")
    await add(source, "other", handler="k")

    await copied(source, target)

    assert claimed_ids(await claim(target, node, NOON + HOUR, handlers=["h"])) == ["high", "low"]
    assert claimed_ids(await claim(target, node, NOON + HOUR, handlers=["h", "k"])) == ["other"]


async def test_what_was_copied_anew_is_read_anew(pair: tuple[Store, Store]) -> None:
    """Whatever the target remembers of the job as it was."""
    source, target = pair
    node = await target.join(identity("first"), NOON)
    await add(source, "a", payload="old")
    await copied(source, target)
    assert (await job_of(target, "a")).payload == "old"
    await edit(source, "a", payload="new", now=NOON + SECOND)
    await edit(target, "a", name="Mine")

    await copied(source, target)

    found = await job_of(target, "a")
    assert (found.payload, found.name) == ("new", None)
    assert (await claim_only(target, node)).payload_json == '"new"'


async def test_an_occurrence_that_ran_in_both_has_one_row(pair: tuple[Store, Store]) -> None:
    """That of the target: what ran is not run again, and has not run twice there."""
    source, target = pair
    await add(source, "a")
    await copied(source, target)
    for late, store in enumerate(pair):
        node = await store.join(identity(f"{late}"), NOON)
        await finish(store, await claim_only(store, node, NOON + late), at=NOON + late + SECOND)
    before = await runs(target)

    copy = await copied(source, target)

    assert copy.runs_added == 0
    assert await runs(target) == before


async def test_runs_that_differ_in_little_are_told_apart(pair: tuple[Store, Store]) -> None:
    """By when they were asked for, and by why."""
    _, target = pair
    await add(target, "a")
    one = RunRecord(
        *(1, "default", "a", NOON, 1, "manual", NOON, NOON, NOON + 1, "success"),
        *(None, 0, None, None, None, "first"),
        output="one",
    )
    others = [
        one._replace(claimed_at=NOON + 1, output=None),
        one._replace(trigger="schedule", output="two"),
        one._replace(trigger="schedule", attempt=0, outcome="skipped", reason="misfire", missed=3, output=None),
        one._replace(trigger="retry", attempt=2),
        one._replace(scheduled_for=NOON - 1),
    ]
    elsewhere = one._replace(job_id="not here")

    assert await target.write_runs([one, elsewhere]) == 1
    assert await target.write_runs([*others, one]) == len(others)
    assert await target.write_runs([one, *others]) == 0
    assert (await all_of(target))[1] == [run._replace(id=0) for run in (one, *others)]


async def test_jobs_and_runs_are_read_in_slices(store: Store, node: int) -> None:
    """Each is read once, and what has not ended is not read at all."""
    for id in "abcde":
        await add(store, id)
    for run in (await claim(store, node, limit=4)).runs:
        await finish(store, run)
    await claim(store, node)

    jobs = [await jobs_in(store, 0, 2)]
    rows = [await runs_in(store, 0, 3)]
    while jobs[-1]:
        jobs.append(await jobs_in(store, jobs[-1][-1].uid, 2))
    while rows[-1]:
        rows.append(await runs_in(store, rows[-1][-1].id, 3))

    assert [[job.id for job in some] for some in jobs] == [["a", "b"], ["c", "d"], ["e"], []]
    assert [[run.job_id for run in some] for some in rows] == [["a", "b", "c"], ["d"], []]
    assert await store.count() == (5, 4)


async def test_a_slice_of_a_copy_is_whole_or_not_there(pair: tuple[Store, Store]) -> None:
    source, target = pair
    for id in "ab":
        await add(source, id)

    def fail_at_b(job: Job, there: Job | LeftOut | None) -> Ruling:
        if job.id == "b":
            raise ValueError("no")
        return Ruling(Verdict.ADDED, replace(job, uid=0))

    with pytest.raises(ValueError, match="no"):
        await target.write_jobs(await jobs_in(source), fail_at_b)

    assert await target.count() == (0, 0)
    assert (await copied(source, target)).verdicts == {Verdict.ADDED: 2}


# ---------------------------------------------------------------- opening, closing, other processes


async def test_a_closed_store_says_so(store: Store) -> None:
    """Better a clear error than a wait for an answer that will never come."""
    await store.close()

    with pytest.raises(StoreError, match="closed"):
        await store.get("default", "a")
    with pytest.raises(StoreError, match="closed"):
        await store.change([], NOON)
    await store.close()


async def test_a_store_that_is_opened_again_remembers_nothing_it_should_not(store: Store) -> None:
    """What it knew of jobs and handlers may have become something else in the meantime."""
    await add(store, "old", handler="old", payload="old")
    node = await store.join(identity("first"), NOON)
    await claim(store, node, handlers=["old"])
    await store.close()
    await store.open()
    node = await store.join(identity("second"), NOON)

    await add(store, "new", handler="new", payload="new")
    await add(store, "newer", handler="old", payload="newer")

    found = await job_of(store, "new")
    assert (found.id, found.handler, found.payload) == ("new", "new", "new")
    assert "old" in await ids(store)
    assert claimed_ids(await claim(store, node, handlers=["new"])) == ["new"]
    assert claimed_ids(await claim(store, node, handlers=["old"])) == ["newer"]


async def test_a_store_that_nothing_happened_to_passes_its_check(store: Store) -> None:
    """The check goes with every beat; a false alarm would stop the scheduler."""
    await add(store, "a")

    await store.check()


async def test_other_processes_see_what_was_written(neighbours: tuple[Store, Store]) -> None:
    """As soon as a call returns, everybody sees what it did."""
    one, other = neighbours
    job = await add(one, "a")
    assert await other.get("default", "a") == job

    await edit(other, "a", name="New")
    assert (await job_of(one, "a")).name == "New"

    await one.remove("default", "a", NOON)
    assert await other.get("default", "a") is None


async def test_the_version_changes_when_another_process_writes(neighbours: tuple[Store, Store]) -> None:
    """That is how a change made elsewhere is noticed within two seconds; own writes wake the loop anyway."""
    one, other = neighbours
    before = await one.version()

    await add(one, "mine")
    assert await one.version() == before
    await other.list_jobs(JobFilter())
    assert await one.version() == before

    await add(other, "theirs")
    after = await one.version()
    assert after != before
    assert await one.version() == after


async def test_limits_and_recovery_reach_across_processes(neighbours: tuple[Store, Store]) -> None:
    """Group limits count there what was claimed here, and the survivor takes over."""
    one, other = neighbours
    here, there = await one.join(identity("here"), NOON), await other.join(identity("there"), NOON)
    for id in "ab":
        await add(one, id, group="g")
    lost = await claim_only(one, here, group_limits={"g": 1})

    assert not (await claim(other, there, group_limits={"g": 1})).runs
    assert await other.running_by_group() == {group_key("default", "g"): 1}
    ((_, recovered),) = await other.recover([await node_row(other, here, seen_by=there)], NOON + MINUTE, RULES)

    assert recovered.id == lost.id
    assert await finish(one, lost) is None
    with pytest.raises(NodeLost):
        await claim(one, here)
    assert claimed_ids(await claim(other, there, NOON + MINUTE, group_limits={"g": 1})) == ["b"]


async def test_a_handler_that_another_process_forgot_is_found_again(neighbours: tuple[Store, Store]) -> None:
    """What one process knows of handlers may be out of date: it must neither miss jobs nor take those of others."""
    one, other = neighbours
    node = await one.join(identity("here"), NOON)
    await add(one, "a", handler="h")
    await add(one, "kept", handler="h2", schedule=HOURLY)
    assert claimed_ids(await claim(one, node, handlers=["h"], limit=0)) == []
    await other.remove("default", "a", NOON)
    await add(other, "b", handler="another")
    await add(other, "c", handler="h")

    await add(one, "d", handler="h")
    await edit(one, "kept", handler="h", schedule=EVERY_MINUTE)

    assert claimed_ids(await claim(one, node, handlers=["h"])) == ["c", "d", "kept"]
    assert claimed_ids(await claim(one, node, handlers=["another"])) == ["b"]


async def test_jobs_that_wait_for_a_handler_are_told_although_another_handler_was_forgotten(
    neighbours: tuple[Store, Store],
) -> None:
    one, other = neighbours
    node = await one.join(identity("here"), NOON)
    for id, handler in (("a", "x"), ("b", "y"), ("c", "z")):
        await add(one, id, handler=handler)
    first = await claim(one, node, handlers=["x", "y"])
    await finish(one, first.runs[1])
    await other.remove("default", "b", NOON)

    claims = await claim(one, node, handlers=["x", "y"])

    assert [job.id for job in claims.unhandled] == ["c"]


async def test_a_claim_names_only_so_many_jobs_that_wait_for_a_handler(store: Store, node: int) -> None:
    """One tenant may name a thousand handlers that nobody has."""
    await store.change([adding(f"{n}", handler=f"h {n}") for n in range(MOST_UNHANDLED + 5)], NOON)

    claims = await claim(store, node, handlers=["here"])

    assert len(claims.unhandled) == MOST_UNHANDLED


# ---------------------------------------------------------------- any sequence of all that


class Sharing(RuleBasedStateMachine):
    """Two nodes claim, finish, release and die in any order, and a model keeps the books."""

    NAMES = ("a", "b", "c", "d")

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = store
        self.now = NOON
        self.nodes: list[int] = []
        self.held: dict[int, tuple[int, ClaimedRun]] = {}  # what runs now: whose it is, and the claim
        self.lost: list[ClaimedRun] = []  # claims that are not theirs any more
        self.removed: set[int] = set()  # runs of jobs that are gone
        self.outcomes: dict[int, Outcome] = {}  # how runs ended, as far as their jobs are there
        self.released: set[int] = set()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def jobs(self) -> dict[str, Job]:
        return {job.id: job for job in self.do(self.store.list_jobs(JobFilter()))}

    def teardown(self) -> None:
        self.do(self.store.close())
        self.loop.close()

    @initialize()
    def open(self) -> None:
        self.do(self.store.open())
        self.nodes = [self.do(self.store.join(identity(name), NOON)) for name in ("first", "second")]

    # -------------------------------------------------------- what people do

    @rule(
        id=st.sampled_from(NAMES),
        schedule=st.sampled_from([EVERY_MINUTE, HOURLY, Delay("2m"), At(from_micros(NOON + HOUR)), Manual()]),
        misfire=st.sampled_from(["run_once", "skip"]),
        on_interrupt=st.sampled_from(["rerun", "skip"]),
        retry=st.sampled_from([None, Retry.none(), Retry.in_window(1)]),
        priority=st.sampled_from(["high", "low"]),
    )
    def add_or_edit(self, id: str, schedule: Schedule, **fields: Any) -> None:
        there = id in self.jobs()
        change = editing(id, now=self.now, schedule=schedule, **fields) if there else None
        self.do(self.store.change([change or adding(id, schedule, now=self.now, **fields)], self.now))

    @rule(id=st.sampled_from(NAMES), how=st.sampled_from([edits.pause, disable]))
    def stop_one(self, id: str, how: Callable[[Job, Micros], Transition]) -> None:
        if id in self.jobs():
            self.do(change_state(self.store, id, how, self.now))

    @rule(id=st.sampled_from(NAMES))
    def resume(self, id: str) -> None:
        job = self.jobs().get(id)
        if job is not None and job.disabled_reason != "ended":
            self.do(change_state(self.store, id, edits.resume, self.now))

    @rule(id=st.sampled_from(NAMES))
    def remove(self, id: str) -> None:
        rows = self.do(runs(self.store, namespace="default", id=id))
        self.do(self.store.remove("default", id, NOON))
        for run_id in [row.id for row in rows]:
            self.removed.add(run_id)
            if run_id in self.held:
                self.lost.append(self.held.pop(run_id)[1])
                self.outcomes[run_id] = Outcome.CANCELLED

    @rule(step=st.sampled_from([1, SECOND, 30 * SECOND, MINUTE, 10 * MINUTE, HOUR, -30 * SECOND, -HOUR]))
    def let_time_pass(self, step: Micros) -> None:
        self.now += step

    # -------------------------------------------------------- what nodes do

    @rule(who=st.sampled_from([0, 1]), limit=st.sampled_from([1, 2, 100]), slots=st.sampled_from([None, 0, 1]))
    def claim_what_is_due(self, who: int, limit: int, slots: int | None) -> None:
        before = self.jobs()
        rows = [row for row in self.do(runs(self.store)) if row.id not in self.removed]
        log = [row for row in rows if row.trigger is not Trigger.MANUAL]
        ran = {(row.job_id, row.scheduled_for, row.attempt) for row in log}
        verdicts = {id: decide(job, self.now, Room(), RULES)[0] for id, job in before.items()}
        due = sorted((job for job in before.values() if verdicts[job.id] in (None, SkipReason.MISFIRE)), key=order)
        expected = []
        for job in due[:limit]:
            attempt = claiming.claim(job, self.now, RULES).attempt
            if attempt is not None and (job.id, from_micros(attempt.scheduled_for), attempt.attempt) not in ran:
                expected.append(job.id)

        claims = self.do(claim(self.store, self.nodes[who], self.now, limit=limit, slots=slots))

        assert claimed_ids(claims) == expected
        for run in claims.runs:
            self.take(who, run, before[run.job.id])
        after = self.jobs().values()
        waiting = [job.state.next_run_at for job in after if job.status is Status.IDLE]
        assert claims.next_due == min((at for at in waiting if at is not None and at > self.now), default=None)

    @rule(who=st.sampled_from([0, 1]), id=st.sampled_from(NAMES), queued=st.booleans())
    def trigger_one(self, who: int, id: str, queued: bool) -> None:
        before = self.jobs().get(id)

        answer = self.do(self.store.claim_one("default", id, None, self.now, node=self.nodes[who], queued=queued))

        if isinstance(answer, ClaimedRun):
            assert before is not None
            self.take(who, answer, before)
        else:
            assert answer == before
            assert before is None or before.status in (Status.QUEUED, Status.RUNNING)

    def take(self, who: int, run: ClaimedRun, before: Job) -> None:
        assert run.before == before.state
        assert run.job.uid not in {other.job.uid for _, other in self.held.values()}
        assert run.id not in self.held.keys() | self.outcomes.keys() | self.released
        self.held[run.id] = (who, run)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def start_some(self, data: st.DataObject) -> None:
        chosen = self.choose(data)

        assert self.do(self.store.start([*chosen, *self.lost], self.now)) == {run.id for run in chosen}

    @precondition(lambda self: self.held)
    @rule(data=st.data(), ending=st.sampled_from([SUCCESS, ERROR, Ending(outcome=Outcome.CANCELLED)]))
    def finish_some(self, data: st.DataObject, ending: Ending) -> None:
        chosen = self.choose(data)

        answers = self.do(self.store.finish([ended(run, ending, self.now) for run in chosen], RULES))

        for run, answer in zip(chosen, answers, strict=True):
            assert answer is not None
            assert answer.job == self.jobs()[run.job.id]
            self.outcomes[run.id] = ending.outcome
            self.lost.append(self.held.pop(run.id)[1])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release_some(self, data: st.DataObject) -> None:
        chosen = self.choose(data)

        self.do(self.store.release(chosen))

        for run in chosen:
            self.released.add(run.id)
            self.lost.append(self.held.pop(run.id)[1])

    def choose(self, data: st.DataObject) -> list[ClaimedRun]:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), min_size=1, unique=True))
        return [self.held[run_id][1] for run_id in chosen]

    @precondition(lambda self: self.lost)
    @rule()
    def come_too_late(self) -> None:
        before = self.jobs()

        # Later than anything on record: what was told before may be told again.
        answers = self.do(self.store.finish([ended(run, ERROR, self.now + 1) for run in self.lost], RULES))
        self.do(self.store.release(self.lost))

        assert answers == [None] * len(self.lost)
        assert self.jobs() == before

    @rule(who=st.sampled_from([0, 1]), beats=st.booleans())
    def die(self, who: int, beats: bool) -> None:
        seen = self.do(node_row(self.store, self.nodes[who], seen_by=self.nodes[1 - who]))
        if beats:
            self.do(self.store.beat(self.nodes[who]))

        recovered = self.do(self.store.recover([seen], self.now, RULES))

        theirs = [run_id for run_id, (owner, _) in self.held.items() if owner == who]
        assert sorted(run.id for _, run in recovered) == ([] if beats else sorted(theirs))
        if not beats:
            for run_id in theirs:
                self.outcomes[run_id] = Outcome.INTERRUPTED
                self.lost.append(self.held.pop(run_id)[1])
            for row in self.do(runs(self.store)):
                if row.outcome is None and row.node is None:  # it repeats a manual run
                    self.do(self.store.request_cancel(row.id, None, self.now))
                    self.outcomes[row.id] = Outcome.CANCELLED
            self.nodes[who] = self.do(self.store.join(identity("again"), self.now))

    # -------------------------------------------------------- what always holds

    @invariant()
    def every_claim_is_somebodys(self) -> None:
        for who, number in enumerate(self.nodes):
            expected = {run_id for run_id, (owner, _) in self.held.items() if owner == who}
            assert self.do(self.store.held(number)) == expected

    @invariant()
    def a_job_is_busy_while_it_is_claimed_and_only_then(self) -> None:
        if self.nodes:
            jobs = self.jobs()
            busy = {id for id, job in jobs.items() if job.status in (Status.QUEUED, Status.RUNNING)}
            assert busy == {run.job.id for _, run in self.held.values()}
            assert {id: self.do(self.store.get("default", id)) for id in jobs} == jobs

    @invariant()
    def every_run_has_one_outcome_or_none_yet(self) -> None:
        if self.nodes:
            rows = [row for row in self.do(runs(self.store)) if row.attempt > 0]
            assert {row.id: row.outcome for row in rows} == {**dict.fromkeys(self.held), **self.outcomes}
            assert len({row.id for row in rows}) == len(rows)
            planned = [row for row in rows if row.trigger is not Trigger.MANUAL and row.id not in self.removed]
            assert len({(row.job_id, row.scheduled_for, row.attempt) for row in planned}) == len(planned)


@pytest.mark.parametrize("kind", STORES)
def test_two_nodes_share_jobs_in_any_order_of_events(kind: str, tmp_path: Path) -> None:
    """A job is never held by two claims, and every run has exactly one outcome, or was released."""
    directories = itertools.count()

    class Here(Sharing):
        def __init__(self) -> None:
            directory = tmp_path / str(next(directories))
            directory.mkdir()
            super().__init__(store_at(kind, directory))

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples={"memory": 50, "postgres": 5}.get(kind, 10),
            stateful_step_count=30,
            phases=set(Phases) - {Phases.explain},  # which traces every line, and takes minutes
        ),
    )
