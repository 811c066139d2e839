"""What visitors do not see: payloads and what came of them without `payloads=True`, and secrets at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import Every, InvalidJobError, Retry, Scheduler
from scheduler_async.testing import VirtualClock
from scheduler_async.web import everyone
from scheduler_async.web.application import PageApplication
from scheduler_async.web.redaction import MASK, Redaction, redaction_of
from tests.web.conftest import SECRET
from tests.web.visitors import page_of, visitor

pytestmark = pytest.mark.once  # the version of Python does not matter

EVERYWHERE = [
    *("/", "/metrics", "/api/v1/jobs", "/api/v1/jobs/default/report", "/api/v1/jobs/acme/import", "/api/v1/runs"),
    *("/api/v1/jobs/acme/import/runs", "/api/v1/jobs/acme/import/explain", "/api/v1/attention", "/api/v1/changes"),
    *("/api/v1/jobs/acme/import/explain?at=2026-01-05T12:01:00Z", "/api/v1/runs/1", "/api/v1/runs/2", "/api/v1/runs/3"),
    *("/api/v1/runs/1/output", "/api/v1/runs/2/output", "/api/v1/jobs/default/report/runs", "/api/v1/health"),
    *("/jobs", "/jobs/default/report", "/jobs/acme/import", "/jobs/acme/import?at=2026-01-05T12:01:00"),
    *("/runs", "/runs/1", "/runs/2", "/runs/3", "/changes", "/timeline"),
]


@pytest.mark.parametrize("policy", [None, Retry.none(disable_after=3)], ids=["failing", "disabled by failures"])
async def test_without_payloads_no_answer_tells_of_them(shown: Scheduler, clock: VirtualClock, policy: Any) -> None:
    """Not their values, nor what a run made of them: its result, its output, its error."""
    if policy is not None:
        await shown.update_job("import", namespace="acme", retry=policy)
        await clock.advance("5m")

    async with visitor(page_of(shown), "lea look") as lea:
        answers = {address: (await lea.get(address)).text for address in EVERYWHERE}

    for address, text in answers.items():
        for hidden in (SECRET, '"ops"', "to ops", "4711", "postgres://", '"ann"', "sent to"):
            assert hidden not in text, (address, hidden)


@pytest.mark.parametrize("policy", [Retry.backoff(["1h"]), Retry.none(disable_after=1)], ids=["waits", "disabled"])
async def test_an_error_of_any_length_is_left_out(shown: Scheduler, clock: VirtualClock, policy: Retry) -> None:
    """Pages shorten sentences that cite an error. A part of the error is no longer equal to it."""

    @shown.handler("talkative")
    async def talkative() -> None:
        raise ValueError("customer 4711, " * 400)

    await shown.add_job(Every("1m"), handler="talkative", id="long", retry=policy)
    await clock.advance("1m")

    addresses = ("/", "/jobs/default/long", "/api/v1/jobs/default/long/explain", "/api/v1/attention")
    async with visitor(page_of(shown), "lea look") as lea:
        answers = {address: (await lea.get(address)).text for address in addresses}

    assert [address for address, text in answers.items() if "4711" in text] == []


async def test_a_secret_is_masked_wherever_a_text_is_cut(shown: Scheduler, clock: VirtualClock) -> None:
    @shown.handler("talkative")
    async def talkative() -> None:
        raise ValueError(f"cannot reach postgres://ann:{SECRET * 50}@db " * 150)

    await shown.add_job(Every("1m"), handler="talkative", id="long", retry=Retry.backoff(["1h"]))
    await clock.advance("1m")
    (row,) = await shown.run_log("long")

    async with visitor(page_of(shown)) as anna:
        answers = {
            address: (await anna.get(address)).text for address in ("/", "/jobs/default/long", f"/runs/{row.id}")
        }

    assert [address for address, text in answers.items() if "cannot reach" not in text or SECRET in text] == []
    assert SECRET not in Redaction().text(f"postgres://ann:{SECRET * 50}@db " * 800)


async def test_what_is_left_out_is_named(page: PageApplication) -> None:
    async with visitor(page, "lea look") as lea:
        job = (await lea.get("/api/v1/jobs/default/report")).json()
        run = (await lea.get("/api/v1/jobs/acme/import/runs")).json()["items"][0]
        output = await lea.get("/api/v1/runs/1/output")

    assert job["payload"] is None
    assert job["redacted"] == ["payload", "metadata"]
    assert run["redacted"] == ["error"]
    assert output.status_code == 403


async def test_with_payloads_secrets_are_masked_all_the_same(page: PageApplication) -> None:
    async with visitor(page, "anna manage payloads") as anna:
        answers = {address: (await anna.get(address)).text for address in EVERYWHERE}

    assert not [address for address, text in answers.items() if SECRET in text]
    assert "customer 4711" in answers["/api/v1/jobs/acme/import/explain?at=2026-01-05T12:01:00Z"]
    assert f"postgres://ann:{MASK}@db/x" in answers["/api/v1/jobs/acme/import"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"password": "x", "to": "ops"}, {"password": MASK, "to": "ops"}),
        (
            {"DB_Password": 7, "apiKey": [1], "api-key": {"a": 1}},
            {"DB_Password": MASK, "apiKey": MASK, "api-key": MASK},
        ),
        ({"auth": {"token": "x", "user": "ann"}}, {"auth": {"token": MASK, "user": "ann"}}),
        ([{"secret": "x"}, {"dsn": None}], [{"secret": MASK}, {"dsn": None}]),
        ("postgresql://ann:pa55@db/jobs", f"postgresql://ann:{MASK}@db/jobs"),
        ("backup --password=pa55 --to x", f"backup --password={MASK} --to x"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {MASK}"),
        ('{"client_secret": "pa55", "a": 1}', f'{{"client_secret": "{MASK}", "a": 1}}'),
        ("AWS_SECRET_ACCESS_KEY=abc/def", f"AWS_SECRET_ACCESS_KEY={MASK}"),
        ("Authorization: token ghp_x", f"Authorization: {MASK}"),
        ("Cookie: a=1; session=x\nnext", f"Cookie: {MASK}\nnext"),
        ("{'Cookie': b'a=1; b=2', 'a': 1}", f"{{'Cookie': b'{MASK}', 'a': 1}}"),
        ("{'Authorization': 'Bearer abc', 'a': 1}", f"{{'Authorization': 'Bearer {MASK}', 'a': 1}}"),
        ('"password": "a b,c", "a": 1', f'"password": "{MASK}", "a": 1'),
        (r'"password": "a\"b", "a": 1', f'"password": "{MASK}", "a": 1'),
        (r"{\"password\": \"a b\", \"a\": 1}", rf"{{\"password\": \"{MASK}\", \"a\": 1}}"),
        ("password='a b\nnext line", f"password='{MASK}\nnext line"),
        ("tokens: [a, b]", f"tokens: {MASK}"),
        ("token=" + "x" * 5_000, f"token={MASK}"),
        ("backup --password pa55 --to x", f"backup --password {MASK} --to x"),
        ("backup --no-password --to x", "backup --no-password --to x"),
        ("https://ghp_x@github.com/a, http://b@c", f"https://{MASK}@github.com/a, http://{MASK}@c"),
        ("https://ann:pa55@example.com", f"https://ann:{MASK}@example.com"),
        ("ssh://git@github.com/a@b", "ssh://git@github.com/a@b"),
        ("https://example.com/?to=a@b.c", "https://example.com/?to=a@b.c"),
        ("a token is needed", "a token is needed"),
        ("https://example.com/a:b@c", "https://example.com/a:b@c"),
        (7, 7),
        (None, None),
    ],
    ids=str,
)
def test_secrets_are_found_by_their_names(value: Any, expected: Any) -> None:
    assert Redaction().value(value) == expected


def test_the_application_hides_more() -> None:
    by_name = redaction_of(["iban", "Social-Security"])
    by_function = redaction_of(lambda value: "hidden" if isinstance(value, str) else value)

    assert by_name.value({"IBAN": "SE1", "social_security": 1, "a": 2}) == {
        "IBAN": MASK,
        "social_security": MASK,
        "a": 2,
    }
    assert by_name.text("iban: SE1") == f"iban: {MASK}"
    assert by_function.text("anything") == "hidden"
    assert by_function.value({"password": 1}) == {"password": MASK}, "secrets are masked first"


async def test_what_the_application_hides_is_hidden_everywhere(shown: Scheduler) -> None:
    page = shown.page(access=everyone("look", payloads=True), redact=lambda _value: "(hidden)")

    async with visitor(page, None) as client:
        job = (await client.get("/api/v1/jobs/default/report")).json()
        run = (await client.get("/api/v1/runs/3")).json()
        output = (await client.get(f"/api/v1/runs/{run['id']}/output")).text

    assert job["payload"] == job["metadata"] == "(hidden)"
    assert "(hidden)" in (run["error"] or run["result"])
    assert output == "(hidden)"


@pytest.mark.parametrize("redact", ["iban", [], [7], [""], 7], ids=repr)
def test_names_to_hide_must_be_names(redact: Any) -> None:
    with pytest.raises((InvalidJobError, TypeError)):
        redaction_of(redact)


@given(st.text(max_size=200))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once = Redaction().text(text)

    assert Redaction().text(once) == once


@pytest.mark.parametrize(
    "text",
    [
        *("password" * 20_000, "a:" * 80_000, "token-" * 40_000, "://a:" * 40_000, "secret= " * 30_000),
        *("--token " * 30_000, "token='" * 30_000, "token=\\'" * 30_000, "https://a@" * 25_000, "cookie: " * 30_000),
    ],
    ids=lambda text: text[:10],
)
def test_masking_long_texts_takes_no_long_time(text: str) -> None:
    """Each of these has made a simpler pattern look again and again."""
    assert len(Redaction().text(text)) <= len(text) + 3 * 30_000
