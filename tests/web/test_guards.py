"""What every request must pass: the site it comes from, the host it is for, its body; and the headers of answers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from scheduler_async import InvalidJobError, Scheduler
from scheduler_async.web import everyone
from scheduler_async.web.application import ROUTES, PageApplication
from scheduler_async.web.guards import HEADERS, LARGEST_BODY
from tests.web.test_access import address_of
from tests.web.visitors import BASE, HOST, page_of, visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

PAUSE = "/api/v1/jobs/default/report/pause"

# Each row: headers of a request that changes something, and whether it may go on.
SITES: list[Any] = [
    pytest.param({"Sec-Fetch-Site": "same-origin"}, True, id="this page"),
    pytest.param({"Sec-Fetch-Site": "none"}, True, id="typed by the visitor"),
    pytest.param({"Sec-Fetch-Site": "same-site"}, False, id="another port or subdomain"),
    pytest.param({"Sec-Fetch-Site": "cross-site"}, False, id="another site"),
    pytest.param({"Sec-Fetch-Site": "something-new"}, False, id="an unknown word"),
    pytest.param({"Sec-Fetch-Site": ""}, False, id="no word"),
    pytest.param({"Sec-Fetch-Site": "cross-site", "Origin": BASE}, False, id="another site that claims our origin"),
    pytest.param({"Sec-Fetch-Site": "cross-site", "Authorization": "Bearer x"}, False, id="another site with a token"),
    pytest.param({"Origin": BASE}, True, id="our origin"),
    pytest.param({"Origin": f"https://{HOST}"}, True, id="our origin behind a proxy with TLS"),
    pytest.param({"Origin": f"http://{HOST}:80"}, True, id="our origin with the usual port"),
    pytest.param({"Origin": f"http://{HOST}:8080"}, False, id="another port of our host"),
    pytest.param({"Origin": "http://evil.test"}, False, id="another origin"),
    pytest.param({"Origin": f"http://{HOST}.evil.test"}, False, id="an origin that begins like ours"),
    pytest.param({"Origin": "null"}, False, id="a sandboxed page"),
    pytest.param({"Origin": ""}, False, id="an empty origin"),
    pytest.param({"Origin": "http://[broken"}, False, id="a broken origin"),
    pytest.param({"Origin": f"file://{HOST}"}, False, id="a file"),
    pytest.param({"Origin": "http://evil.test", "Authorization": "Bearer x"}, False, id="another origin with a token"),
    pytest.param({}, False, id="no browser, or an old one"),
    pytest.param({"Authorization": "Bearer x"}, True, id="a program with a token"),
    pytest.param({"Authorization": "Basic x"}, False, id="a browser that remembers a password"),
    pytest.param({"Cookie": "session=1", "Referer": f"{BASE}/"}, False, id="a cookie and a referrer"),
]


@pytest.mark.parametrize(("headers", "passes"), SITES)
async def test_other_sites_change_nothing(headers: dict[str, str], passes: bool, page: PageApplication) -> None:
    async with visitor(page, site=False) as client:
        answer = await client.post(PAUSE, headers=headers)
        job = (await client.get("/api/v1/jobs/default/report")).json()

    assert answer.status_code == (200 if passes else 403)
    assert (job["status"] == "paused") == passes


@pytest.mark.parametrize("headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.test"}, {}], ids=str)
@pytest.mark.parametrize("route", [one for one in ROUTES if one.method != "GET"], ids=lambda one: one.path)
async def test_no_route_that_changes_something_is_left_out(route: Any, headers: Any, page: PageApplication) -> None:
    async with visitor(page, site=False) as client:
        answer = await client.request(route.method, address_of(route), headers=headers)

    assert answer.status_code == 403
    assert "CrossSiteError" in answer.text or "does not come from this page" in answer.text


async def test_reading_is_open_to_links_from_elsewhere(page: PageApplication) -> None:
    async with visitor(page, site=False) as client:
        answer = await client.get("/", headers={"Sec-Fetch-Site": "cross-site"})

    assert answer.status_code == 200


# ---------------------------------------------------------------- hosts


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("jobs.example.com", True),
        ("JOBS.example.com", True),
        ("jobs.example.com:8443", True),
        ("jobs.example.com.", True),
        ("[::1]:80", True),
        ("[::1]", True),
        ("evil.test", False),
        ("jobs.example.com.evil.test", False),
        ("evil.test:jobs.example.com", False),
        ("jobs.example.com@evil.test", False),
        ("", False),
        ("::1", True),
    ],
)
async def test_a_page_answers_to_its_own_names(shown: Scheduler, host: str, passes: bool) -> None:
    """A site whose name resolves to this machine could read everything otherwise."""
    page = page_of(shown, hosts=["jobs.example.com", "::1"])

    async with visitor(page) as client:
        answers = [await client.get(address, headers={"Host": host}) for address in ("/", "/api/v1/jobs", "/healthz")]

    assert {answer.status_code for answer in answers} == {200 if passes else 421}


async def test_without_hosts_every_name_is_answered(page: PageApplication) -> None:
    async with visitor(page) as client:
        assert (await client.get("/", headers={"Host": "anything.test"})).status_code == 200


@pytest.mark.parametrize("hosts", ["jobs.example.com", [""], [7]], ids=repr)
def test_hosts_must_be_names(hosts: Any) -> None:
    with pytest.raises(InvalidJobError, match="hosts must be a list of names"):
        Scheduler(":memory:").page(access=everyone("look"), hosts=hosts)


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("who", "address"),
    [
        ("anna look", "/"),
        ("anna look", "/nothing"),
        ("anna look", "/api/v1/jobs"),
        ("anna look", "/api/v1/jobs/default/nothing"),
        ("anna look", "/api/v1/runs/1/output"),
        ("anna look", "/metrics"),
        ("anna look", "/feed"),
        (None, "/"),
        (None, "/healthz"),
        (None, "/static/nothing.css"),
    ],
)
async def test_every_answer_has_the_headers(page: PageApplication, who: str | None, address: str) -> None:
    async with visitor(page, who) as client:
        answer = await client.get(address)

    assert {name: answer.headers.get(name) for name in HEADERS} == dict(HEADERS)
    assert "unsafe" not in answer.headers["content-security-policy"]


# ---------------------------------------------------------------- bodies


async def test_a_large_body_is_refused_before_it_is_kept(page: PageApplication) -> None:
    async def endless() -> Any:
        for _ in range(1_000_000):
            yield b"x" * 8192
            sent.append(8192)

    sent: list[int] = []
    async with visitor(page) as client:
        announced = await client.post(
            PAUSE, content=b"x" * (LARGEST_BODY + 1), headers={"Content-Type": "application/json"}
        )
        streamed = await client.post(PAUSE, content=endless(), headers={"Content-Type": "application/json"})

    assert announced.status_code == streamed.status_code == 413
    assert sum(sent) < 10 * LARGEST_BODY


async def test_a_visitor_who_leaves_is_no_bug(page: PageApplication, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody could fill the log with tracebacks."""
    events = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return events.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"x-visitor", b"anna manage"), (b"sec-fetch-site", b"same-origin")]
    scope = {"type": "http", "method": "POST", "path": PAUSE, "query_string": b"", "headers": headers}
    await page(scope, receive, send)

    assert sent[0]["status"] == 400
    assert not [record for record in caplog.records if "cannot answer" in record.message]


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "٣", "9" * 500])
async def test_a_content_length_that_is_no_number_is_refused(page: PageApplication, length: str) -> None:
    async with visitor(page) as client:
        answer = await client.post(PAUSE, headers={b"Content-Length": length.encode()})

    assert answer.status_code in (400, 413)


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        pytest.param("application/json", b"{}", 200, id="JSON"),
        pytest.param("application/json; charset=utf-8", b"{}", 200, id="JSON with a charset"),
        pytest.param("APPLICATION/JSON", b"{}", 200, id="in capitals"),
        pytest.param(None, b"", 200, id="nothing"),
        pytest.param("application/json", b"", 200, id="JSON without a body"),
        pytest.param(None, b"{}", 415, id="a body without a type"),
        pytest.param("text/plain", b"{}", 415, id="text, which a form of another site can send"),
        pytest.param("application/x-www-form-urlencoded", b"reason=x", 415, id="a form"),
        pytest.param("multipart/form-data; boundary=x", b"--x--", 415, id="a form with files"),
        pytest.param("application/json-seq", b"{}", 415, id="something like JSON"),
        pytest.param("application/json", b"{", 400, id="half of an object"),
        pytest.param("application/json", b"\xff\xfe", 400, id="no UTF-8"),
        pytest.param("application/json", b"[" * 60_000, 400, id="brackets"),
        pytest.param("application/json", b'{"a":' * 10_000, 400, id="braces"),
        pytest.param("application/json", b'{"reason": NaN}', 400, id="not a number"),
        pytest.param("application/json", b"[]", 422, id="a list"),
        pytest.param("application/json", b"null", 422, id="null"),
        pytest.param("application/json", b'{"raeson": "x"}', 422, id="a misspelt field"),
        pytest.param("application/json", b'{"reason": 7}', 422, id="a number for text"),
        pytest.param("application/json", b'{"until": "yesterday"}', 422, id="a time that is none"),
        pytest.param("application/json", b'{"reason": "\\u0000"}', 422, id="a NUL"),
        pytest.param("application/json", b'{"reason": "\\ud800"}', 400, id="half a character"),
    ],
)
async def test_bodies_have_one_type_and_the_right_fields(
    page: PageApplication, kind: str | None, body: bytes, status: int
) -> None:
    async with visitor(page) as client:
        answer = await client.post(PAUSE, content=body, headers={} if kind is None else {"Content-Type": kind})

    assert answer.status_code == status, answer.text
    if status >= 400:
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["detail"].endswith((".", "…"))
        assert problem["status"] == status


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("jobs?limit=0", "limit"),
        ("jobs?limit=201", "limit"),
        ("jobs?limit=-1", "limit"),
        ("jobs?limit=1e2", "limit"),
        ("jobs?limit=%D9%A3", "limit"),
        ("jobs?limit=" + "9" * 400, "limit"),
        ("jobs?status=late;x", "status"),
        ("jobs?order=random", "order"),
        ("jobs?ended=maybe", "ended"),
        ("jobs?after=nonsense", "after"),
        ("jobs?after=%00", "after"),
        ("jobs?text=%00", "text"),
        ("jobs?stauts=idle", "stauts"),
        ("runs?outcome=good", "outcome"),
        ("runs?trigger=luck", "trigger"),
        ("runs?since=yesterday", None),
        ("runs?since=2026-01-01T00:00:00", None),
        ("runs?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("runs/abc", "run"),
        ("runs/" + "9" * 30, "run"),
        ("jobs/default/report/upcoming?n=0", "n"),
        ("jobs/default/report/upcoming?zone=Nowhere/Land", None),
        ("jobs/default/report/explain?at=never", None),
        ("tally?since=x", None),
        ("changes?after=e30", "after"),
    ],
)
async def test_a_wrong_parameter_is_a_sentence(anna: httpx.AsyncClient, address: str, field: str | None) -> None:
    answer = await anna.get(f"/api/v1/{address}")

    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem.get("field") == field
    assert problem["detail"][0].isupper() or problem["detail"].startswith(str(field))
    assert "Traceback" not in answer.text
