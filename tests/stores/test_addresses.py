"""Where a store is: paths, URLs, what only looks like one, and passwords that appear nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_async import Scheduler, SchedulerError, SQLiteStore
from scheduler_async.stores.addresses import is_url, read_url, redacted

PATHS = [
    *("jobs.db", "/data/ann@work/jobs.db", "postgres.db", "postgresql-jobs.db", "old:jobs.db", ":memory:"),
    *("./postgresql:jobs.db", "data/10:30@noon.db", r"C:\data\ann@work\jobs.db"),
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_a_path(path: str) -> None:
    assert not is_url(path)


@pytest.mark.parametrize("url", ["postgresql://db/jobs", "postgres://db/jobs", "PostgreSQL://db/jobs"])
def test_the_scheme_of_a_url_may_be_written_in_any_case(url: str) -> None:
    assert is_url(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(" postgresql://ann:hunter2@db/jobs", id="a blank before it"),
        pytest.param("\npostgresql://ann:hunter2@db/jobs", id="a newline before it"),
        pytest.param("'postgresql://ann:hunter2@db/jobs'", id="quotes around it"),
        pytest.param("postgresql:/ann:hunter2@db/jobs", id="one slash"),
        pytest.param("postgresql:ann:hunter2@db/jobs", id="no slash"),
        pytest.param("PostgreSQL:ann:hunter2@db/jobs", id="no slash, capitals"),
        pytest.param("postgres-x://ann:hunter2@db/jobs", id="a scheme much like ours"),
        pytest.param("postgresql+asyncpg://ann:hunter2@db/jobs", id="the scheme of another library"),
        pytest.param("jdbc:postgresql://ann:hunter2@db/jobs", id="a scheme before the scheme"),
        pytest.param("postgresql;//ann:hunter2@db/jobs", id="a semicolon for a colon"),
        pytest.param("postgresql//ann:hunter2@db/jobs", id="no colon"),
        pytest.param("postgresql;//ann:a/hunter2@db/jobs", id="a semicolon, and a slash in the password"),
        pytest.param("//ann:hunter2@db/jobs", id="no scheme"),
        pytest.param("ann:hunter2@db/jobs", id="no scheme and no slashes"),
        pytest.param("host=db user=ann password=hunter2", id="keywords"),
        pytest.param("mysql://ann:hunter2@db/jobs", id="another database"),
        pytest.param("file:jobs.db?mode=hunter2", id="a URI of SQLite"),
    ],
)
def test_what_looks_like_a_url_is_refused_and_not_shown(url: str) -> None:
    """As the name of a file it would be shown whole, in every message about it."""
    with pytest.raises(SchedulerError, match="A store must be the path of a SQLite file") as refused:
        Scheduler(url)

    assert "hunter2" not in str(refused.value)


def test_a_url_given_as_a_path_is_refused() -> None:
    with pytest.raises(SchedulerError) as refused:
        Scheduler(Path("postgresql://ann:hunter2@db/jobs"))

    assert "hunter2" not in str(refused.value)


def test_an_address_does_not_show_its_password() -> None:
    assert "hunter2" not in repr(read_url("postgresql://ann:hunter2@db/jobs?sslpassword=hunter2"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann:secret@db/jobs", "postgresql://ann:***@db/jobs"),
        ("no such command (postgresql://ann:se@c/ret@db/jobs)", "no such command (postgresql://ann:***@db/jobs)"),
        ("--store=POSTGRES://ann:secret@db", "--store=POSTGRES://ann:***@db"),
        ("postgresql:/ann:secret@db/jobs", "postgresql:/ann:***@db/jobs"),
        ("ann:secret@db/jobs", "ann:***@db/jobs"),
        ("postgresql://db/jobs?password=secret&user=ann", "postgresql://db/jobs?password=***&user=ann"),
        ("host=db sslpassword=secret", "host=db sslpassword=***"),
        ("postgresql://ann@db:5432/jobs", "postgresql://ann@db:5432/jobs"),
        (r"C:\data\ann@work", r"C:\data\ann@work"),
        ("at 10:30, ann@example.org", "at 10:30, ann@example.org"),
    ],
)
def test_passwords_are_taken_out_of_any_text(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize("path", ["a\0b.db", "x" * 300, f"{'y' * 200}/" * 4 + "jobs.db", "\ud800.db"])
async def test_a_path_that_no_system_takes_is_an_error_of_ours(path: str, tmp_path: Path) -> None:
    with pytest.raises(SchedulerError, match="path of a store"):
        await SQLiteStore(tmp_path / path).open()

    assert list(tmp_path.iterdir()) == []
