"""The API answers what the scheduler knows, as `--json` prints it, and does what its calls do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import At, Cron, Every, Manual, Scheduler
from scheduler_async.calls import json_output
from scheduler_async.testing import VirtualClock
from scheduler_async.web.api.managing import merged
from scheduler_async.web.application import PageApplication
from tests.web.visitors import visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

Client = httpx.AsyncClient
JOB = "/api/v1/jobs/default/report"


async def get(client: Client, address: str) -> Any:
    answer = await client.get(f"/api/v1/{address}")
    assert answer.status_code == 200, answer.text
    return answer.json()


# ---------------------------------------------------------------- reading


async def test_a_job_looks_as_on_the_command_line_with_its_zone(anna: Client, shown: Scheduler) -> None:
    job = await shown.add_job(Cron("0 9 * * 1-5", tz="Europe/Stockholm"), handler="talk", id="daily")

    form = await get(anna, "jobs/default/daily")

    assert form == {**json_output.listed_form(job), "zone": "Europe/Stockholm", "revision": 1}
    assert form["next_run_at"] == "2026-01-06T08:00:00Z"


async def test_lists_come_in_parts_that_lead_to_each_other(anna: Client, shown: Scheduler) -> None:
    await shown.add_job(Manual(), handler="talk", id="c")
    address, seen = "/api/v1/jobs?order=name&limit=2", []
    while True:
        answer = await anna.get(address)
        part = answer.json()
        seen += [f"{job['namespace']}/{job['id']}" for job in part["items"]]
        assert part.keys() == {"items", "next", "looked_back_to"}
        assert (part["next"] is None) == ("link" not in answer.headers)
        if part["next"] is None:
            break
        link = answer.links["next"]["url"]
        assert httpx.URL(link).params["after"] == part["next"]
        address = str(httpx.URL("http://page.test" + address).join(link))

    assert seen == ["acme/by-hand", "acme/import", "default/c", "default/report"]


async def test_jobs_are_found_by_what_they_do(anna: Client) -> None:
    async def ids(condition: str) -> list[str]:
        return [job["id"] for job in (await get(anna, f"jobs?{condition}"))["items"]]

    assert await ids("status=failing") == ["import"]
    assert await ids("text=repo") == ["report"]
    assert await ids("handler=talk&order=name") == ["by-hand", "report"]
    assert await ids("namespace=acme&order=name") == ["by-hand", "import"]
    assert await ids("namespace=elsewhere") == []
    assert await ids("ended=true") == []


async def test_runs_tell_how_they_ended(anna: Client) -> None:
    of_job = await get(anna, "jobs/default/report/runs")
    failed = await get(anna, "runs?outcome=error&limit=1")

    assert [row["outcome"] for row in of_job["items"]] == ["success", "success"]
    assert of_job["zone"] == of_job["items"][0]["zone"] == "UTC"
    assert of_job["items"][0]["started_at"] == "2026-01-05T12:02:00Z"
    (row,) = failed["items"]
    one = await get(anna, f"runs/{row['id']}")
    assert one["job_id"] == "import"
    assert "ValueError" in one["traceback"]


async def test_the_next_runs_are_on_the_clocks_of_job_and_reader(anna: Client, shown: Scheduler) -> None:
    await shown.add_job(Cron("30 2 * * *", tz="Europe/Stockholm"), handler="talk", id="night")
    found = await get(anna, "jobs/default/night/upcoming?n=90&zone=America/New_York")

    assert len(found["items"]) == 90
    gap = next(one for one in found["items"] if one["at"].startswith("2026-03-29"))
    assert gap["there"] == "2026-03-29T03:00:00+02:00"
    assert gap["here"] == "2026-03-28T21:00:00-04:00"
    assert gap["note"]


async def test_why_a_job_did_not_run(anna: Client, shown: Scheduler) -> None:
    now = await get(anna, "jobs/default/report/explain")
    then = await get(anna, "jobs/default/report/explain?at=2026-01-05T12:01:00Z")

    assert (now["reason"], now["until"]) == ("not_due", "2026-01-05T12:03:00Z")
    assert then["reason"] is None
    assert then["run"]["outcome"] == "success"


async def test_what_a_run_wrote_is_text_that_controls_no_terminal(anna: Client) -> None:
    run = (await get(anna, "jobs/default/report/runs"))["items"][0]["id"]
    text, raw = await anna.get(f"/api/v1/runs/{run}/output"), await anna.get(f"/api/v1/runs/{run}/output?raw=true")

    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.text == "sent to ops with password=***\n\\x1b[31mred"
    assert raw.text.endswith("\x1b[31mred")
    assert raw.headers["content-disposition"] == f'attachment; filename="run-{run}.txt"'
    assert raw.headers["content-type"] == "application/octet-stream"


async def test_nodes_attention_tally_and_changes(anna: Client, shown: Scheduler) -> None:
    (node,) = (await get(anna, "nodes"))["items"]
    concerns = (await get(anna, "attention"))["items"]
    tally = (await get(anna, "tally"))["items"]
    changes = (await get(anna, "changes?namespace=acme"))["items"]

    assert node["since"] == "2026-01-05T12:00:00Z"
    assert [(one["kind"], one["job_id"]) for one in concerns] == [("failing", "import")]
    assert sum(row["n"] for row in tally if row["outcome"] == "success") == 2
    assert [(row["action"], row["job_id"]) for row in changes] == [("add", "by-hand"), ("add", "import")]


async def test_health_counts_jobs(anna: Client, shown: Scheduler) -> None:
    form = await get(anna, "health")

    assert (form["ok"], form["status"]) == (True, "ok")
    assert form["counts"]["total"] == {"n": 3, "exact": True}
    assert form["counts"]["failing"] == {"n": 1, "exact": True}


# ---------------------------------------------------------------- acting


async def test_actions_are_recorded_with_the_name_of_the_visitor(anna: Client, shown: Scheduler) -> None:
    paused = await anna.post(f"{JOB}/pause", json={"reason": "the supplier is gone", "until": "2h"})
    resumed = await anna.post(f"{JOB}/resume")
    disabled = await anna.post(f"{JOB}/disable", json={"reason": "not needed"})

    assert [answer.status_code for answer in (paused, resumed, disabled)] == [200, 200, 200]
    assert paused.json()["status"] == "paused"
    assert paused.json()["paused_until"] == "2026-01-05T14:02:00Z"
    assert disabled.json()["disabled_reason"] == "not needed"
    rows = await shown.changes("report", limit=3)
    assert [(row.action, row.actor, row.via) for row in rows] == [
        ("disable", "anna", "page"),
        ("resume", "anna", "page"),
        ("pause", "anna", "page"),
    ]


async def test_a_job_runs_now_and_the_answer_says_where_to_look(
    anna: Client, shown: Scheduler, clock: VirtualClock
) -> None:
    answer = await anna.post(f"{JOB}/run")
    await clock.advance("1s")
    run = httpx.URL(f"http://page.test{JOB}/run").join(answer.headers["location"])
    ended = (await anna.get(run)).json()

    assert answer.status_code == 202
    assert answer.json()["trigger"] == "manual"
    assert (ended["id"], ended["outcome"]) == (answer.json()["id"], "success")
    (row,) = await shown.changes("report", limit=1)
    assert (row.action, row.actor, row.via) == ("trigger", "anna", "page")


async def test_a_run_in_progress_is_cancelled(anna: Client, shown: Scheduler, clock: VirtualClock) -> None:
    @shown.handler("slow")
    async def slow() -> None:
        await clock.sleep("1h")

    await shown.add_job(Manual(), handler="slow", id="slow")
    run = await shown.trigger_job("slow")

    answer = await anna.post(f"/api/v1/runs/{run}/cancel", json={"reason": "wrong input"})

    assert answer.status_code == 202
    row = await shown.wait_for_run(run)
    assert (row.outcome, row.reason) == ("cancelled", "wrong input")
    again = await anna.post(f"/api/v1/runs/{run}/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "RunEndedError")


@pytest.mark.parametrize(
    ("method", "address", "status", "kind"),
    [
        ("GET", "jobs/default/nothing", 404, "JobNotFoundError"),
        ("GET", "jobs/nowhere/report", 404, "JobNotFoundError"),
        ("GET", "runs/99999", 404, "RunNotFoundError"),
        ("GET", "runs/-1", 404, "RunNotFoundError"),
        ("GET", "runs/99999/output", 404, "RunNotFoundError"),
        ("POST", "jobs/default/nothing/pause", 404, "JobNotFoundError"),
        ("POST", "jobs/default/nothing/run", 404, "JobNotFoundError"),
        ("POST", "runs/99999/cancel", 404, "RunNotFoundError"),
        ("DELETE", "jobs/default/nothing", 404, "JobNotFoundError"),
        ("PATCH", "jobs/default/nothing", 404, "JobNotFoundError"),
        ("POST", "jobs/acme/ended/resume", 422, "JobEndedError"),
        ("POST", "jobs/acme/off/pause", 409, "JobDisabledError"),
    ],
)
async def test_errors_are_problems_with_the_class_of_the_error(
    anna: Client, shown: Scheduler, clock: VirtualClock, method: str, address: str, status: int, kind: str
) -> None:
    await shown.add_job(At(clock.now()), handler="talk", id="ended", namespace="acme", payload={"to": "x"})
    await shown.add_job(Every("1h"), handler="talk", id="off", namespace="acme", enabled=False)
    await clock.advance("1s")

    answer = await anna.request(method, f"/api/v1/{address}")

    assert (answer.status_code, answer.json()["type"]) == (status, kind)
    assert answer.json()["remedy"]
    assert "()" not in answer.json()["remedy"], "a call of Python"


# ---------------------------------------------------------------- many jobs


async def test_each_of_many_jobs_has_a_result(anna: Client, shown: Scheduler) -> None:
    ids = ["default/report", "acme/import", "acme/nothing"]
    tried = await anna.post("/api/v1/jobs/bulk", json={"action": "pause", "ids": ids, "dry_run": True})
    before = [job.status for job in await shown.list_jobs()]
    done = await anna.post("/api/v1/jobs/bulk", json={"action": "pause", "ids": ids, "reason": "moving house"})

    assert [item["result"] for item in tried.json()["items"]] == ["would", "would", "refused"]
    assert "paused" not in before
    assert [item["result"] for item in done.json()["items"]] == ["done", "done", "refused"]
    assert done.json()["items"][2]["problem"]["status"] == 404
    assert [job.paused_reason for job in await shown.list_jobs(status="paused")] == ["moving house"] * 2


async def test_many_jobs_are_found_by_a_filter(anna: Client, shown: Scheduler) -> None:
    body = {"action": "disable", "filter": {"namespace": "acme", "status": "failing"}}
    answer = await anna.post("/api/v1/jobs/bulk", json=body)

    assert [item["id"] for item in answer.json()["items"]] == ["import"]
    assert [job.id for job in await shown.list_jobs(status="disabled")] == ["import"]


async def test_many_runs_have_their_numbers(anna: Client) -> None:
    answer = await anna.post("/api/v1/jobs/bulk", json={"action": "run", "ids": ["default/report"]})

    (item,) = answer.json()["items"]
    assert (await get(anna, f"runs/{item['run']}"))["trigger"] == "manual"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        ({"action": "explode", "ids": []}, "action"),
        ({"action": ["pause"], "ids": []}, "action"),
        ({"action": "pause"}, "ids"),
        ({"action": "pause", "ids": [], "filter": {"status": "idle"}}, "ids"),
        ({"action": "pause", "ids": "default/report"}, "ids"),
        ({"action": "pause", "ids": ["report"]}, "ids"),
        ({"action": "pause", "ids": [7]}, "ids"),
        ({"action": "pause", "ids": ["a/b"] * 1001}, "ids"),
        ({"action": "pause", "filter": {}}, "filter"),
        ({"action": "pause", "filter": {"limit": "1"}}, "filter"),
        ({"action": "pause", "filter": {"ended": "yes"}}, "filter"),
        ({"action": "pause", "filter": {"status": "x"}}, "status"),
        ({"action": "pause", "ids": ["a/b"], "dry_run": "yes"}, "dry_run"),
        ({"action": "resume", "ids": ["a/b"], "reason": "x"}, "reason"),
        ({"action": "pause", "ids": ["a/b"], "payload": {}}, "payload"),
    ],
    ids=str,
)
async def test_a_wrong_request_about_many_jobs_changes_none(anna: Client, body: dict[str, Any], field: str) -> None:
    answer = await anna.post("/api/v1/jobs/bulk", json=body)

    assert (answer.status_code, answer.json()["field"]) == (422, field)


# ---------------------------------------------------------------- managing


async def test_a_job_is_added_read_edited_and_removed(anna: Client, shown: Scheduler) -> None:
    body = {
        "id": "a/b",
        "schedule": "0 9 * * 1-5",
        "tz": "Europe/Stockholm",
        "handler": "talk",
        "payload": {"to": "dev", "cc": "ops"},
        "timeout": "10m",
        "retry": {"version": 1, "kind": "in_window", "max_retries": 2},
    }
    added = await anna.post("/api/v1/jobs", json=body)
    place = httpx.URL("http://page.test/api/v1/jobs").join(added.headers["location"])
    read = await anna.get(place)
    patched = await anna.patch(
        place, json={"payload": {"to": None, "bcc": "x"}, "timeout": None}, headers={"If-Match": read.headers["etag"]}
    )
    stale = await anna.patch(place, json={"name": "x"}, headers={"If-Match": read.headers["etag"]})
    removed = await anna.delete(place, headers={"If-Match": patched.headers["etag"]})

    assert (added.status_code, added.headers["etag"]) == (201, '"1"')
    assert read.json() == added.json()
    assert read.json()["schedule"]["tz"] == "Europe/Stockholm"
    assert (patched.status_code, patched.headers["etag"]) == (200, '"2"')
    assert patched.json()["payload"] == {"cc": "ops", "bcc": "x"}
    assert patched.json()["timeout"] is None
    assert patched.json()["retry"]["max_retries"] == 2
    assert (stale.status_code, stale.json()["type"]) == (412, "JobChangedError")
    assert (removed.status_code, removed.content) == (204, b"")
    assert await shown.get_job("a/b") is None
    rows = await shown.changes("a/b")
    assert [(row.action, row.actor) for row in rows] == [("remove", "anna"), ("edit", "anna"), ("add", "anna")]


async def test_put_adds_or_replaces_and_takes_back_what_was_read(anna: Client) -> None:
    place = "/api/v1/jobs/acme/new"
    added = await anna.put(place, json={"schedule": "every 5m", "handler": "talk", "group": "mail"})
    form = added.json()
    same = await anna.put(place, json=form)
    replaced = await anna.put(place, json={"schedule": {"kind": "every", "interval": "1h"}, "handler": "talk"})

    assert [answer.status_code for answer in (added, same, replaced)] == [201, 200, 200]
    assert {**same.json(), "revision": 1} == form, "nothing else has changed"
    assert replaced.json()["group"] is None, "what is not named gets its default"
    assert replaced.json()["schedule"]["interval"] == "1h"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": '"1"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-Match": '"7", "1"'}, 200),
        ({"If-Match": '"2"'}, 412),
        ({"If-Match": 'W/"1"'}, 412),
        ({"If-Match": "1"}, 412),
        ({"If-Match": ""}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": '"2"'}, 200),
        ({}, 200),
    ],
    ids=str,
)
async def test_a_revision_guards_an_edit(anna: Client, headers: dict[str, str], status: int) -> None:
    answer = await anna.patch(JOB, json={"name": "Report"}, headers=headers)

    assert answer.status_code == status


async def test_a_job_that_is_gone_is_not_added_again_by_an_edit(anna: Client) -> None:
    body = {"schedule": "manual", "handler": "talk"}
    guarded = await anna.put("/api/v1/jobs/default/gone", json=body, headers={"If-Match": '"1"'})
    new = await anna.put("/api/v1/jobs/default/gone", json=body, headers={"If-None-Match": "*"})

    assert (guarded.status_code, new.status_code) == (412, 201)


async def test_of_two_edits_of_one_revision_one_is_refused(anna: Client) -> None:
    """Both have read the same; the second would undo the first without a word."""
    bodies = [{"name": f"name {number}"} for number in range(8)]

    answers = await asyncio.gather(*(anna.patch(JOB, json=body, headers={"If-Match": '"1"'}) for body in bodies))

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7


async def test_patches_at_once_are_all_merged(anna: Client) -> None:
    """None of them says a revision, so all of them succeed, and none may undo another."""
    bodies: list[Any] = [{"payload": {f"key {number}": number}} for number in range(8)]

    answers = await asyncio.gather(*(anna.patch(JOB, json=body, headers={"If-Match": "*"}) for body in bodies))

    assert [answer.status_code for answer in answers] == [200] * 8
    payload = (await get(anna, "jobs/default/report"))["payload"]
    assert [payload[f"key {number}"] for number in range(8)] == [*range(8)]


async def test_a_job_that_was_edited_meanwhile_is_not_removed(anna: Client, shown: Scheduler) -> None:
    """The visitor has not seen what would be lost."""
    tag = {"If-Match": '"1"'}

    edited, removed = await asyncio.gather(
        anna.patch(JOB, json={"name": "x"}, headers=tag), anna.delete(JOB, headers=tag)
    )

    assert (edited.status_code, removed.status_code) == (200, 412)
    assert await shown.get_job("report") is not None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"handler": "talk"}, "schedule"),
        ({"schedule": "every 5m"}, "handler"),
        ({"schedule": "every 5m", "handler": 7}, "handler"),
        ({"schedule": "every 5x", "handler": "talk"}, None),
        ({"schedule": "61 * * * *", "handler": "talk"}, "minute"),
        ({"schedule": 5, "handler": "talk"}, "schedule"),
        ({"schedule": {"kind": "never"}, "handler": "talk"}, None),
        ({"schedule": {}, "handler": "talk"}, None),
        ({"schedule": "0 9 * * *", "tz": "Mars/Olympus", "handler": "talk"}, None),
        ({"schedule": {"kind": "manual"}, "tz": "UTC", "handler": "talk"}, "tz"),
        ({"schedule": "manual", "handler": "talk", "id": ""}, "id"),
        ({"schedule": "manual", "handler": "talk", "id": "a\n"}, "id"),
        ({"schedule": "manual", "handler": "talk", "id": "x" * 201}, "id"),
        ({"schedule": "manual", "handler": "talk", "priority": "urgent"}, "priority"),
        ({"schedule": "manual", "handler": "talk", "metadata": []}, "metadata"),
        ({"schedule": "manual", "handler": "talk", "retry": "often"}, "retry"),
        ({"schedule": "manual", "handler": "talk", "retry": {}}, "retry"),
        ({"schedule": "manual", "handler": "talk", "timeout": 5}, "timeout"),
        ({"schedule": "manual", "handler": "talk", "timeout": "5"}, None),
        ({"schedule": "manual", "handler": "talk", "max_instances": "2"}, "max_instances"),
        ({"schedule": "manual", "handler": "talk", "max_instances": 0}, "max_instances"),
        ({"schedule": "manual", "handler": "talk", "max_instances": 10**30}, "max_instances"),
        ({"schedule": "manual", "handler": "talk", "max_runs": True}, "max_runs"),
        ({"schedule": "manual", "handler": "talk", "enabled": "no"}, "enabled"),
        ({"schedule": "manual", "handler": "talk", "on_conflict": "replace"}, "on_conflict"),
        ({"schedule": "manual", "handler": "talk", "status": "idle"}, "status"),
    ],
    ids=str,
)
async def test_a_wrong_description_adds_nothing(
    anna: Client, shown: Scheduler, body: dict[str, Any], field: Any
) -> None:
    answer = await anna.post("/api/v1/jobs", json={"id": "new", **body})

    assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text
    assert await shown.get_job("new") is None


async def test_a_name_that_is_taken_is_a_conflict(anna: Client) -> None:
    answer = await anna.post("/api/v1/jobs", json={"id": "report", "schedule": "manual", "handler": "talk"})

    assert (answer.status_code, answer.json()["type"]) == (409, "JobExistsError")


async def test_a_mask_never_takes_the_place_of_a_secret(anna: Client, shown: Scheduler) -> None:
    form = (await anna.get(JOB)).json()
    put = await anna.put(JOB, json=form)
    patched = await anna.patch(JOB, json={"payload": {"to": "dev"}})
    job = await shown.get_job("report")

    assert form["payload"]["password"] == "***"
    assert (put.status_code, put.json()["field"]) == (422, "payload")
    assert patched.status_code == 200
    assert job is not None
    assert job.payload == {"to": "dev", "password": "hunter2"}


async def test_a_visitor_who_does_not_see_payloads_does_not_delete_them(
    page: PageApplication, shown: Scheduler
) -> None:
    async with visitor(page, "mia manage") as mia:
        form = (await mia.get(JOB)).json()
        form = {name: value for name, value in form.items() if name not in form["redacted"]}
        answer = await mia.put(JOB, json={**form, "name": "Report"})
    job = await shown.get_job("report")

    assert answer.status_code == 200
    assert job is not None
    assert (job.name, job.payload["to"], job.metadata) == ("Report", "ops", {"owner": "ann"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_merge_patch_is_done_once(value: Any, patch: Any) -> None:
    once = merged(value, patch)

    assert merged(once, patch) == once
    assert merged(value, {}) == (value if isinstance(value, dict) else {})


async def test_the_tally_comes_in_parts(anna: Client) -> None:
    """In a store with many namespaces, 90 days of it are millions of rows."""
    first = await get(anna, "tally?limit=1")
    second = await get(anna, f"tally?limit=1&after={first['next']}")

    assert [row["namespace"] for row in (*first["items"], *second["items"])] == ["acme", "default"]
    assert second["next"] is None
