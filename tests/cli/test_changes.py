"""The past on a terminal: who changed a job, and how."""

from __future__ import annotations

from datetime import UTC

import pytest

from scheduler_async import Action, ChangeRow, Every, Manual, Retry
from scheduler_async.cli import change_views
from scheduler_async.cli.ownership import acting_as_user
from scheduler_async.jobs.history import current_actor
from tests.cast import NOON

pytestmark = pytest.mark.once  # the version of Python does not matter


def row(action: str, before: object = None, after: object = None, **more: object) -> ChangeRow:
    named = {"number": 1, "at": NOON, "namespace": "default", "job_id": "a", "action": Action(action), **more}
    return ChangeRow(**named, before=before or {}, after=after or {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "story"),
    [
        pytest.param(
            row("add", {}, {"schedule": Every("5m").to_json(), "handler": "h"}), "every 5 minutes; handler: h"
        ),
        pytest.param(row("edit", {"timeout": None}, {"timeout": "5m"}), "timeout: none → 5m"),
        pytest.param(row("trigger", {}, {"run": 17}), "run 17"),
        pytest.param(row("cancel", {}, {"run": 17}, reason="enough"), "run 17; enough"),
        pytest.param(row("trigger"), ""),
        pytest.param(
            row("edit", {"schedule": {"kind": "lunar"}}, {"schedule": Manual().to_json()}),
            'schedule: {"kind": "lunar"} → only when triggered',
        ),
        pytest.param(row("pause", {"status": "idle"}, {"status": "paused"}), ""),
        pytest.param(
            row("pause", {}, {"paused_until": "2020-06-15T09:00:00Z"}, reason="it moves"),
            "until 2020-06-15 09:00 UTC; it moves",
        ),
        pytest.param(row("resume", {"paused_until": "2020-06-15T09:00:00Z"}, {"paused_until": None}), ""),
        pytest.param(
            row("edit", {"retry": Retry.none().to_json()}, {"retry": Retry.in_window(2).to_json()}),
            "retry: no retries → 2 retries before the next regular time",
        ),
        pytest.param(row("disable", {"enabled": True}, {"enabled": False}, reason="enough"), "enough"),
        pytest.param(row("remove"), ""),
    ],
    ids=lambda value: value.action if isinstance(value, ChangeRow) else "",
)
def test_what_changed_is_told_in_a_few_words(change: ChangeRow, story: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_views, "HERE", UTC)
    assert change_views.story_of(change) == story


@pytest.mark.parametrize(
    ("actor", "via", "shown"),
    [
        (None, None, "-"),
        ("anna", None, "anna"),
        ("anna", "admin", "anna (admin)"),
        (None, "declaration", "declaration"),
    ],
)
def test_who_did_it_is_told_with_the_way(actor: str | None, via: str | None, shown: str) -> None:
    assert change_views.author_of(row("edit", actor=actor, via=via)) == shown


def test_a_command_acts_as_the_user_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "an\nna ")
    with acting_as_user():
        assert current_actor() == ("anna", "cli")

    def nobody() -> str:
        raise KeyError("no name")

    monkeypatch.setattr("getpass.getuser", nobody)
    with acting_as_user():
        assert str(current_actor().name).isdecimal()
