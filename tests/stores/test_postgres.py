"""What is PostgreSQL's own: addresses, bad databases, many who make the tables, hearing of others, lost connections.

What every store promises is in `test_stores`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from scheduler_async import At, Every, Manual, Outcome, PostgresStore, Run, Scheduler, StoreBusyError, StoreError
from scheduler_async.engine import membership, troubles
from scheduler_async.jobs.enums import Phase
from scheduler_async.jobs.run import Ending
from scheduler_async.stores.messages import ChangeFilter, JobFilter, RunFilter
from scheduler_async.stores.postgres import pages
from scheduler_async.stores.postgres import schema as postgres_schema
from scheduler_async.stores.postgres import store as postgres
from scheduler_async.stores.postgres.claims import (
    CLAIM_DUE,
    CLAIM_DUE_IN_GROUPS,
    CLAIM_DUE_IN_SHARED_GROUPS,
    SOON,
)
from scheduler_async.stores.postgres.connection import Link
from scheduler_async.stores.postgres.texts import kept, original
from scheduler_async.stores.searches import JobSearch
from scheduler_async.timekeeping.instants import DAY, HOUR, MINUTE, Micros, from_micros
from tests import postgres_server
from tests.postgres_server import ELSEWHERE, Server, own_server, tidy_up, url_of_schema, url_of_server
from tests.stores.test_conformance import (
    NOON,
    RULES,
    add,
    adding,
    change_state,
    claim,
    claim_only,
    claimed_ids,
    disable,
    edit,
    editing,
    ended,
    finish,
    identity,
    on_terms,
)

pytestmark = [pytest.mark.once, pytest.mark.timeout(60)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a schema of its own."""
    return url_of_schema(str(tmp_path))


@pytest.fixture
def schema(url: str) -> str:
    return url.rpartition("=")[2]


@pytest.fixture
async def admin(schema: str) -> AsyncIterator[Any]:
    """Somebody at the database."""
    connection = await asyncpg.connect(url_of_server(), server_settings={"search_path": schema})
    yield connection
    await connection.close()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def other(url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process, as far as the database can tell."""
    opened = PostgresStore(url)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that may be stopped."""
    with own_server() as running:
        yield running


async def refusal(url: str, **options: Any) -> str:
    """What is said when it cannot be opened."""
    store = PostgresStore(url, **options)
    with pytest.raises(StoreError) as refused:
        await store.open()
    await store.close()
    return str(refused.value)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@db.example:5433/jobs", "postgresql://ann@db.example:5433/jobs"),
        ("postgres://ann:secret@db.example/jobs", "postgresql://ann@db.example/jobs"),
        ("postgresql://db.example/jobs?user=ann&password=secret", "postgresql://db.example/jobs"),
        ("postgresql://ann:se%40cret@one:1,two:2/jobs", "postgresql://ann@one:1,two:2/jobs"),
        ("postgresql://[::1]:5432/jobs?schema=mine", "postgresql://[::1]:5432/jobs?schema=mine"),
        ("postgresql:///jobs?host=/tmp&schema=scheduler_async", "postgresql:///jobs"),
        ("PostgreSQL://ann:secret@db/jobs", "postgresql://ann@db/jobs"),
        ("POSTGRES://ann:secret@db/jobs", "postgresql://ann@db/jobs"),
        ("postgresql://ann%40corp:secret@db/jobs?sslpassword=secret", "postgresql://ann%40corp@db/jobs"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    store = PostgresStore(url)

    assert store.url == shown
    assert repr(store) == f"PostgresStore({shown!r})"
    assert repr(Scheduler(url)._store) == repr(store)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:sec/ret@db/jobs",
        "postgresql://ann:sec?ret@db/jobs",
        "postgresql://ann:sec#ret@db/jobs",
        "postgresql://ann:sec@ret@db:port/jobs",
        "postgresql://ann:secret@db:port/jobs",
        "postgresql://ann:sec@ret@db/jobs",
        "postgresql://ann:sec@db?ret@db/jobs",
        "postgresql://ann:sec ret@db/jobs",
        "postgresql://ann:sec\nret@db/jobs",
        "postgresql://ann:sec%00ret@db/jobs",
        "postgresql://ann:secret@db:99999/jobs",
        "postgresql://ann:secret@one:1,two:0/jobs",
        " postgresql://ann:secret@db/jobs",
        "mysql://ann:secret@db/jobs",
    ],
)
def test_an_address_that_cannot_be_read_is_refused_without_a_word_of_the_password(url: str) -> None:
    """What is special in a password makes it look like something else: a port, a path, a question."""
    with pytest.raises(StoreError, match="A URL looks like") as refused:
        PostgresStore(url)

    assert "sec" not in str(refused.value)
    assert "ret" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "Jobs", "1st", "a-b", "pg_jobs", 'a"; DROP SCHEMA public; --', "x" * 64])
def test_a_schema_has_a_plain_name(name: str) -> None:
    with pytest.raises(StoreError, match="schema must consist of"):
        PostgresStore("postgresql://db/jobs", schema=name)


def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "asyncpg", None)

    with pytest.raises(StoreError, match=r'pip install "scheduler-async\[postgres\]"'):
        Scheduler("postgresql://db/jobs")


# ---------------------------------------------------------------- the server of the tests


def test_on_a_server_that_stays_the_tests_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ELSEWHERE, url_of_server())
    monkeypatch.setattr(postgres_server, "_schemas_elsewhere", set())
    url = url_of_schema(str(tmp_path))
    schema = url.rpartition("=")[2]

    async def make() -> None:
        store = PostgresStore(url)
        await store.open()
        await store.close()

    async def is_there() -> bool:
        connection = await asyncpg.connect(url_of_server())
        found = await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema)
        await connection.close()
        return bool(found)

    asyncio.run(make())
    assert asyncio.run(is_there())
    tidy_up()

    assert not asyncio.run(is_there())


# ---------------------------------------------------------------- what cannot be opened


async def test_a_server_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    assert "cannot be reached" in await refusal(f"postgresql://postgres@/postgres?host={tmp_path}")
    assert "cannot be reached" in await refusal("postgresql://postgres@127.0.0.1:1/postgres")


async def test_an_option_that_makes_no_sense_is_refused() -> None:
    said = await refusal("postgresql://postgres:secret@localhost/postgres?sslmode=perhaps")

    assert "an invalid host, port or option" in said
    assert "secret" not in said


async def test_a_database_that_does_not_exist_is_told_of() -> None:
    assert "the database does not exist" in await refusal(url_of_server().replace("/postgres?", "/nowhere?"))


@pytest.mark.parametrize(
    "place", ["ann:secret@one,,two/jobs", f"ann:secret@{'h' * 70}/jobs", "ann:secret@/jobs?host=127.0.0.1&port=99999"]
)
async def test_an_address_that_the_driver_stumbles_over_is_an_error_of_ours(place: str) -> None:
    said = await refusal(f"postgresql://{place}")

    assert "cannot be used" in said
    assert "secret" not in said


async def test_a_schema_may_be_called_like_a_word_of_sql(admin: Any) -> None:
    store = PostgresStore(url_of_server(), schema="select")

    await store.open()
    found = await store.list_jobs(JobFilter())
    await store.close()

    await admin.execute('DROP SCHEMA "select" CASCADE')
    assert found == []


async def test_a_password_that_is_refused_appears_nowhere(admin: Any, caplog: pytest.LogCaptureFixture) -> None:
    await admin.execute("DROP ROLE IF EXISTS guarded")
    await admin.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    caplog.set_level(logging.DEBUG)
    url = url_of_server().replace("postgres@", "guarded:hunter2@")
    scheduler = Scheduler(url)

    with pytest.raises(StoreError, match="refuses this user or password") as refused:
        await scheduler.start()

    await admin.execute("DROP ROLE guarded")
    told = "".join(traceback.format_exception(refused.value))  # with all that caused it
    assert "hunter2" not in f"{told} {scheduler._store} {caplog.text}"


async def test_who_may_not_make_tables_is_told_what_is_missing(admin: Any, schema: str, url: str) -> None:
    role = f"role_{schema}"
    await admin.execute(f"CREATE ROLE {role} LOGIN")

    said = await refusal(url.replace("postgres@", f"{role}@"))

    await admin.execute(f"DROP ROLE {role}")
    assert "permission denied" in said
    assert "GRANT CREATE ON DATABASE" in said


async def test_a_server_that_is_too_old_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLDEST_SERVER", 99)

    assert "needs PostgreSQL 99 or newer" in await refusal(url)


async def test_a_database_that_cannot_hold_every_text_is_refused(admin: Any, schema: str, url: str) -> None:
    await admin.execute(f"CREATE DATABASE {schema} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")

    said = await refusal(url.replace("/postgres?", f"/{schema}?"))

    await admin.execute(f"DROP DATABASE {schema}")
    assert "must have the encoding UTF8, not SQL_ASCII" in said


async def test_tables_of_a_newer_version_are_left_alone(store: PostgresStore, admin: Any, url: str) -> None:
    await admin.execute("UPDATE version SET number = 99")

    assert "A newer version has upgraded the store: upgrade scheduler_async" in await refusal(url)
    with pytest.raises(StoreError, match="has schema version 99"):
        await store.check()


@pytest.mark.parametrize("statement", ["DELETE FROM version", "UPDATE version SET number = -3"])
async def test_tables_that_do_not_say_their_version_are_refused(
    store: PostgresStore, admin: Any, url: str, statement: str
) -> None:
    """They are not taken for new, nor made anew."""
    await admin.execute(statement)

    said = await refusal(url)

    assert "does not contain the schema version" in said
    assert "Restore it from a backup" in said


async def test_tables_of_another_program_are_left_alone(admin: Any, schema: str, url: str) -> None:
    await admin.execute(f"CREATE SCHEMA {schema}")
    await admin.execute("CREATE TABLE invoice (number bigint)")

    said = await refusal(url)

    assert "belongs to another program" in said
    assert "invoice" in said


async def test_a_schema_that_somebody_made_for_it_will_do(admin: Any, schema: str, url: str) -> None:
    """Where a user may not make schemas, the owner of the database makes one."""
    role = f"role_{schema}"
    await admin.execute(f"CREATE ROLE {role} LOGIN")
    await admin.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {role}")
    store = PostgresStore(url.replace("postgres@", f"{role}@"))

    await store.open()
    await add(store, "a")
    await store.close()

    await admin.execute(f"DROP OWNED BY {role}")
    await admin.execute(f"DROP ROLE {role}")


async def test_many_who_come_at_once_make_the_tables_once(url: str, admin: Any) -> None:
    stores = [PostgresStore(url) for _ in range(8)]

    await asyncio.gather(*(store.open() for store in stores))

    await add(stores[0], "a")
    assert [job.id for job in await stores[7].list_jobs(JobFilter())] == ["a"]
    assert await admin.fetchval("SELECT number FROM version") == len(postgres_schema.MIGRATIONS)
    for store in stores:
        await store.close()


async def test_each_schema_has_its_own_jobs(store: PostgresStore, url: str) -> None:
    elsewhere = PostgresStore(url, schema=f"{store.schema}_2")
    await elsewhere.open()
    await add(elsewhere, "a")

    assert await store.get("default", "a") is None
    await elsewhere.close()


async def test_a_schema_that_was_dropped_is_told_of(store: PostgresStore, admin: Any, schema: str) -> None:
    await admin.execute(f"DROP SCHEMA {schema} CASCADE")

    with pytest.raises(StoreError, match="has changed: "):
        await store.check()
    with pytest.raises(StoreError):
        await add(store, "a")


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize("text", ["plain", "\0", "a\0b\0\0", "\uffff", "\uffff0", "\0\uffff\uffff0", ""], ids=ascii)
def test_any_text_can_be_kept(text: str) -> None:
    """PostgreSQL has no room for one character."""
    assert "\0" not in kept(text)
    assert original(kept(text)) == text


# ---------------------------------------------------------------- claims


@pytest.mark.parametrize(
    "statement",
    [CLAIM_DUE, CLAIM_DUE_IN_GROUPS, CLAIM_DUE_IN_SHARED_GROUPS],
    ids=["plain", "in groups", "in shared groups"],
)
async def test_a_claim_looks_at_no_more_than_it_must(store: PostgresStore, admin: Any, statement: str) -> None:
    """Whatever the planner believes of tables that have grown since it counted them."""
    for name, value in postgres.RUN_PLANS.items():
        await admin.execute(f"SET {name} = {value}")

    await admin.execute(f"PREPARE claiming AS {statement}")
    numbers = {int(number) for number in re.findall(r"\$(\d+)", statement)}
    arrays = {7, 8, 9, 10, 12, 13, 14, 15, 16}
    values = ", ".join("'{h}'" if number == 2 else "'{}'" if number in arrays else "1" for number in sorted(numbers))
    plan = "\n".join(line for (line,) in await admin.fetch(f"EXPLAIN EXECUTE claiming ({values})"))

    assert "Seq Scan on state" not in plan
    assert plan.count("Index Scan using state_due on state") + plan.count("Index Only Scan using state_due") == 4
    assert "Index Cond: (uid = line.uid)" in plan


async def test_what_somebody_holds_is_left_and_looked_at_again_soon(store: PostgresStore, admin: Any) -> None:
    """Nobody waits for a lock, and nothing that is due is forgotten because of one."""
    node = await store.join(identity("first"), NOON)
    for name in "ab":
        await add(store, name)

    async with admin.transaction():
        await admin.execute("SELECT FROM state WHERE id = 'a' FOR UPDATE")
        claims = await claim(store, node)

    assert (claimed_ids(claims), claims.next_due) == (["b"], NOON + SOON)
    assert claimed_ids(await claim(store, node, NOON + SOON)) == ["a"]


async def test_behind_a_window_full_of_due_jobs_nobody_is_forgotten(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are due, each claim says that there may be more, until there are none."""
    monkeypatch.setattr("scheduler_async.stores.postgres.claims.LEAST_WINDOW", 4)
    node = await store.join(identity("first"), NOON)
    await store.change([adding(f"full {n}", group="full") for n in range(20)], NOON)
    await store.change([adding(f"narrow {n}", group="narrow") for n in range(20)], NOON)
    await store.change([adding(f"free {n}", state={"next_run_at": NOON - 1 + n % 2}) for n in range(20)], NOON)

    taken = []
    while True:
        claims = await claim(store, node, limit=2, group_limits={"full": 0, "narrow": 3})
        taken += claimed_ids(claims)
        if not claims.is_full:
            break

    assert sorted(taken) == sorted([f"free {n}" for n in range(20)] + ["narrow 0", "narrow 1", "narrow 2"])


async def handlers(admin: Any) -> list[str]:
    return [name for (name,) in await admin.fetch("SELECT name FROM handler ORDER BY number")]


async def test_handlers_that_no_job_uses_any_more_are_forgotten(store: PostgresStore, admin: Any) -> None:
    """Every claim walks through them: those of jobs that came and went would make it slower for all."""
    for number in range(5):
        await add(store, f"job {number}", handler=f"handler {number}")
    await add(store, "paused", handler="handler 0", state={"phase": Phase.PAUSED})
    await store.remove("default", "job 0", NOON)
    await store.remove("default", "job 1", NOON)
    await edit(store, "job 2", handler="edited")
    await change_state(store, "job 3", disable, NOON)
    await store.purge_disabled(NOON + DAY, 100, NOON + DAY, ended=False)
    await add(store, "again", handler="handler 1")

    assert await handlers(admin) == ["handler 0", "handler 4", "edited", "handler 1"]


async def test_a_handler_is_not_forgotten_while_a_job_that_uses_it_is_added(store: PostgresStore, admin: Any) -> None:
    """Neither transaction sees the other: the job would wait for ever for a handler that nobody knows."""
    await add(store, "a", handler="h")
    async with admin.transaction():
        await admin.execute("SELECT FROM handler WHERE name = 'h' FOR KEY SHARE")  # as whoever adds a job
        await store.remove("default", "a", NOON)
    kept = await handlers(admin)

    async with admin.transaction():
        await admin.execute("DELETE FROM handler WHERE name = 'h'")  # as whoever removes the last job
        adding_b = asyncio.create_task(add(store, "b", handler="h"))
        while not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
            pass
    await adding_b
    node = await store.join(identity("here"), NOON)

    assert kept == ["h"]
    assert claimed_ids(await claim(store, node, handlers=["h"])) == ["b"]
    assert await handlers(admin) == ["h"]


async def test_a_group_is_not_overfilled_by_many_who_claim_at_once(store: PostgresStore, url: str) -> None:
    stores = [PostgresStore(url) for _ in range(4)]
    for each in stores:
        await each.open()
    nodes = [await each.join(identity(str(number)), NOON) for number, each in enumerate(stores)]
    await store.change([adding(f"{n}", group="g") for n in range(20)], NOON)

    claims = await asyncio.gather(
        *(claim(each, node, group_limits={"g": 3}) for each, node in zip(stores, nodes, strict=True))
    )

    assert sum(len(each.runs) for each in claims) == 3
    for each in stores:
        await each.close()


async def test_two_who_add_the_same_job_at_once_do_not_fail_each_other(
    store: PostgresStore, other: PostgresStore
) -> None:
    """The second sees the job of the first, and decides again."""
    changes = [adding("a", handler="new")]

    answers = await asyncio.gather(
        *(each.change(changes, NOON) for each in (store, other, store, other)), return_exceptions=True
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["JobExistsError"] * 3 + ["list"]


async def test_two_who_change_many_jobs_at_once_both_succeed(store: PostgresStore, other: PostgresStore) -> None:
    """In whatever order they name them."""
    names = [f"{n}" for n in range(30)]
    await store.change([adding(name) for name in names], NOON)

    async def rename(each: PostgresStore, order: list[str]) -> None:

        await each.change([editing(name, name="New") for name in order], NOON)

    await asyncio.gather(*(rename(each, order) for each, order in ((store, names), (other, names[::-1])) * 5))

    assert {job.revision for job in await store.list_jobs(JobFilter())} == {11}


async def test_an_edit_that_waited_for_a_removal_leaves_the_removed_job_alone(store: PostgresStore, admin: Any) -> None:
    """A job that a run of its own removes keeps its state until that run ends."""
    first = await add(store, "a", Manual())

    async with admin.transaction():
        await admin.execute("SELECT FROM state FOR UPDATE")
        adding_again = asyncio.create_task(add(store, "a", Manual()))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        await admin.execute("UPDATE job SET removed_at = $1", NOON)
    second = await adding_again
    async with admin.transaction():
        await admin.execute("SELECT FROM state FOR UPDATE")
        requesting = asyncio.create_task(store.request_start("default", "a", None, NOON))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        await admin.execute("UPDATE job SET removed_at = $1", NOON)

    assert second.uid != first.uid
    assert await requesting is None


async def test_a_backfill_leaves_an_occurrence_to_another_node_that_is_claiming_it(
    store: PostgresStore, admin: Any
) -> None:
    """Otherwise it would run without a row."""
    node = await store.join(identity("first"), NOON)
    job = await add(store, "a", Every("1m"))
    occurrences = [NOON - HOUR, NOON]
    backfill = await store.add_backfill(job, occurrences, None, NOON, max_concurrent=9, again=False)
    assert backfill is not None
    terms = on_terms(node)

    async with admin.transaction():
        await admin.execute(
            "INSERT INTO run (uid, scheduled_for, attempt, claimed_at, trigger) VALUES ($1, $2, 1, $2, 'schedule')",
            job.uid,
            NOON,
        )
        claiming = asyncio.create_task(store.claim_backfills(NOON, terms))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
    runs, again_at = await claiming

    assert [run.scheduled_for for run in runs] == [NOON - HOUR]
    assert again_at == NOON + SOON
    (again,), _ = await store.claim_backfills(NOON + SOON, terms)
    assert (again.scheduled_for, again.attempt) == (NOON, 2)


async def test_a_removal_cancels_the_runs_of_a_backfill_that_are_being_claimed(
    store: PostgresStore, admin: Any
) -> None:
    """A caller may wait for such a run."""
    job = await add(store, "a", Every("1m"))
    assert await store.add_backfill(job, [NOON, NOON + HOUR], None, NOON, max_concurrent=9, again=False)

    async with admin.transaction():
        await admin.execute("SELECT FROM backfill FOR UPDATE")
        removing = asyncio.create_task(store.remove("default", "a", NOON))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        await admin.execute(
            "INSERT INTO run (id, uid, scheduled_for, attempt, claimed_at, trigger)"
            " VALUES (1, $1, $2, 1, $2, 'backfill')",
            job.uid,
            NOON,
        )
        await admin.execute("INSERT INTO instance SELECT 1, uid, 1, number FROM backfill")
    await removing

    assert [row.outcome for row in await store.list_runs(RunFilter())] == [Outcome.CANCELLED]
    assert await admin.fetchval("SELECT count(*) FROM instance") == 0


async def test_an_ending_for_a_backfill_and_the_removal_of_its_job_wait_for_each_other(
    store: PostgresStore, other: PostgresStore, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lock the same rows in the same order: neither is aborted."""
    monkeypatch.setattr(postgres, "MAX_ATTEMPTS", 1)
    node = await store.join(identity("first"), NOON)
    job = await add(store, "a", Every("1m"))
    assert await store.add_backfill(job, [NOON], None, NOON, max_concurrent=9, again=False)
    ((run,), _) = await store.claim_backfills(NOON, on_terms(node))

    async with admin.transaction():
        await admin.execute("SELECT FROM instance FOR UPDATE")
        ending = asyncio.create_task(finish(store, run))
        await until(lambda: is_blocked(admin, store._runs))
        removing = asyncio.create_task(other.remove("default", "a", NOON))
        await until(lambda: is_blocked(admin, other._edits))

    assert await ending is not None
    assert await removing is not None


async def test_a_claim_and_the_recovery_of_its_node_do_not_miss_each_other(
    store: PostgresStore, other: PostgresStore
) -> None:
    """Whoever comes second sees what the first has done: no run is left with a node that is gone."""
    await store.change([adding(f"{n}") for n in range(50)], NOON)
    observer = await other.join(identity("observer"), NOON)
    for _ in range(10):
        node = await store.join(identity("dying"), NOON)
        seen = [row for row in await other.beat(observer) if row.id == node]

        claimed, recovered = await asyncio.gather(
            claim(store, node, limit=5), other.recover(seen, NOON, RULES), return_exceptions=True
        )

        assert not isinstance(recovered, BaseException)
        assert await store.held(node) == set()
        if not isinstance(claimed, BaseException):
            assert len(recovered) == len(claimed.runs)


# ---------------------------------------------------------------- hearing of others


IS_WAITED_FOR = """
    SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid)))
"""


async def is_blocked(admin: Any, link: Link) -> bool:
    """Whether a connection waits for a lock."""
    assert link._connection is not None
    pid = link._connection.get_server_pid()
    return bool(await admin.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))


async def until(condition: Any) -> None:
    while not await condition():
        await asyncio.sleep(0.01)


async def test_others_hear_at_once_when_something_may_be_due(store: PostgresStore, other: PostgresStore) -> None:
    heard: list[tuple[Micros | None, int]] = []
    store.on_change(lambda *told: heard.append(told))
    await store.version()  # from here on it listens

    await add(store, "mine")
    await add(other, "theirs", Every("1m"))
    await other.change([adding(f"in {after}", Every(after)) for after in ("5m", "300s", "6m")], NOON)
    await edit(other, "mine", priority="low")
    await other.remove("default", "theirs", NOON)
    await store.version()

    assert heard == [(NOON + MINUTE, 1), (NOON + 5 * MINUTE, 2), (NOON, 1)]


@pytest.mark.parametrize(
    "words", ["somebody soon", "somebody 1 2 3", "somebody 5", "somebody 9223372036854775807 1", "somebody 0 -1", "x  "]
)
async def test_a_notification_that_cannot_be_read_means_that_something_has_changed(
    store: PostgresStore, other: PostgresStore, admin: Any, schema: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may send one. Those that come after it are heard."""
    caplog.set_level(logging.DEBUG, "scheduler_async")
    heard: list[tuple[Micros | None, int]] = []
    store.on_change(lambda *told: heard.append(told))
    before = await store.version()

    await admin.execute("SELECT pg_notify($1, $2)", schema, words)
    await add(other, "theirs", Every("1m"))
    after = await store.version()

    assert heard == [(None, 0), (NOON + MINUTE, 1)]
    assert after > before
    assert "Cannot read the notification" in caplog.text


async def test_claims_and_endings_of_others_show_in_the_version_and_are_not_told(
    store: PostgresStore, other: PostgresStore
) -> None:
    """They are too many to be told of; who waits for a slot of theirs looks now and then."""
    heard: list[tuple[Micros | None, int]] = []
    node = await other.join(identity("second"), NOON)
    await add(other, "a")
    await store.version()
    store.on_change(lambda *told: heard.append(told))
    versions = {await store.version()}

    run = await claim_only(other, node)
    versions.add(await store.version())
    versions.add(await store.version())  # it may have been counted before it was committed
    settled = await store.version()
    assert await store.version() == settled
    await finish(other, run)
    versions.add(await store.version())

    assert len(versions) == 4
    assert heard == []


async def test_a_job_that_is_added_elsewhere_starts_at_once(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks: the others are told."""
    monkeypatch.setattr(membership, "POLL", 3600.0)
    ran = asyncio.Event()
    scheduler = Scheduler(url)
    scheduler.handler("h")(ran.set)

    async with scheduler:
        await add(store, "a", At(from_micros(0)))
        await ran.wait()


# ---------------------------------------------------------------- the clock of the database


async def test_jobs_go_by_the_clock_of_the_database(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine whose clock is wrong runs jobs when everybody else does, and says that it is wrong, once."""
    ahead = postgres.READ_CLOCK.replace("clock_timestamp()", "clock_timestamp() + interval '1 day'")
    monkeypatch.setattr(postgres, "READ_CLOCK", ahead)
    caplog.set_level(logging.WARNING)
    machine = Scheduler(":memory:")
    scheduler = Scheduler(url)

    here = await machine.add_job(Manual(), handler="h")
    there = await scheduler.add_job(Manual(), handler="h")
    node = await scheduler._store.join(identity("first"), NOON)
    await scheduler._store.beat(node)
    await scheduler._store.beat(node)
    await machine.stop()
    await scheduler.stop()

    assert timedelta(hours=23) < there.created_at - here.created_at < timedelta(hours=25)
    assert [record.getMessage() for record in caplog.records] == [
        "The clock of this machine is 86400.0 s behind the clock of the database; jobs use the clock of the database"
    ]


# ---------------------------------------------------------------- connections that are lost


async def end_connections(admin: Any, schema: str, which: str = "true") -> None:
    """As an administrator ends them, or a server that is told to shut down."""
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE application_name = 'scheduler_async' AND pid <> pg_backend_pid() AND {which}"
    )


async def test_a_connection_that_was_lost_while_nobody_used_it_is_made_anew(
    store: PostgresStore, admin: Any, schema: str
) -> None:
    node = await store.join(identity("first"), NOON)
    await add(store, "a")
    await end_connections(admin, schema)

    run = await claim_only(store, node)
    await end_connections(admin, schema)
    assert await finish(store, run) is not None
    await end_connections(admin, schema)

    await edit(store, "a", name="New")


async def test_who_missed_what_was_told_looks_at_everything(
    store: PostgresStore, other: PostgresStore, admin: Any, schema: str
) -> None:
    heard: list[tuple[Micros | None, int]] = []
    store.on_change(lambda *told: heard.append(told))
    before = await store.version()
    await end_connections(admin, schema)
    await asyncio.sleep(0)

    async def works_again() -> bool:
        try:
            await store.version()
        except StoreError:
            return False
        return True

    await until(works_again)

    assert heard == [(None, 0)]
    assert await store.version() != before


async def test_a_transaction_whose_connection_is_lost_changes_nothing(
    store: PostgresStore, admin: Any, schema: str
) -> None:
    """It says so, and the next one works."""
    node = await store.join(identity("first"), NOON)
    await add(store, "a")

    async with admin.transaction():
        await admin.execute("SELECT FROM state WHERE id = 'a' FOR UPDATE")
        waiting = asyncio.create_task(edit(store, "a", name="New"))
        waits = "wait_event_type = 'Lock'"

        async def is_waiting() -> bool:
            question = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'scheduler_async' AND {waits}"
            return bool(await admin.fetchval(question))

        await until(is_waiting)
        await end_connections(admin, schema, waits)
        with pytest.raises(StoreError, match="cannot be reached: the"):
            await waiting

    assert (await edit(store, "a", name="Newer")).name == "Newer"
    assert claimed_ids(await claim(store, node)) == ["a"]


async def test_a_statement_that_was_canceled_is_not_asked_again(
    url: str, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that takes too long would take twice as long, and its connection works."""
    monkeypatch.setitem(pages.PAGE_PLANS, "statement_timeout", "50ms")
    search = JobSearch(now=NOON, limit=5)
    store = PostgresStore(url)
    await store.open()
    await store.jobs_page(search)
    before = store._pages._connection

    async with admin.transaction():
        await admin.execute("LOCK TABLE job")
        with pytest.raises(StoreBusyError, match="Narrow the search"):
            await store.jobs_page(search)
        waiting = asyncio.create_task(edit(store, "a", name="New"))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        waits = "NOT granted AND relation = 'job'::regclass"
        await admin.execute(f"SELECT pg_cancel_backend(pid) FROM pg_locks WHERE {waits}")
        with pytest.raises(StoreError, match="canceled a statement") as refused:
            await waiting

    assert not isinstance(refused.value, StoreBusyError)
    assert store._pages._connection is before
    await add(store, "a")
    await store.close()


async def test_an_ending_whose_answer_was_lost_is_known_when_it_is_told_again(store: PostgresStore) -> None:
    """A server may die between the commit and its answer: the run was ours all the same, and is not written twice."""
    node = await store.join(identity("first"), NOON)
    await add(store, "a")
    item = ended(await claim_only(store, node), Ending(outcome=Outcome.SUCCESS, output="said"), NOON + 3 * MINUTE)

    (first,) = await store.finish([item], RULES)
    (second,) = await store.finish([item], RULES)

    assert first is not None
    assert second is not None
    assert (second.job, second.skips, second.kind) == (first.job, first.skips, first.kind)
    assert [row.outcome for row in await store.list_runs(RunFilter())] == [Outcome.SKIPPED, Outcome.SUCCESS]
    assert await store.get("default", "a") == first.job


async def test_an_ending_does_not_wait_for_edits(
    store: PostgresStore, other: PostgresStore, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to processes that wait for it; if that fails, it is recorded all the same."""
    node = await store.join(identity("first"), NOON)
    await add(store, "a")
    await add(store, "b")
    first, second = (await claim(store, node)).runs
    await store.version()  # from here on it listens
    awaited = [await other.ending_of(run.id) for run in (first, second)]
    await store.version()  # the notifications have arrived

    async with admin.transaction():
        await admin.execute("LOCK TABLE change")
        reading = asyncio.create_task(store.list_changes(ChangeFilter()))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        assert await finish(store, first) is not None
    await reading
    await awaited[0].wait()

    async def fail(*_: Any) -> None:
        raise StoreError("It is gone.")

    monkeypatch.setattr(store, "_send", fail)
    assert await finish(store, second) is not None


async def test_a_caller_who_is_cancelled_leaves_no_transaction_behind(store: PostgresStore, admin: Any) -> None:
    await add(store, "a")

    async with admin.transaction():
        await admin.execute("SELECT FROM state WHERE id = 'a' FOR UPDATE")
        waiting = asyncio.create_task(edit(store, "a", name="New"))
        await until(lambda: admin.fetchval(IS_WAITED_FOR))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert (await edit(store, "a", payload=1)).name is None


async def test_a_server_that_does_not_answer_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for ever would be worse than an error."""
    monkeypatch.setattr(troubles, "FIRST_RETRY", 0.1)
    for name in ("CONNECT_TIMEOUT", "RUN_TIMEOUT", "READ_TIMEOUT", "BEAT_TIMEOUT"):
        monkeypatch.setattr(postgres, name, 0.3)
    store = PostgresStore(server.url)
    await store.open()
    node = await store.join(identity("first"), NOON)
    await add(store, "a")
    await claim(store, node)

    await asyncio.to_thread(server.tell, "freeze")
    for question in (store.get("default", "a"), claim(store, node), store.beat(node), store.beat(node)):
        with pytest.raises(StoreError, match=r"did not answer within 0.3 s"):
            await question
    await asyncio.to_thread(server.tell, "thaw")

    monkeypatch.setattr(postgres, "CONNECT_TIMEOUT", 5.0)
    assert await store.get("default", "a") is not None
    await store.beat(node)
    await store.close()


async def test_a_scheduler_outlives_a_restart_of_its_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was, and nothing that ended meanwhile is lost."""
    monkeypatch.setattr(membership, "POLL", 0.05)
    monkeypatch.setattr(troubles, "FIRST_RETRY", 0.05)
    scheduler = Scheduler(server.url, min_interval="1s")
    runs: list[Run] = []
    began, go = asyncio.Event(), asyncio.Event()

    @scheduler.handler("often")
    async def often(run: Run) -> None:
        runs.append(run)

    @scheduler.handler("slow")
    async def slow() -> None:
        began.set()
        await go.wait()

    async with scheduler:
        await scheduler.add_job(Every("1s"), handler="often", id="often")
        await scheduler.add_job(Manual(), handler="slow", id="slow")
        await scheduler.trigger_job("slow")
        await began.wait()

        await asyncio.to_thread(server.tell, "stop")
        go.set()  # it ends while there is nobody to tell
        while scheduler.state().problem is None:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.tell, "start")
        before = len(runs)
        while len(runs) < before + 2:
            await asyncio.sleep(0.01)
        rows = await scheduler.run_log("slow")
        while not rows or rows[0].outcome is None:
            rows = await scheduler.run_log("slow")

    assert [row.outcome for row in rows] == [Outcome.SUCCESS]
    assert len({run.scheduled_for for run in runs}) == len(runs)


SHORT_LEASES = {"LEASE": 1.5, "BEAT": 0.2, "MARGIN": 0.3, "POLL": 0.1}


async def test_who_loses_the_database_lets_go_of_its_runs_and_joins_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take over what it cannot show to be alive: it must have stopped by then."""
    for name, value in SHORT_LEASES.items():
        monkeypatch.setattr(membership, name, value)
        monkeypatch.setattr("scheduler_async.stores.liveness." + name, value, raising=False)
    monkeypatch.setattr(troubles, "FIRST_RETRY", 0.1)
    for name in ("CONNECT_TIMEOUT", "RUN_TIMEOUT", "READ_TIMEOUT", "BEAT_TIMEOUT"):
        monkeypatch.setattr(postgres, name, 0.2)
    scheduler = Scheduler(server.url)
    began, let_go = asyncio.Event(), asyncio.Event()

    @scheduler.handler("slow")
    async def slow(run: Run) -> None:
        if run.attempt == 1:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                let_go.set()

    async with scheduler:
        await scheduler.add_job(At(from_micros(0)), handler="slow", id="a")
        await began.wait()

        await asyncio.to_thread(server.tell, "freeze")
        await let_go.wait()
        await asyncio.to_thread(server.tell, "thaw")
        monkeypatch.setattr(postgres, "CONNECT_TIMEOUT", 5.0)

        rows = await scheduler.run_log("a")
        while rows[0].outcome is not Outcome.SUCCESS:
            await asyncio.sleep(0.05)
            rows = await scheduler.run_log("a")

    assert [(row.attempt, row.outcome) for row in rows] == [(2, Outcome.SUCCESS), (1, Outcome.INTERRUPTED)]
