"""For load balancers and Prometheus: the state without access, figures with it; and a store that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_async import Every, Scheduler, StoreError
from scheduler_async.web import everyone
from scheduler_async.web.application import PageApplication
from tests.cast import NewScheduler
from tests.web.visitors import page_of, visitor


async def test_health_needs_no_access_and_tells_the_state_alone(shown: Scheduler, page: PageApplication) -> None:
    async with visitor(page, None) as client:
        answers = [await client.get(address) for address in ("/healthz", "/readyz")]

    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"status": "ok"})] * 2


async def test_a_scheduler_that_has_not_started_lives_and_is_not_ready(idle: Scheduler) -> None:
    async with visitor(page_of(idle), None) as client:
        alive, ready = await client.get("/healthz"), await client.get("/readyz")

    assert (alive.status_code, ready.status_code) == (200, 503)
    assert ready.json() == {"status": "stopped"}
    assert int(ready.headers["retry-after"]) > 0


async def test_a_store_that_cannot_be_read_is_a_state_and_not_a_sentence(path: Path) -> None:
    """Everybody who reaches the port could read the path or the address of the store."""
    path.write_bytes(b"the database of another program" * 100)
    page = PageApplication(Scheduler(path), access=everyone("look"), is_standalone=True)

    async with visitor(page, None) as client:
        answers = [await client.get(address) for address in ("/healthz", "/readyz")]

    assert [(answer.status_code, answer.json()) for answer in answers] == [(503, {"status": "failing"})] * 2


async def test_metrics_are_in_the_format_of_prometheus(page: PageApplication) -> None:
    async with visitor(page, "prometheus look", site=False) as client:
        answer = await client.get("/metrics")

    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    jobs = {sample.labels["state"]: sample.value for sample in families["scheduler_jobs"].samples}
    runs = {tuple(sample.labels.values()): sample.value for sample in families["scheduler_runs_last_day"].samples}
    concerns = {sample.labels["kind"]: sample.value for sample in families["scheduler_concerns"].samples}
    assert (jobs["idle"], jobs["failing"]) == (3, 1)
    assert runs == {("acme", "error"): 2, ("default", "success"): 2}
    assert concerns["failing"] == 1
    assert [sample.value for sample in families["scheduler_nodes"].samples] == [1]


async def test_a_tenant_has_no_figures_of_all(page: PageApplication) -> None:
    async with visitor(page, "tina look tenants=acme") as tina:
        text = (await tina.get("/metrics")).text
        health = (await tina.get("/api/v1/health")).json()
        nodes = (await tina.get("/api/v1/nodes")).json()

    assert "scheduler_node" not in text
    assert 'namespace="default"' not in text
    assert health["counts"]["total"] == {"n": 2, "exact": True}
    assert health["lateness"] is None
    assert nodes["items"] == []


async def test_a_store_that_fails_is_a_sentence_and_recovers_by_itself(new_scheduler: NewScheduler, path: Path) -> None:
    scheduler = new_scheduler(path)
    await scheduler.add_job(Every("1m"), handler="work", id="a")
    page = page_of(scheduler)
    store = scheduler._store
    works = type(store).get

    async def fails(*_: object) -> None:
        raise StoreError("The disk is full.")

    async with visitor(page) as anna:
        before = await anna.get("/api/v1/jobs/default/a")
        store.get = fails  # type: ignore[method-assign, assignment]
        problem = await anna.get("/api/v1/jobs/default/a")
        paused = await anna.post("/api/v1/jobs/bulk", json={"action": "pause", "ids": ["default/a"]})
        del store.get
        after = await anna.get("/api/v1/jobs/default/a")

    assert type(store).get is works
    assert (before.status_code, problem.status_code, after.status_code) == (200, 503, 200)
    assert problem.json()["detail"] == "The disk is full."
    assert int(problem.headers["retry-after"]) > 0
    assert paused.json()["items"][0]["problem"]["status"] == 503


@pytest.mark.parametrize("place", ["/", "/jobs/acme/a", "/api/v1/jobs/acme/a", "/metrics", "/feed"])
async def test_visitors_of_some_namespaces_do_not_learn_where_the_store_is(
    new_scheduler: NewScheduler, path: Path, place: str
) -> None:
    """Its address is the name of a host, a user and a database that all tenants share."""
    path.write_bytes(b"this is no database at all, only some text that is long enough to be read" * 20)
    page = page_of(new_scheduler(path))

    async with visitor(page) as anna, visitor(page, "tina manage payloads tenants=acme") as tina:
        of_anna, of_tina = await anna.get(place), await tina.get(place)
        bulk = await tina.post("/api/v1/jobs/bulk", json={"action": "pause", "ids": ["acme/a"]})

    assert of_anna.status_code == of_tina.status_code == 503
    assert path.name not in of_tina.text + bulk.text
    assert path.name in of_anna.text


async def test_a_file_that_is_gone_is_a_sentence_for_people_and_programs(
    new_scheduler: NewScheduler, path: Path
) -> None:
    path.write_bytes(b"this is no database at all, only some text that is long enough to be read" * 20)
    async with visitor(page_of(new_scheduler(path))) as anna:
        answers = [await anna.get(address) for address in ("/", "/api/v1/jobs", "/api/v1/runs", "/metrics", "/feed")]
        health = await anna.get("/api/v1/health")
        path.unlink()
        recovered = await anna.get("/api/v1/jobs")

    for answer in answers[1:]:
        assert answer.status_code == 503, answer.text
        assert answer.json()["type"].startswith("Store")
        assert "retry-after" in answer.headers
        assert "Traceback" not in answer.text
    assert health.status_code == 503
    assert health.json()["ok"] is False
    assert recovered.status_code == 200


@pytest.mark.parametrize("address", ["/", "/api/v1/jobs"])
async def test_a_bug_shows_no_traceback(
    shown: Scheduler, page: PageApplication, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(**_: object) -> None:
        raise ZeroDivisionError("the secret of the house")

    for name in ("jobs_page", "counts", "attention"):
        monkeypatch.setattr(Scheduler, name, broken)
    monkeypatch.setattr("scheduler_async.web.visit.Visit.html", broken, raising=True)

    async with visitor(page) as anna:
        answer = await anna.get(address)

    assert answer.status_code == 500
    assert "secret of the house" not in answer.text
    assert answer.json()["type"] == "InternalError"
    assert "content-security-policy" in answer.headers
