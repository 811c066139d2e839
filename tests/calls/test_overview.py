"""The calls behind a page for operators: pages, counts, tallies, plans, and what needs attention."""

from __future__ import annotations

from datetime import timedelta

import pytest

from scheduler_async import (
    ConcernKind,
    Cron,
    Every,
    InvalidJobError,
    InvalidScheduleError,
    JobNotFoundError,
    JobSpec,
    Manual,
    Outcome,
    Page,
    RunRow,
    Scheduler,
    Status,
)
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, NewScheduler, Worker


async def add(
    scheduler: Scheduler, *ids: str, namespace: str = "default", every: str = "5m", **options: object
) -> None:
    spec = {"handler": "work", "namespace": namespace, **options}
    await scheduler.add_jobs([JobSpec(Every(every), id=name, **spec) for name in ids])  # type: ignore[arg-type]


async def all_ids(scheduler: Scheduler, limit: int = 2, **conditions: object) -> list[str]:
    """The names of all jobs that meet the *conditions*, read page by page."""
    names: list[str] = []
    after = None
    while True:
        page = await scheduler.jobs_page(after=after, limit=limit, **conditions)  # type: ignore[arg-type]
        names += [job.key for job in page.items]
        if page.next is None:
            return names
        assert len(page.items) == limit
        after = page.next


# ---------------------------------------------------------------- jobs


async def test_pages_hold_each_job_once_by_their_next_run(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "c", every="1m")
    await add(scheduler, "b", "a", every="2m")
    await scheduler.add_job(Manual(), handler="work", id="by-hand")
    await add(scheduler, "paused", every="1m")
    await scheduler.pause_job("paused")

    expected = ["default/c", "default/b", "default/a", "default/by-hand", "default/paused"]
    for limit in (1, 2, 3, 50):
        assert await all_ids(scheduler, limit) == expected


async def test_jobs_in_progress_come_first(every_store: str, new_scheduler: NewScheduler, worker: Worker) -> None:
    worker.blocks = True
    scheduler = new_scheduler(every_store)
    await add(scheduler, "soon", every="1m")
    await add(scheduler, "running", every="1d")
    await scheduler.start()
    await scheduler.trigger_job("running")

    assert await all_ids(scheduler) == ["default/running", "default/soon"]
    assert await all_ids(scheduler, status="running") == ["default/running"]
    worker.go.set()


async def test_pages_by_name(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "b", "a", "B", "å")
    await add(scheduler, "a", namespace="another")

    assert await all_ids(scheduler, order="name") == [
        *("another/a", "default/B", "default/a", "default/b", "default/å"),
    ]


async def test_a_text_is_searched_in_names_and_titles(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "daily-report", "report", "REPORT-2", "other")
    await add(scheduler, "report", namespace="shop")
    await add(scheduler, "titled", name="The Report of the day")

    for limit in (1, 2, 50):
        assert await all_ids(scheduler, limit, text="report") == [
            *("default/report", "shop/report", "default/REPORT-2", "default/daily-report", "default/titled"),
        ]
    assert await all_ids(scheduler, text="shop/r") == ["shop/report"]
    assert await all_ids(scheduler, text="%") == []
    assert await all_ids(scheduler, text="_") == []


async def test_conditions_of_jobs(every_store: str, new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", group="mail")
    await add(scheduler, "b", handler="another")
    await add(scheduler, "c", namespace="shop")
    await scheduler.pause_job("a")
    await scheduler.disable_job("b")

    assert await all_ids(scheduler, group="mail") == ["default/a"]
    assert await all_ids(scheduler, handler="another") == ["default/b"]
    assert await all_ids(scheduler, namespaces=["shop"]) == ["shop/c"]
    assert await all_ids(scheduler, namespaces=[]) == []
    assert await all_ids(scheduler, status=Status.PAUSED) == ["default/a"]
    assert await all_ids(scheduler, status="disabled") == ["default/b"]
    assert await all_ids(scheduler, status="late") == []
    clock.set(NOON + HOUR)
    assert await all_ids(scheduler, status="late") == ["shop/c"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"order": "random"}, "order"),
        ({"status": "dead"}, "status"),
        ({"limit": 0}, "limit"),
        ({"limit": 1_000_000}, "limit"),
        ({"after": "x"}, "after"),
        ({"after": "W10"}, "after"),
        ({"after": "WzEsMl0"}, "after"),
        ({"namespaces": "shop"}, "namespaces"),
        ({"ids": "daily"}, "ids"),
        ({"text": "\0"}, "text"),
        ({"ended": 1}, "ended"),
    ],
    ids=str,
)
async def test_bad_arguments_are_refused(arguments: dict[str, object], field: str) -> None:
    scheduler = Scheduler(":memory:")

    with pytest.raises(InvalidJobError) as caught:
        await scheduler.jobs_page(**arguments)  # type: ignore[arg-type]

    assert caught.value.field == field


# ---------------------------------------------------------------- runs and changes


async def runs_of(scheduler: Scheduler, **conditions: object) -> list[RunRow]:
    rows: list[RunRow] = []
    page: Page[RunRow] | None = None
    while page is None or page.next is not None:
        after = None if page is None else page.next
        page = await scheduler.runs_page(after=after, limit=2, **conditions)  # type: ignore[arg-type]
        rows += page.items
    return rows


async def test_pages_of_runs_are_the_run_log(
    every_store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", "b")
    await add(scheduler, "a", namespace="shop")
    for minute in (5, 10, 15):
        worker.answer = RuntimeError("no") if minute == 10 else None
        clock.set(NOON + minute * MINUTE)
        await scheduler.run_pending()

    everything = await scheduler.run_log(limit=None)
    assert await runs_of(scheduler) == everything
    assert await runs_of(scheduler, id="a") == await scheduler.run_log("a", limit=None)
    assert await runs_of(scheduler, namespace="shop") == await scheduler.run_log(namespace="shop", limit=None)
    assert await runs_of(scheduler, namespaces={"shop"}) == await scheduler.run_log(namespace="shop", limit=None)
    assert await runs_of(scheduler, namespaces={"shop"}, namespace="default") == []
    assert await runs_of(scheduler, outcome="error") == [row for row in everything if row.outcome == "error"]
    late = NOON + 12 * MINUTE
    assert await runs_of(scheduler, since=late) == await scheduler.run_log(since=late)


async def test_pages_of_changes_are_the_changes(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", "b")
    await add(scheduler, "a", namespace="shop")
    await scheduler.pause_job("a")

    first = await scheduler.changes_page(limit=3)
    second = await scheduler.changes_page(limit=3, after=first.next)

    assert [*first.items, *second.items] == await scheduler.changes()
    assert second.next is None
    assert (await scheduler.changes_page(id="a")).items == tuple(await scheduler.changes("a"))
    assert [row.namespace for row in (await scheduler.changes_page(namespaces=["shop"])).items] == ["shop"]


async def test_recent_runs_come_oldest_first(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", "b")
    for minute in (5, 10, 15):
        clock.set(NOON + minute * MINUTE)
        await scheduler.run_pending()

    a, missing, b = await scheduler.recent_runs([("default", "a"), ("default", "x"), ("default", "b")], n=2)

    assert list(a) == (await scheduler.run_log("a", limit=2))[::-1]
    assert missing == ()
    assert list(b) == (await scheduler.run_log("b", limit=2))[::-1]


# ---------------------------------------------------------------- numbers


async def test_counts_by_what_jobs_do(every_store: str, new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", "b", "c")
    await add(scheduler, "d", namespace="shop")
    await scheduler.pause_job("a")
    await scheduler.disable_job("b")

    counts = await scheduler.counts()
    assert str(counts.idle) == "2"
    assert (counts.paused.n, counts.disabled.n, counts.late.n, counts.total.n) == (1, 1, 0, 4)
    assert counts.next_run_at == NOON + 5 * MINUTE
    clock.set(NOON + HOUR)
    assert (await scheduler.counts()).late.n == 2
    assert (await scheduler.counts(namespaces=["shop"])).total.n == 1
    assert (await scheduler.counts(namespaces=[])).total.n == 0


async def test_the_tally_counts_ended_runs_and_skipped_occurrences(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", every="20m")
    for minute in (20, 40, 70, 200):
        clock.set(NOON + minute * MINUTE)
        await scheduler.run_pending()

    rows = (await scheduler.tally(since=NOON)).items
    by_hour = {(row.hour, row.outcome): row.n for row in rows}

    assert by_hour[NOON, Outcome.SUCCESS] == 2
    by_outcome = (await scheduler.tally(since=NOON, by=["outcome"], limit=1)).items
    assert [(row.hour, row.node, row.outcome) for row in by_outcome] == [(None, None, Outcome.SKIPPED)]
    with pytest.raises(InvalidJobError, match="by must be some of hour, namespace, outcome, node"):
        await scheduler.tally(since=NOON, by=["day"])
    with pytest.raises(InvalidScheduleError, match='Cannot read "1h" as the value of since'):
        await scheduler.tally(since="1h")
    assert by_hour[NOON + HOUR, Outcome.SUCCESS] == 1
    assert by_hour[NOON + 3 * HOUR, Outcome.SKIPPED] > 1
    assert (await scheduler.tally(since=NOON, namespaces=["shop"])).items == ()
    assert {row.hour for row in (await scheduler.tally(since=NOON, until=NOON + MINUTE)).items} == {NOON}
    assert (await scheduler.counts()).left_out.n == by_hour[NOON + 3 * HOUR, Outcome.SKIPPED]


async def test_planned_occurrences_by_hour(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", every="30m")
    await add(scheduler, "b", every="1h")

    planned = await scheduler.planned(until=NOON + 3 * HOUR)

    assert planned.exact
    assert planned.hours == ((NOON, 1), (NOON + HOUR, 3), (NOON + 2 * HOUR, 3))
    assert not (await scheduler.planned(until=NOON + 3 * HOUR, most=1)).exact
    assert sum(n for _, n in (await scheduler.planned(until=NOON + 3 * HOUR, namespaces=[])).hours) == 0


async def test_a_sample_has_no_rhythm_of_its_own(every_store: str, new_scheduler: NewScheduler) -> None:
    """Jobs are often added in turn. Looking at every second one would find only one kind of them."""
    scheduler = new_scheduler(every_store)
    names = [f"{number:03}" for number in range(200)]
    specs = [JobSpec(Every("1h" if number % 2 else "1d"), handler="work", id=name) for number, name in enumerate(names)]
    await scheduler.add_jobs(specs)

    planned = await scheduler.planned(until=NOON + 10 * HOUR, most=100)

    assert not planned.exact
    assert 700 < sum(n for _, n in planned.hours) < 1_100  # in fact 900


async def test_jobs_are_found_by_their_ids(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    for name in ("a", "b", "c"):
        await add(scheduler, name)
        await add(scheduler, name, namespace="shop")

    found = await scheduler.jobs_page(ids=["a", "c", "unknown"], namespaces=["shop"])

    assert sorted(job.id for job in found.items) == ["a", "c"]
    assert {job.namespace for job in found.items} == {"shop"}
    assert (await scheduler.jobs_page(ids=[])).items == ()


# ---------------------------------------------------------------- attention


async def test_nothing_needs_attention_while_all_is_well(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a")
    await scheduler.start()

    assert await scheduler.attention() == []


async def test_failing_and_disabled_jobs_need_attention(
    every_store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", every="1h")
    await scheduler.start()
    worker.answer = RuntimeError("no answer")

    await clock.advance(HOUR + MINUTE)
    (failing,) = await scheduler.attention()
    assert (failing.kind, failing.job_id) == (ConcernKind.FAILING, "a")
    assert "no answer" in failing.cause
    assert "4 more failures disable it" in failing.effect

    await clock.advance(6 * HOUR)
    (disabled,) = await scheduler.attention()
    assert (disabled.kind, disabled.job_id) == (ConcernKind.DISABLED, "a")
    assert await scheduler.attention(namespaces=["shop"]) == []


async def test_a_run_that_takes_much_longer_than_usual_is_stuck(
    every_store: str, new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", every="1h")
    await scheduler.start()
    worker.takes = "1m"
    await clock.advance(6 * HOUR + 2 * MINUTE)
    worker.blocks = True
    await clock.advance(timedelta(minutes=60))
    assert await scheduler.attention() == []

    await clock.advance(4 * MINUTE)

    (stuck,) = await scheduler.attention()
    assert stuck.kind is ConcernKind.STUCK
    assert stuck.run_id is not None
    worker.go.set()


async def test_a_job_without_handler_or_scheduler(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    await add(scheduler, "a", "b", handler="missing")
    assert [one.kind for one in await scheduler.attention()] == [ConcernKind.NO_SCHEDULER]

    await scheduler.start()
    await clock.advance(10 * MINUTE)

    (concern,) = await scheduler.attention()
    assert concern.kind is ConcernKind.NO_HANDLER
    assert "missing" in str(concern)


# ---------------------------------------------------------------- what is next, and whether to look again


async def test_upcoming_runs_have_notes_on_daylight_saving(every_store: str, new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(every_store)
    await scheduler.add_job(Cron("30 2 28-30 3 *", tz="Europe/Stockholm"), handler="work", id="a")

    first, second = await scheduler.upcoming("a", n=2)

    assert first.at.isoformat() == "2026-03-28T01:30:00+00:00"
    assert first.note is None
    assert second.note is not None
    assert "02:30 does not exist" in second.note
    with pytest.raises(JobNotFoundError):
        await scheduler.upcoming("b")


async def test_the_mark_changes_with_every_change(
    every_store: str, new_scheduler: NewScheduler, clock: VirtualClock
) -> None:
    scheduler = new_scheduler(every_store)
    marks = [await scheduler.mark()]
    await add(scheduler, "a")
    marks.append(await scheduler.mark())
    clock.set(NOON + 5 * MINUTE)
    await scheduler.run_pending()
    marks.append(await scheduler.mark())

    assert len(set(marks)) == 3
    assert await scheduler.mark() == marks[-1]
