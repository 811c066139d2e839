"""Pages stay below 60 kB, whatever they show: payloads, texts, names and failures of any length."""

from __future__ import annotations

import re
import threading

import pytest

from scheduler_async import Every, Run, Scheduler
from scheduler_async.jobs.json_text import Json
from scheduler_async.testing import VirtualClock
from scheduler_async.web.pages.previews import preview_of
from scheduler_async.web.templating import lines_of
from tests.cast import NewScheduler
from tests.web.visitors import page_of, visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

LARGEST_PAGE = 60_000  # bytes
SECRET = "swordfish"


# ---------------------------------------------------------------- payloads and texts


@pytest.fixture
async def large(new_scheduler: NewScheduler, clock: VirtualClock) -> Scheduler:
    """A job with a payload of a megabyte, and a run that leaves as much as a run can leave."""
    scheduler = new_scheduler(":memory:", knows_work=False)

    @scheduler.handler("talk")
    async def talk(run: Run) -> None:
        run.write("<&\"'日本\n" * 20_000 + "the last line")
        run.progress(0.5, message="<日>" * 500)
        raise ValueError("<&\"'日本\n" * 20_000)

    await scheduler.start()
    payload = {"password": SECRET, "lines": [f'"{number}" & <日本>' for number in range(40_000)]}
    await scheduler.add_job(
        Every("1h", immediately=True), handler="talk", id="a", payload=payload, metadata={"note": "日" * 100_000}
    )
    await clock.advance("1s")
    return scheduler


@pytest.mark.parametrize("page", ["jobs/default/a", "runs/1", "", "runs", "changes"])
async def test_payloads_and_texts_are_shown_as_far_as_there_is_room(large: Scheduler, page: str) -> None:
    async with visitor(page_of(large)) as client:
        answer = await client.get(f"/{page}")

    assert answer.status_code == 200
    assert len(answer.content) < LARGEST_PAGE
    assert SECRET not in answer.text


async def test_a_cut_text_says_so_and_leads_to_the_whole(large: Scheduler) -> None:
    async with visitor(page_of(large)) as client:
        job, run = (await client.get("/jobs/default/a")).text, (await client.get("/runs/1")).text

    assert re.search(r'Payload <span class="dim">its beginning</span><a class="more" href="../../api/v1/jobs/', job)
    assert re.search(r'Output <span class="dim">its end</span><a class="more" href="../api/v1/runs/1/output', run)
    assert "the last line" in run


async def test_large_values_are_searched_for_secrets_in_threads(large: Scheduler) -> None:
    """A megabyte takes so long that jobs would start late."""
    threads = set[str]()

    def redact(value: Json) -> Json:
        if isinstance(value, dict) and "lines" in value:
            threads.add(threading.current_thread().name)
        return value

    async with visitor(page_of(large, redact=redact)) as client:
        for place in ("jobs/default/a", "runs/1", "api/v1/jobs", "api/v1/jobs/default/a", "api/v1/runs/1"):
            assert (await client.get(f"/{place}")).status_code == 200

    assert threads
    assert "MainThread" not in threads


async def test_a_list_of_jobs_leaves_out_large_payloads(large: Scheduler) -> None:
    async with visitor(page_of(large)) as client:
        listed = await client.get("/api/v1/jobs")
        whole = (await client.get("/api/v1/jobs/default/a")).json()

    (job,) = listed.json()["items"]
    assert (job["payload"], job["metadata"], job["redacted"]) == (None, None, ["payload", "metadata"])
    assert len(listed.content) < 100_000
    assert len(whole["payload"]["lines"]) == 40_000


@pytest.mark.parametrize("letter", ["a", "<", "日", "\x1b", "\udc80", "\n"], ids=ascii)
@pytest.mark.parametrize("is_end", [False, True])
def test_a_preview_fits_its_room(letter: str, is_end: bool) -> None:
    found = preview_of(letter * 5_000, 1_000, is_end=is_end)

    assert found.is_cut
    assert 0 < len(lines_of(found.text).encode()) <= 1_000
    assert preview_of(letter * 10, 1_000, is_end=is_end).text == letter * 10
