"""Every page without a browser: strict HTML, links that lead somewhere, nothing inline, and what must not be shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urljoin, urlsplit

import html5lib
import httpx
import pytest

from scheduler_async import Cron, Every, JobSpec, Manual, Run, Scheduler
from scheduler_async.stores.sqlite.store import SQLiteStore
from scheduler_async.testing import VirtualClock
from scheduler_async.web.links import segment_of
from tests.cast import NewScheduler, Worker
from tests.web.shop_server import Shop, served_shop
from tests.web.visitors import page_of, visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

LARGEST_PAGE = 60_000  # bytes
LARGEST_SCRIPT = 16 * 1024

PAGES = ["", "jobs", "runs", "timeline", "nodes", "changes"]

XHTML = "{http://www.w3.org/1999/xhtml}"


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with served_shop() as shop:
        yield shop


def parsed(text: str) -> list[tuple[str, dict[str, str]]]:
    """The elements of a page, which must be without any error."""
    tree = html5lib.HTMLParser(strict=True).parse(text)
    return [
        (str(element.tag).rpartition("}")[2], dict(element.attrib))
        for element in tree.iter()
        if isinstance(element.tag, str)
    ]


def check_page(text: str) -> list[tuple[str, dict[str, str]]]:
    """Check that a page has nothing inline and nothing from elsewhere."""
    elements = parsed(text)
    for tag, attributes in elements:
        assert "style" not in attributes, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert tag != "style"
        for name in ("href", "src", "action"):
            target = attributes.get(name, "")
            assert not urlsplit(target).scheme, target
            assert not target.startswith("/"), "links must be relative, so that they work below any prefix"
        if tag == "script":
            assert attributes.get("src")
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "an id must be unique"
    assert text.count("<h1") == 1
    return elements


def kind_of(url: str) -> str:
    """Which page it is, and with which parameters, whatever its job or run and their values."""
    parts = urlsplit(url)
    return re.sub(r"/default/[^/]+|\d+", "N", parts.path) + str(sorted(dict(parse_qsl(parts.query))))


def test_all_links_lead_to_pages_that_are_well_formed(shop: Shop) -> None:
    """From the overview on, as somebody clicks."""
    seen: dict[str, int] = {}
    found = {f"{shop.base}/"}
    with httpx.Client() as client:
        while found:
            url = found.pop()
            answer = client.get(url)
            seen[url] = answer.status_code
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            assert len(answer.content) < LARGEST_PAGE, url
            for tag, attributes in check_page(answer.text):
                target = attributes.get("href") if tag in ("a", "link") else attributes.get("src")
                if not target or target.startswith("#"):
                    continue
                link = urljoin(url, target).partition("#")[0]
                assert link.startswith(shop.base)
                # Two of each kind are enough: there are thousands of runs.
                if link not in seen and sum(kind_of(other) == kind_of(link) for other in (*seen, *found)) < 2:
                    found.add(link)

    assert set(seen.values()) == {200}, {url: status for url, status in seen.items() if status != 200}
    assert len({kind_of(url) for url in seen}) > 20


@pytest.mark.parametrize("page", [*PAGES, "jobs/default/prices", "jobs/default/search-index", "runs/100"])
def test_pages_are_small(shop: Shop, page: str) -> None:
    assert len(httpx.get(f"{shop.base}/{page}").content) < LARGEST_PAGE


def test_the_script_and_the_style_are_small(shop: Shop) -> None:
    assert len(httpx.get(f"{shop.base}/static/page.js").content) < LARGEST_SCRIPT
    assert len(httpx.get(f"{shop.base}/static/page.css").content) < 24 * 1024


@pytest.mark.parametrize("page", [*PAGES, "jobs/default/prices", "runs/100", "jobs/default/prices/pause"])
def test_pages_allow_nothing_from_elsewhere(shop: Shop, page: str) -> None:
    policy = httpx.get(f"{shop.base}/{page}").headers["content-security-policy"]

    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def words_of(text: str) -> str:
    """What a page says, without its markup."""
    tree = html5lib.parse(text)
    main = next(element for element in tree.iter() if element.get("id") == "main")
    return " ".join(" ".join(main.itertext()).split())


def test_the_overview_tells_what_is_going_on(shop: Shop) -> None:
    said = words_of(httpx.get(shop.base).text)

    assert said.startswith("Works ")
    assert "Needs attention: 1 job disabled by failures, 1 run stuck, 1 job failing." in said
    assert (
        "prices since 10:00:12 CET It failed 4 times in a row: TimeoutError: no answer from prices.example.com" in said
    )
    assert "1 more failure disables it." in said
    assert "import-stock since 08:20 CET It has been running for 1 hour 42 minutes" in said
    assert "thumbnails since 02:45:07 CET It was disabled: 5 failures in a row" in said
    assert "import-stock 34 % 34 % 140,000 of 412,000 rows 08:20:00 CET 1h 42m" in said


def test_a_job_tells_why_it_did_not_run(shop: Shop) -> None:
    said = words_of(httpx.get(f"{shop.base}/jobs/default/newsletter", params={"at": "2026-11-17T16:00"}).text)

    assert "was paused at 2026-11-17 16:00 CET since 2026-11-17 14:40 CET, by anna: new template." in said


def test_a_job_shows_its_next_runs_in_its_zone(shop: Shop) -> None:
    said = words_of(httpx.get(f"{shop.base}/jobs/default/weekly-report").text)

    assert "Mon 23 Nov 09:00 EST" in said
    assert "Mon 23 Nov 14:00 UTC" in said


def test_a_run_shows_its_error_and_its_output(shop: Shop) -> None:
    rows = shop.call(lambda scheduler: scheduler.run_log("prices", limit=1))

    said = words_of(httpx.get(f"{shop.base}/runs/{rows[0].id}").text)

    assert "TimeoutError: no answer from prices.example.com within 12 s" in said
    assert "Traceback (most recent call last)" in said
    assert "reading the catalogue" in said
    assert f"scheduler-async log prices --before {rows[0].id + 1} --limit 1" in said


def test_changes_tell_who_did_what(shop: Shop) -> None:
    said = words_of(httpx.get(f"{shop.base}/changes").text)

    assert "edit bo (cli) timeout: none → 30s" in said
    assert "pause anna (page)" in said
    assert "“new template”" in said


def test_the_zone_can_be_chosen_and_is_remembered(shop: Shop) -> None:
    with httpx.Client(base_url=shop.base) as client:
        assert "11:00 CET" in words_of(client.get("/jobs/default/prices").text)
        client.cookies.set("scheduler_tz", "Asia/Tokyo")
        assert "19:00 JST" in words_of(client.get("/jobs/default/prices", params={"zone": "mine"}).text)
        assert "19:00 JST" in words_of(client.get("/jobs/default/prices").text)
        assert "10:00 UTC" in words_of(client.get("/jobs/default/prices", params={"zone": "utc"}).text)


def test_without_a_script_the_zone_of_the_browser_can_be_typed(shop: Shop) -> None:
    with httpx.Client(base_url=shop.base) as client:
        assert "Your browser has not told its time zone" in words_of(client.get("/", params={"zone": "mine"}).text)
        assert "18:05:00 JST" not in words_of(client.get("/", params={"zone": "mine"}).text)
        assert "JST" in words_of(client.get("/", params={"zone": "Asia/Tokyo"}).text)


# ---------------------------------------------------------------- hostile texts

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "..",
    "a/b?c=d#e",
    "{{ 7 * 7 }}",
    "~0~1%2F",
    "javascript:alert(1)",
    "אבג",
    "x" * 200,
]
TEXT = "<b>\x1b[31mred\x1b[0m\u202eevil</b> &amp; {{ 7 * 7 }} ]]> --><script>alert(1)</script>"


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_hostile_names_are_text_on_every_page(
    new_scheduler: NewScheduler, clock: VirtualClock, name: str
) -> None:
    scheduler = new_scheduler(":memory:", knows_work=False)

    async def work(run: Run) -> None:
        run.write(TEXT)
        run.progress(0.5, message=TEXT)
        raise ValueError(TEXT)

    scheduler.handler(name)(work)
    await scheduler.add_job(
        Every("1h", immediately=True),
        handler=name,
        id=name,
        namespace=name,
        name=name,
        group=name,
        payload={name: TEXT},
    )
    await scheduler.start()
    await clock.advance("1s")
    await scheduler.pause_job(name, namespace=name, reason=TEXT)
    place = f"{segment_of(name)}/{segment_of(name)}"
    async with visitor(page_of(scheduler)) as client:
        for path in (*PAGES, f"jobs/{place}", f"jobs/{place}/pause", "runs/1", f"jobs?text={place}"):
            answer = await client.get(f"/{path}")

            assert answer.status_code == 200, path
            elements = check_page(answer.text)
            assert not [tag for tag, _ in elements if tag in ("img", "b") and tag == "img"]
            assert "<script>alert" not in answer.text
            assert "\x1b" not in answer.text
            assert "\u202e" not in answer.text
            assert "49" not in re.sub(r"\d{3,}|\d+[:.]\d+", "", words_of(answer.text)).split()


async def test_an_output_shows_its_control_characters(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:", knows_work=False)

    @scheduler.job(Every("1h", immediately=True), id="a")
    async def work(run: Run) -> None:
        run.write("one\ntwo\t\x1b[31mred")

    await scheduler.start()
    await clock.advance("1s")
    async with visitor(page_of(scheduler)) as client:
        text = (await client.get("/runs/1")).text

    assert "one\ntwo\t\\x1b[31mred" in text


# ---------------------------------------------------------------- what a visitor may see and do


async def failed(new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker) -> Scheduler:
    """A scheduler with a job that has failed."""
    worker.answer = ValueError("the secret word is swordfish")
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", payload={"note": "swordfish"})
    await scheduler.start()
    await clock.advance("1s")
    return scheduler


@pytest.mark.parametrize("page", [*PAGES, "jobs/default/a", "runs/1"])
async def test_errors_and_payloads_need_a_permission(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, page: str
) -> None:
    scheduler = await failed(new_scheduler, clock, worker)

    async with visitor(page_of(scheduler), "bo manage") as client:
        answer = await client.get(f"/{page}")

    assert answer.status_code == 200
    assert "swordfish" not in answer.text


@pytest.mark.parametrize("page", ["", "jobs/default/a", "runs/1"])
async def test_secrets_are_masked_for_all(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, page: str
) -> None:
    worker.answer = ValueError("cannot log in with password=swordfish")
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a", payload={"token": "swordfish"})
    await scheduler.start()
    await clock.advance("1s")

    async with visitor(page_of(scheduler)) as client:
        answer = await client.get(f"/{page}")

    assert "cannot log in" in answer.text
    assert "swordfish" not in answer.text


@pytest.mark.parametrize(("who", "can_act"), [("bo look payloads", False), ("bo operate payloads", True)])
async def test_only_those_who_may_act_see_the_buttons(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker, who: str, can_act: bool
) -> None:
    scheduler = await failed(new_scheduler, clock, worker)

    async with visitor(page_of(scheduler), who) as client:
        for page in ("/", "/jobs", "/jobs/default/a", "/runs/1"):
            text = (await client.get(page)).text
            assert ('/default/a/run"' in text) is can_act, page
        assert (await client.get("/jobs/default/a/pause")).status_code == (200 if can_act else 403)


async def test_tenants_see_their_own_jobs_alone(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    for namespace in ("ours", "theirs"):
        await scheduler.add_job(
            Every("1h", immediately=True), handler="work", id=f"job-{namespace}", namespace=namespace
        )
    await scheduler.start()
    await clock.advance("1s")

    async with visitor(page_of(scheduler), "bo manage payloads tenants=ours") as client:
        for page in PAGES:
            answer = await client.get(f"/{page}")
            assert answer.status_code == 200
            assert "theirs" not in answer.text, page
        assert (await client.get("/jobs/theirs/job-theirs")).status_code == 404
        assert "vm" not in words_of((await client.get("/nodes")).text).split()


# ---------------------------------------------------------------- forms


async def test_a_form_asks_then_acts_and_records_who_did_it(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h"), handler="work", id="a/b")

    async with visitor(page_of(scheduler)) as client:
        asked = await client.get("/jobs/default/a~1b/pause")
        (form,) = [
            attributes for tag, attributes in check_page(asked.text) if tag == "form" and attributes.get("method")
        ]
        url = httpx.URL("/jobs/default/a~1b/pause").join(form["action"])
        done = await client.post(url, data={"reason": "moving", "until": "2h"})
        after = await client.get(httpx.URL(url).join(done.headers["location"]))

    assert done.status_code == 303
    assert "paused" in words_of(after.text)
    row = (await scheduler.changes("a/b"))[0]
    assert (row.action, row.actor, row.via, row.reason) == ("pause", "anna", "page", "moving")
    job = await scheduler.get_job("a/b")
    assert job is not None
    assert job.paused_until == clock.now() + timedelta(hours=2)


async def test_a_wrong_field_of_a_form_is_told_beside_what_was_typed(new_scheduler: NewScheduler) -> None:
    """A page of an error would lose the reason."""
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    async with visitor(page_of(scheduler)) as client:
        answer = await client.post("/jobs/default/a/pause", data={"reason": "moving house", "until": "tomorrow"})

    elements = check_page(answer.text)
    assert answer.status_code == 422
    assert 'until must be a duration such as "2h"' in words_of(answer.text)
    fields = {
        attributes["name"]: attributes for tag, attributes in elements if tag == "input" and "maxlength" in attributes
    }
    assert (fields["reason"]["value"], fields["until"]["value"]) == ("moving house", "tomorrow")
    assert "aria-invalid" in fields["until"]
    job = await scheduler.get_job("a")
    assert job is not None
    assert job.status == "idle"


async def test_running_a_job_leads_to_the_run(new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.start()

    async with visitor(page_of(scheduler)) as client:
        done = await client.post("/jobs/default/a/run")
        await clock.advance("1s")
        run = await client.get(httpx.URL("/jobs/default/a/run").join(done.headers["location"]))

    assert done.status_code == 303
    assert "Run 1" in words_of(run.text)
    assert worker.ids == ["a"]


async def test_a_run_in_progress_can_be_cancelled(
    new_scheduler: NewScheduler, clock: VirtualClock, worker: Worker
) -> None:
    worker.blocks = True
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h", immediately=True), handler="work", id="a")
    await scheduler.start()
    await clock.advance("1s", wait_for_runs=False)

    async with visitor(page_of(scheduler)) as client:
        assert (await client.get("/runs/1/cancel")).status_code == 200
        done = await client.post("/runs/1/cancel", data={"reason": "too long"})
        await clock.advance("1s")
        again = await client.get("/runs/1/cancel")

    assert done.status_code == 303
    row = await scheduler.get_run(1)
    assert row is not None
    assert (row.outcome, row.reason) == ("cancelled", "too long")
    assert again.status_code == 404
    assert "nothing to cancel" in words_of(again.text)


# ---------------------------------------------------------------- bad input, and a store that fails


@pytest.mark.parametrize(
    ("page", "status", "told"),
    [
        pytest.param("nothing", 404, "There is no page at this address.", id="no such page"),
        pytest.param("jobs/default/nothing", 404, "not found", id="no such job"),
        pytest.param("runs/99999", 404, "not found", id="no such run"),
        pytest.param("runs/abc", 422, "The number of a run must be a positive whole number.", id="no number"),
        pytest.param("runs/9999999999999999999", 422, "must be a positive whole number", id="too large"),
        pytest.param("jobs?status=asleep", 422, "status must be one of", id="no such status"),
        pytest.param("jobs?limit=0", 422, "limit must be a whole number from 1 to 200", id="limit"),
        pytest.param("jobs?after=%00garbage", 422, "after", id="a damaged position"),
        pytest.param("jobs?order=random", 422, "order must be one of next, name", id="no such order"),
        pytest.param("runs?outcome=lovely", 422, "outcome must be one of", id="no such outcome"),
        pytest.param("runs?since=yesterday", 422, "since must be a time such as 2026-11-18T03:00", id="no time"),
        pytest.param("runs?since=0001-01-01T00:00%2B14:00", 422, "since must be a time", id="before all time"),
        pytest.param("changes?limit=x", 422, "limit must be a whole number", id="limit of changes"),
        pytest.param("timeline?limit=1000", 422, "limit must be a whole number from 1 to 50", id="too many lanes"),
        pytest.param("?zone=Mars/Olympus", 422, "zone must be job, mine, utc", id="no such zone"),
        pytest.param("jobs/default/a?at=soon", 422, "at must be a time", id="why at no time"),
    ],
)
async def test_a_wrong_parameter_is_answered_with_a_sentence(
    new_scheduler: NewScheduler, page: str, status: int, told: str
) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.add_job(Every("1h"), handler="work", id="a")

    async with visitor(page_of(scheduler)) as client:
        answer = await client.get(f"/{page}")

    assert answer.status_code == status
    check_page(answer.text)
    assert told in words_of(answer.text)
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("page", PAGES)
async def test_a_store_that_fails_is_a_page_that_says_so_and_recovers(
    new_scheduler: NewScheduler, tmp_path: Path, page: str
) -> None:
    scheduler = new_scheduler(SQLiteStore(str(tmp_path / "later" / "jobs.db")))

    async with visitor(page_of(scheduler)) as client:
        down = await client.get(f"/{page}")
        (tmp_path / "later").mkdir()
        up = await client.get(f"/{page}")

    assert down.status_code == 503
    assert down.headers["retry-after"]
    assert 'data-retry="' in down.text, "the script tries again by itself"
    check_page(down.text)
    assert up.status_code == 200


async def test_an_empty_store_says_how_to_begin(new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.start()

    async with visitor(page_of(scheduler)) as client:
        for page in PAGES:
            check_page((await client.get(f"/{page}")).text)
        assert "There are no jobs yet." in words_of((await client.get("/")).text)
        assert "scheduler-async add hello" in words_of((await client.get("/jobs")).text)


async def test_the_timeline_tells_of_clock_changes() -> None:
    clock = VirtualClock("2026-03-28T12:00:00Z")
    scheduler = Scheduler(":memory:", clock=clock)
    await scheduler.add_job(Cron("30 2 * * *", tz="Europe/Stockholm"), handler="work", id="a")

    async with visitor(page_of(scheduler)) as client:
        said = words_of((await client.get("/timeline")).text)
    await scheduler.stop()

    assert "Europe/Stockholm: clocks go forward from 02:00 to 03:00 on Sun 29 Mar." in said


# ---------------------------------------------------------------- the clocks of jobs


@pytest.fixture
async def far(new_scheduler: NewScheduler, clock: VirtualClock) -> Scheduler:
    """A job on the clock of Tokyo, which fails, and one without a zone."""
    scheduler = new_scheduler(":memory:", knows_work=False)

    @scheduler.handler("work")
    async def work(run: Run) -> None:
        if run.job_id == "tokyo":
            raise ValueError("no")

    await scheduler.start()
    await scheduler.add_job(Cron("0 * * * *", tz="Asia/Tokyo"), handler="work", id="tokyo")
    await scheduler.add_job(Every("1h"), handler="work", id="plain")
    await clock.advance("1h")
    await scheduler.pause_job("tokyo", until="2h")
    return scheduler


@pytest.mark.parametrize("page", ["", "runs", "changes"])
async def test_each_row_of_a_list_is_on_the_clock_of_its_job(far: Scheduler, page: str) -> None:
    """NOON is 21:00 in Tokyo. With the other choices, all rows have the same clock."""
    async with visitor(page_of(far)) as client:
        by_job = words_of((await client.get(f"/{page}")).text)
        in_utc = words_of((await client.get(f"/{page}?zone=utc")).text)
        mine = words_of((await client.get(f"/{page}?zone=Europe/Stockholm")).text)

    assert "JST" in by_job
    assert "UTC" in by_job
    assert "JST" not in in_utc + mine
    assert "CET" in mine


async def test_a_change_shows_times_on_the_clock_of_its_job(far: Scheduler) -> None:
    async with visitor(page_of(far)) as client:
        said = words_of((await client.get("/changes")).text)

    assert "paused until: none → Tue 6 Jan 00:00 JST" in said


async def test_the_filter_of_a_job_is_on_its_clock(far: Scheduler) -> None:
    """The field says which clock is meant: 22:00 in Tokyo is 13:00 UTC."""
    async with visitor(page_of(far)) as client:
        for since, count in (("2026-01-05T22:00", 1), ("2026-01-05T22:01", 0)):
            text = (await client.get("/runs", params={"id": "tokyo", "since": since})).text
            assert "Since (JST)" in text
            assert text.count('<tr id="run-') == count


# ---------------------------------------------------------------- many running jobs


@pytest.mark.once
async def test_running_jobs_do_not_hide_what_comes_next(new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    scheduler = new_scheduler(":memory:", knows_work=False)

    @scheduler.handler("hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    await scheduler.start()
    await scheduler.add_jobs([JobSpec(Every("1h"), handler="hang", id=f"hanging-{n}") for n in range(30)])
    await clock.advance("1h", wait_for_runs=False)
    await scheduler.add_job(Every("1h"), handler="hang", id="the-next-one")

    async with visitor(page_of(scheduler)) as client:
        said = words_of((await client.get("/")).text)

    assert "No job has a next run" not in said
    assert "the-next-one every hour in 1h" in said


@pytest.mark.once
async def test_an_empty_store_gets_a_page_without_empty_parts(new_scheduler: NewScheduler) -> None:
    scheduler = new_scheduler(":memory:")
    await scheduler.start()

    async with visitor(page_of(scheduler)) as client:
        said = words_of((await client.get("/")).text)

    assert said.startswith("Ready There are no jobs yet. No jobs yet Add the first one")
