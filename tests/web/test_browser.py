"""The pages in a real browser: keys, live rows, dialogs, narrow screens, and what works without JavaScript.

They need Chromium. Without it they are skipped, except in `nox -s browser`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from scheduler_async import Every, Manual, Run, Scheduler
from scheduler_async.testing import VirtualClock
from tests.web.shop_server import Shop, served_shop

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IS_REQUIRED = bool(os.environ.get("BROWSER_TESTS"))

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None and not IS_REQUIRED, reason="no browser: apt-get install chromium"),
    pytest.mark.deep,
]

Open: TypeAlias = Callable[..., Page]

PAGES = [
    "",
    "jobs",
    "runs",
    "timeline",
    "nodes",
    "changes",
    "jobs/default/prices",
    "jobs/default/prices/pause",
    "runs/failed",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "no browser: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with served_shop() as shop:
        yield shop


async def a_few(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Three jobs, for tests that change something."""

    @scheduler.handler("work")
    async def work(run: Run) -> str:
        return f"run {run.id}"

    for name in ("alpha", "beta", "gamma"):
        await scheduler.add_job(Every("1h"), handler="work", id=name)
    await scheduler.add_job(Manual(), handler="work", id="by-hand")
    await clock.advance("1h")


@pytest.fixture
def small() -> Iterator[Shop]:
    with served_shop(a_few) as shop:
        yield shop


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open pages; a complaint of the browser, such as about the content security policy, fails the test.

    Ask for it after the server, so that its pages are closed before the server stops.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(url: str, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_default_timeout(8000)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


# ---------------------------------------------------------------- every page


@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(shop: Shop, open_page: Open, path: str) -> None:
    page = open_page(shop.url(path), reduced_motion="reduce")

    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 360)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 740})
        found = Axe().run(page)
        assert not found.response["violations"], f"{scheme}, {width} px: {found.generate_report()}"


@pytest.mark.parametrize("path", PAGES)
def test_no_page_scrolls_sideways(shop: Shop, open_page: Open, path: str) -> None:
    page = open_page(shop.url(path))

    for width in (360, 700, 1440):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_colours_follow_the_system(shop: Shop, open_page: Open) -> None:
    def paper(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light, dark = (open_page(shop.base, color_scheme=scheme) for scheme in ("light", "dark"))

    assert paper(light) == "rgb(251, 251, 249)"
    assert paper(dark) == "rgb(18, 20, 22)"


def test_with_forced_colours_signs_keep_their_shape(shop: Shop, open_page: Open) -> None:
    page = open_page(f"{shop.base}/jobs", forced_colors="active")

    sign = page.locator(".s.bad").first
    assert sign.inner_text() == "failing"
    assert sign.evaluate("node => getComputedStyle(node, '::before').clipPath").startswith("path(")


# ---------------------------------------------------------------- without JavaScript


def test_everything_works_without_javascript(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs", java_script_enabled=False)

    page.get_by_label("Name contains").fill("bet")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(re.compile("text=bet"))
    page.get_by_role("link", name="beta").click()
    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("moving house")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#facts")).to_contain_text("paused")
    page.get_by_role("link", name="Resume").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#facts")).to_contain_text("idle")
    page.get_by_label("Why didn’t it run at").fill("2026-11-16T08:00")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".answer")).to_contain_text("had no occurrence at 2026-11-16 08:00 UTC")
    page.get_by_role("link", name="Changes", exact=True).click()
    expect(page.locator("#list")).to_contain_text("“moving house”")


# ---------------------------------------------------------------- with it


def test_keys_lead_through_the_rows(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs?order=name")

    page.keyboard.press("j")
    expect(page.get_by_role("link", name="alpha")).to_be_focused()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="beta")).to_be_focused()
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="alpha")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("alpha")
    page.wait_for_load_state()  # the script, which hears keys, runs after the text is there
    page.keyboard.press("t")
    expect(page.locator("h1")).to_have_text("Timeline")
    page.wait_for_load_state()
    page.keyboard.press("/")
    expect(page.get_by_label("Find a job")).to_be_focused()
    page.keyboard.type("gam")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_question_mark_shows_the_keys(small: Shop, open_page: Open) -> None:
    page = open_page(small.base)

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("pause or resume")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_keys_ask_before_they_act(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs?order=name")

    page.keyboard.press("j")
    page.keyboard.press("p")
    dialog = page.get_by_role("dialog", name="Pause it?")
    expect(dialog).to_contain_text("alpha")
    dialog.get_by_label("Reason").fill("by key")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.locator("#facts")).to_contain_text("paused")
    page.wait_for_load_state()
    page.keyboard.press("r")
    page.get_by_role("dialog", name="Run it now?").get_by_role("link", name="Back").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("w")
    expect(page.locator(".answer")).to_be_visible()


def test_rows_follow_the_store_and_keep_the_focus(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs?order=name")
    expect(page.locator("#live")).to_have_text("live")
    page.keyboard.press("j")
    page.keyboard.press("j")

    small.call(lambda scheduler: scheduler.pause_job("beta", reason="from elsewhere"))

    expect(page.locator("tr", has_text="beta")).to_contain_text("from elsewhere")
    expect(page.get_by_role("link", name="beta")).to_be_focused()


def test_new_rows_arrive(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/runs")
    count = page.locator("tbody tr").count()
    expect(page.locator("#live")).to_have_text("live")

    small.call(lambda scheduler: scheduler.trigger_job("by-hand"))

    expect(page.locator("tbody tr")).to_have_count(count + 1)
    expect(page.locator("tbody tr").first).to_contain_text("by-hand")


def test_rows_do_not_move_below_the_pointer(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs?order=name")
    expect(page.locator("#live")).to_have_text("live")
    page.locator("tr", has_text="alpha").hover()

    small.call(lambda scheduler: scheduler.remove_job("beta"))

    expect(page.locator("#live")).to_have_text("changes wait while you point")
    expect(page.locator("tr", has_text="beta")).to_have_count(1)
    page.mouse.move(2, 2)
    expect(page.locator("tr", has_text="beta")).to_have_count(0)


def test_a_hidden_tab_does_not_ask(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs")
    expect(page.locator("#live")).to_have_text("live")
    asked: list[str] = []
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => window.away ?? false}); window.away = true")
    with page.expect_request_finished(lambda request: "/feed" in request.url):
        pass  # the request that was waiting when the tab was hidden
    page.on("request", lambda request: asked.append(request.url))

    small.call(lambda scheduler: scheduler.pause_job("alpha", reason="unseen"))
    page.evaluate("fetch('healthz').then(answer => answer.text())")

    assert not [url for url in asked if "/feed" in url]
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("tr", has_text="alpha")).to_contain_text("unseen")


def test_a_countdown_counts(small: Shop, open_page: Open) -> None:
    page = open_page(f"{small.base}/jobs")
    time = page.locator("time.rel").first
    first = time.inner_text()

    expect(time).not_to_have_text(first)


def test_times_can_be_shown_on_my_clock(shop: Shop, open_page: Open) -> None:
    page = open_page(f"{shop.base}/jobs/default/prices", timezone_id="Asia/Tokyo")

    expect(page.locator("#facts")).to_contain_text("11:00 CET")
    page.get_by_role("navigation", name="Time zone").get_by_role("link", name="mine").click()
    expect(page.locator("#facts")).to_contain_text("19:00 JST")
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator("main")).to_contain_text("JST")


def test_a_page_of_an_error_recovers_by_itself(browser: Browser, small: Shop) -> None:
    context = browser.new_context()
    page = context.new_page()
    is_down = True

    def answer(route: Any) -> None:
        if is_down and route.request.resource_type in ("document", "fetch"):
            route.fulfill(
                status=503,
                content_type="text/html",
                body='<body data-retry="0.1"><script type="module" src="/static/page.js"></script>down',
            )
        else:
            route.continue_()

    page.route("**/*", answer)
    page.goto(f"{small.base}/jobs")
    expect(page.locator("body")).to_contain_text("down")

    is_down = False

    expect(page.locator("h1")).to_have_text("Jobs")
    context.close()


def test_a_service_that_stops_is_noticed(browser: Browser, small: Shop) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{small.base}/jobs")
    expect(page.locator("#live")).to_have_text("live")

    context.set_offline(True)

    expect(page.locator("#live")).to_have_text("no connection, trying again")
    context.set_offline(False)
    expect(page.locator("#live")).to_have_text("live")
    context.close()
