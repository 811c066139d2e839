"""Links work under any prefix, and names with any characters lead back to the same job."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import Manual, Scheduler
from scheduler_async.web.errors import PageNotFoundError
from scheduler_async.web.links import Links, address_of, name_of, segment_of
from scheduler_async.web.routing import Place, place_of
from tests.web.test_mounting import MOUNTS, served
from tests.web.visitors import page_of

HOSTILE = [
    *("a/b", "/", "//", "a?b=c", "#top", "..", ".", "...", "../../api/v1/jobs", "%2F", "%252e%252e", "~", "~1", "~d~0"),
    *("a b", "a+b", "a&b", 'a"b', "<script>alert(1)</script>", "javascript:alert(1)", "\\", "C:\\x", "å/ö?", "日本語"),
    *("e\u0301", "a;b", "a:b", "pause", "bulk", "x" * 200, "'", "{{7*7}}", "*", "a.json", "-", "null"),
]


@given(st.text(min_size=1, max_size=30))
def test_a_name_is_one_segment_and_comes_back(name: str) -> None:
    segment = segment_of(name)

    assert "/" not in segment
    assert "." not in segment
    assert segment.isascii()
    assert not any(char in segment for char in "?#;&= \"'<>")
    assert name_of(unquote(segment, errors="surrogatepass")) == name


@given(st.text(min_size=1, max_size=30))
def test_a_link_of_a_page_is_sent_as_the_segments_of_its_names(name: str) -> None:
    link = Links(0).to("jobs", name, query={"text": name})

    path, _, query = address_of(link).partition("?")
    assert path == f"./jobs/{segment_of(name)}"
    assert unquote(query, errors="surrogatepass") == f"text={name}"


def test_a_link_of_a_page_keeps_letters_as_they_are() -> None:
    """In ASCII, forty links to jobs with Chinese names would take too much room."""
    assert Links(0).to("jobs", "東京", "å b", query={"text": "名"}) == "./jobs/東京/å%20b?text=名"


@pytest.mark.parametrize("segment", ["~", "a~", "~2", "~~0", "a~x"])
def test_a_segment_with_a_broken_escape_is_no_name(segment: str) -> None:
    assert name_of(segment) is None


@pytest.mark.parametrize(("depth", "up"), [(0, "./"), (1, "../"), (3, "../../../")])
def test_links_are_relative(depth: int, up: str) -> None:
    links = Links(depth)

    assert links.to("jobs", "a", "..", query={"tab": "runs", "after": None, "n": 2}) == f"{up}jobs/a/~d~d?tab=runs&n=2"
    assert links.file("static/page.css") == f"{up}static/page.css"


@pytest.mark.once
@pytest.mark.parametrize(("mount", "root"), MOUNTS)
async def test_a_job_of_any_name_is_reached_through_every_framework(mount: Any, root: str, idle: Scheduler) -> None:
    names = [(name, "x") for name in HOSTILE] + [("x", name) for name in HOSTILE]
    for namespace, job_id in names:
        await idle.add_job(Manual(), handler="work", id=job_id, namespace=namespace, on_conflict="keep")

    async with served(mount, root, page_of(idle)) as ask:
        for namespace, job_id in names:
            place = f"{root}/api/v1/jobs/{segment_of(namespace)}/{segment_of(job_id)}"
            status, _, text = await ask("GET", place)
            assert status == 200, (namespace, job_id, text)
            assert httpx.Response(200, text=text).json()["id"] == job_id
            status, headers, _ = await ask("POST", f"{place}/run")
            assert status == 202
            there = httpx.URL("http://page.test" + f"{place}/run").join(headers["location"])
            assert there.path.startswith(f"{root}/api/v1/runs/")
            status, _, text = await ask("GET", there.raw_path.decode())
            row = httpx.Response(200, text=text).json()
            assert (row["namespace"], row["job_id"]) == (namespace, job_id)


@pytest.mark.parametrize(
    ("scope", "place"),
    [
        pytest.param({"path": "/"}, Place(("",), 0), id="at the root of a server"),
        pytest.param({"path": "/jobs/a/b"}, Place(("jobs", "a", "b"), 2), id="below it"),
        pytest.param({"path": "/s/jobs", "root_path": "/s"}, Place(("jobs",), 0), id="below a mount"),
        pytest.param({"path": "/s", "root_path": "/s"}, Place(("",), 0, "s"), id="a mount without a slash"),
        pytest.param({"path": "/s/", "root_path": "/s/"}, Place(("",), 0), id="a root with a slash"),
        pytest.param({"path": "/", "raw_path": b"/s"}, Place(("",), 0, "s"), id="a mount without a slash in Litestar"),
        pytest.param({"path": "/jobs/", "raw_path": b"/s/jobs"}, Place(("jobs",), 0), id="a slash that Litestar added"),
        pytest.param({"path": "/jobs/", "raw_path": b"/s/jobs/"}, Place(("jobs",), 1), id="a slash that was there"),
        pytest.param(
            {"path": "/s/jobs", "root_path": "/proxy/s"}, Place(("jobs",), 0), id="a proxy that strips its prefix"
        ),
        pytest.param({"path": "/proxy/s/jobs", "root_path": "/proxy/s"}, Place(("jobs",), 0), id="one that does not"),
        pytest.param(
            {"path": "/scheduler", "root_path": "/s"}, Place(("scheduler",), 0), id="a name that begins like it"
        ),
    ],
)
def test_the_place_of_a_request_is_found(scope: dict[str, Any], place: Place) -> None:
    assert place_of(scope) == place


def test_an_address_that_does_not_exist_is_a_page_error() -> None:
    from scheduler_async.web.application import ROUTES

    with pytest.raises(PageNotFoundError):
        ROUTES.find("GET", ("jobs", "~", "b"))
