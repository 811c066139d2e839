"""What commands call a job: its id, or "namespace/id", which every command shows and understands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scheduler_async import Delay, Manual, Scheduler
from scheduler_async.cli.job_names import name_of, names_of, parts_of_name
from scheduler_async.jobs.names import key_of
from tests.cli.test_commands import (
    call,
    on_terminal,
    prepared,  # noqa: F401 - a fixture that they need
    well,
    without_colours,
)

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="commands need process groups, and terminals"),
    pytest.mark.deep,
]


@pytest.mark.parametrize(
    ("namespace", "id"),
    [("tenant", "a"), ("tenant", "a/b"), ("default", "a"), ("a/b", "c"), ("/", "c/d"), ("5%2F/%", "%25"), ("%", "/x")],
)
def test_a_name_is_read_as_it_is_written(namespace: str, id: str) -> None:
    assert parts_of_name(key_of(namespace, id)) == (namespace, id)


@pytest.mark.parametrize("name", ["a", "", "/", "/a", "a/", "//", "/a/b", "/a%2fb/c", "/a%2Fb%/c"])
def test_what_is_no_name_with_a_namespace_is_not_read_as_one(name: str) -> None:
    assert parts_of_name(name) is None


def test_a_table_shows_the_default_namespace_only_where_a_name_would_be_ambiguous() -> None:
    assert names_of([("default", "a"), ("default", "b/c")]) == ["a", "b/c"]
    assert names_of([("default", "a"), ("tenant", "a")]) == ["a", "tenant/a"]
    assert names_of([("default", "tenant/a"), ("tenant", "a")]) == ["default/tenant/a", "tenant/a"]
    assert (name_of("default", "a"), name_of("tenant", "a")) == ("a", "tenant/a")


@pytest.fixture
async def here(tmp_path: Path) -> Path:
    """A directory with a store of jobs with confusing names, none of which has run."""
    scheduler = Scheduler(tmp_path / "scheduler.db")
    jobs = [("default", "a"), ("tenant", "a"), ("tenant", "b"), ("default", "tenant/b"), ("x/y", "c")]
    for namespace, slug in jobs:
        payload = {"command": f"echo {slug} of {namespace}"}
        await scheduler.add_job(Delay("1h"), handler="command", id=slug, namespace=namespace, payload=payload)
    await scheduler.stop()
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        *("show NAME", "explain NAME", "trigger NAME", "pause NAME", "resume NAME", "edit NAME --priority high"),
        *("remove NAME", "log NAME", "stats NAME"),
    ],
)
@pytest.mark.once
def test_every_command_understands_the_names_that_list_shows(line: str, here: Path) -> None:
    well(here, "trigger", "a", "--namespace", "tenant")

    done = well(here, *line.replace("NAME", "tenant/a").split())

    assert "tenant/a" in done.out + done.err or line.startswith(("show", "explain"))
    assert call(here, *line.replace("NAME", "tenant/gone").split()).code == 1


def test_names_mean_what_they_say(here: Path) -> None:
    """An id comes before a namespace and an id, and a namespace that is given is the only one."""

    def shown(*arguments: str) -> tuple[str, str]:
        job = well(here, "show", *arguments, "--json").json
        return job["namespace"], job["id"]

    assert shown("a") == ("default", "a")
    assert shown("default/a") == ("default", "a")
    assert shown("tenant/a") == ("tenant", "a")
    assert shown("tenant/b") == ("default", "tenant/b")
    assert shown("default/tenant/b") == ("default", "tenant/b")
    assert shown("b", "--namespace", "tenant") == ("tenant", "b")
    assert shown("/x%2Fy/c") == ("x/y", "c")
    for arguments in (["x/y/c"], ["tenant/a", "--namespace", "default"], ["tenant/a", "--namespace", "tenant"]):
        assert call(here, "show", *arguments).code == 1


def test_every_name_that_list_shows_is_understood(here: Path) -> None:
    well(here, "remove", "default/tenant/b")  # whose id hides the job "b" of a tenant

    names = [line.split()[0] for line in well(here, "list").out.splitlines()[1:]]

    shown = [well(here, "show", name, "--json").json for name in names]

    assert sorted((job["namespace"], job["id"]) for job in shown) == [
        ("default", "a"),
        ("tenant", "a"),
        ("tenant", "b"),
        ("x/y", "c"),
    ]


@pytest.mark.once
def test_the_log_of_a_removed_job_is_found_by_the_name_that_it_has_there(here: Path) -> None:
    well(here, "trigger", "tenant/a")
    well(here, "remove", "tenant/a")

    rows = well(here, "log", "tenant/a", "--json").json
    assert {(row["namespace"], row["job_id"]) for row in rows} == {("tenant", "a")}


@pytest.mark.parametrize("columns", [40, 80, 160])
@pytest.mark.once
def test_runs_are_shown_with_their_namespaces(columns: int, here: Path) -> None:
    well(here, "trigger", "a")
    alone = without_colours(on_terminal(here, "log", columns=columns))
    well(here, "trigger", "a", "--namespace", "tenant")

    for arguments in (["log"], ["log", "--output"]):
        seen = without_colours(on_terminal(here, *arguments, columns=columns))
        assert "tenant/a" in seen
        assert "default/a" not in seen
        assert max(map(len, seen.splitlines())) <= columns
    assert "/a" not in alone
    assert "tenant/a" in without_colours(on_terminal(here, "log", "--namespace", "tenant", columns=columns))


@pytest.mark.once
def test_a_preview_shows_namespaces(here: Path) -> None:
    """In the timeline and in the table, one run on a line or one job on a line."""
    well(here, "edit", "/x%2Fy/c", "--every", "10m")  # a day has too many of its runs for a line each

    for window in ("10", "1d"):
        timeline, table = well(here, "preview", "--window", window).out.split("\n\n")
        for name in ("tenant/a", "default/tenant/b", "/x%2Fy/c"):
            assert name in timeline
            assert name in table

    for name in ("default/a", "default/tenant/b", "/x%2Fy/c"):  # jobs of one tenant are left
        well(here, "remove", name)
    timeline, table = well(here, "preview").out.split("\n\n")
    assert "tenant/a" in timeline
    assert "tenant/a" in table


@pytest.mark.once
async def test_without_namespaces_none_is_shown(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "scheduler.db")
    await scheduler.add_job(Manual(), handler="command", id="a", payload={"command": "true"})
    await scheduler.stop()
    well(tmp_path, "trigger", "a")

    for command in ("list", "log", "stats", "preview"):
        assert "default" not in well(tmp_path, command).out
