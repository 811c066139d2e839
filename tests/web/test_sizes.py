"""Pages stay below 60 kB, whatever they show: payloads, texts, names and failures of any length."""

from __future__ import annotations

import html
import re
import threading

import pytest

from scheduler_async import Every, JobSpec, Run, Scheduler
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import MAX_NAME_LENGTH
from scheduler_async.testing import VirtualClock
from scheduler_async.web.links import Links
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


# ---------------------------------------------------------------- names


@pytest.fixture(params=['"', "日", "😀"], ids=ascii)
async def named(request: pytest.FixtureRequest, new_scheduler: NewScheduler, clock: VirtualClock) -> Scheduler:
    """Sixty jobs with names as long as names can be, which fail with long errors."""
    scheduler = new_scheduler(":memory:", knows_work=False)
    longest = request.param * (MAX_NAME_LENGTH - 2)

    async def fail() -> None:
        raise ValueError(f"{request.param}<&" * 2_000)

    scheduler.handler(longest)(fail)
    await scheduler.start()
    await scheduler.add_jobs(
        [
            JobSpec(
                Every("1h", immediately=True),
                handler=longest,
                id=f"{number:02}{longest}",
                namespace=longest,
                name=longest,
            )
            for number in range(60)
        ]
    )
    await clock.advance("1s")
    return scheduler


@pytest.mark.once
async def test_names_of_any_length_leave_pages_small(named: Scheduler) -> None:
    """A list with long names has fewer rows, and goes on where it ends."""
    (job, *_) = (await named.jobs_page(limit=1)).items
    links = Links(0)
    name = links.to("jobs", job.namespace, job.id)
    of_job = {"namespace": job.namespace, "id": job.id}
    places = [
        *(
            "./",
            "./jobs",
            "./jobs?status=failing",
            "./runs",
            "./changes",
            "./timeline",
            "./runs/1",
            name,
            f"{name}/run",
        ),
        *(links.to(page, query=of_job) for page in ("runs", "changes")),
        links.to("jobs", query={"text": job.id}),
    ]

    async with visitor(page_of(named)) as client:
        for place in places:
            answer = await client.get(place[1:])
            assert answer.status_code == 200, place
            assert len(answer.content) < LARGEST_PAGE, place
        assert job.id in (await client.get(name[1:])).text.replace("&#34;", '"')
        count, more = 0, "?limit=40"
        while more:
            text = (await client.get(f"/jobs{more}")).text
            count += text.count("<tr id=")
            found = re.search(r'rel="next" href="(.*?)"', text)
            more = html.unescape(found[1]) if found else ""

    assert count == 60


async def test_usual_names_leave_lists_as_long_as_they_are(new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_jobs(
        [JobSpec(Every("1h"), handler="work", id=f"nightly-import-of-orders-{n}") for n in range(60)]
    )

    async with visitor(page_of(scheduler)) as client:
        assert (await client.get("/jobs")).text.count("<tr id=") == 40
        assert (await client.get("/changes")).text.count("<tr id=") == 50
