"""What jobs and changes say of themselves on the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from scheduler_async import ChangeRow, Every, Overlap, Retry
from scheduler_async.web.pages import words
from tests.rules.stories import a_job

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


def test_a_job_of_few_options_shows_what_every_job_has() -> None:
    assert words.settings_of(a_job(Every("1h")), None) == [
        ("handler", "h"),
        ("priority", "standard"),
        ("retries", "the scheduler's"),
        ("timeout", "the scheduler's"),
        ("if missed", "run once"),
        ("if interrupted", "rerun"),
    ]


def test_a_job_of_many_options_shows_them_all() -> None:
    job = a_job(
        Every("1h"),
        retry=Retry.none(),
        timeout=timedelta(minutes=5),
        group="mail",
        user_id="anna",
        max_instances=3,
        overlap=Overlap.QUEUE,
        misfire_grace=timedelta(minutes=2),
        max_runs=1_000,
    )

    assert words.settings_of(job, '{"page": 7}')[2:] == [
        ("retries", "no retries"),
        ("timeout", "5m"),
        ("if missed", "run once"),
        ("if interrupted", "rerun"),
        ("group", "mail"),
        ("user", "anna"),
        ("at once", "3 runs"),
        ("overlap", "queue"),
        ("misfire grace", "2m"),
        ("ends after", "1,000 runs"),
        ("cursor", '{"page": 7}'),
    ]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("next_run_at", "2026-01-05T13:00:00Z", "13:00 UTC"),
        ("paused_until", "soon", "soon"),
        ("schedule", Every("5m").to_json(), "every 5 minutes"),
        ("schedule", {"kind": "unheard of", "version": 1}, '{"kind": "unheard of"}'),
        ("group", None, "none"),
        ("max_runs", 3, "3"),
        ("payload", {"to": ["å"]}, '{"to": ["å"]}'),
    ],
)
def test_the_value_of_a_field_is_shown_for_people(name: str, value: Any, shown: str) -> None:
    """What another program has written is shown as it is."""
    assert words.value_of(name, value, NOW, UTC) == shown


@pytest.mark.parametrize(
    ("actor", "via", "shown"),
    [("anna", "page", "anna"), (None, "page", "page"), (None, None, "the program")],
)
def test_a_change_has_an_author(actor: str | None, via: str | None, shown: str) -> None:
    row = ChangeRow(
        number=1,
        at=NOW,
        namespace="default",
        job_id="a",
        action="edit",
        actor=actor,
        via=via,
        reason=None,
        before={},
        after={},
    )

    assert words.author_of(row) == shown
