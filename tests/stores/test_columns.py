"""The list of columns: readers, PostgreSQL types, and how both agree with the schemas of real stores."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_async import At, Cron, Delay, Every, Job, JobSpec, Manual, Retry, Schedule
from scheduler_async.jobs.enums import Misfire, OnInterrupt, Phase, Priority
from scheduler_async.jobs.job import MOST_COUNTED, JobState
from scheduler_async.rules.edits import add
from scheduler_async.stores.codec import description_values, read_job, read_state, state_values
from scheduler_async.stores.columns import (
    ACTIVITIES,
    BIGINT,
    DESCRIPTION,
    DESCRIPTION_TYPES,
    PLACE,
    STATE,
    STATE_TEXTS,
    STATE_TYPES,
    TEXT,
    Kind,
)
from scheduler_async.stores.postgres.store import PostgresStore
from scheduler_async.stores.sqlite.store import SQLiteStore
from scheduler_async.timekeeping.instants import FIRST, LAST, to_micros
from tests.cast import NOON
from tests.postgres_server import url_of_schema

KINDS: dict[str, Kind] = {
    **{f"job.{column.name}": column.kind for column in DESCRIPTION},
    **{f"state.{name}": kind for name, kind in STATE.items()},
}
TABLES = {"job": DESCRIPTION_TYPES, "state": STATE_TYPES}

# ---------------------------------------------------------------- readers

WRONG: dict[str, list[object]] = {
    TEXT: [0, 1, -1, 0.5, True, b"", b"a"],
    BIGINT: ["", "a", "1", 0.0, 1.0, 0.5, float("nan"), True, False, b"", b"1"],
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_reader_refuses_values_of_another_type(kind: Kind) -> None:
    """SQLite gives back whatever a damaged file holds."""
    assert [value for value in WRONG[kind.type] if accepts(kind, value)] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.type == TEXT])
def test_a_reader_refuses_text_that_is_not_utf_8(kind: Kind) -> None:
    with pytest.raises(ValueError, match=r"UTF-8|is not one of"):
        kind.read("a\udcffb")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        pytest.param("job.anchor", FIRST - 1, id="a moment before the year 1"),
        pytest.param("job.anchor", LAST + 1, id="a moment after the year 9999"),
        pytest.param("job.timeout", 0, id="no timeout at all"),
        pytest.param("job.handler", "a\nb", id="a name with a line break"),
        pytest.param("job.schedule", '{"version": 1, "kind": "every"}', id="a schedule without its interval"),
        pytest.param("job.retry", "{}", id="a policy without a kind"),
        pytest.param("job.payload", "{", id="broken JSON"),
        pytest.param("job.metadata", "[]", id="metadata that is not an object"),
        pytest.param("job.priority", "urgent", id="an unknown priority"),
        pytest.param("state.activity", "paused", id="a phase as an activity"),
        pytest.param("state.phase", "idle", id="an activity as a phase"),
        pytest.param("state.attempts", -1, id="a negative count"),
        pytest.param("state.attempts", MOST_COUNTED + 1, id="an absurd count"),
        pytest.param("state.next_run_at", LAST + 1, id="a next run after the year 9999"),
    ],
)
def test_a_reader_refuses_values_that_make_no_sense(column: str, value: object) -> None:
    with pytest.raises(ValueError):
        KINDS[column].read(value)


@pytest.mark.parametrize("kind", [column.kind for column in DESCRIPTION if column.kind.stand_in is not None])
def test_a_stand_in_can_be_stored_and_read(kind: Kind) -> None:
    stored = kind.stand_in if kind.write is None else kind.write(kind.stand_in)

    assert kind.read(stored) == kind.stand_in


def test_the_texts_of_a_state_hold_any_string() -> None:
    """Stores that cannot keep every string look at exactly these columns. One of them is JSON."""
    texts = ("any string\n", '"any string"')
    free = {name for name, kind in STATE.items() if kind.type == TEXT and any(accepts(kind, text) for text in texts)}

    assert set(STATE_TEXTS) == free


def test_a_place_is_where_a_description_has_its_column() -> None:
    assert [name for name, _ in sorted(PLACE.items(), key=lambda item: item[1])] == [*DESCRIPTION_TYPES]


def accepts(kind: Kind, value: object) -> bool:
    try:
        kind.read(value)
    except ValueError:
        return False
    return True


# ---------------------------------------------------------------- schemas

Schema = dict[str, tuple[str, bool]]
"""By column: its type in PostgreSQL, and whether it may be null."""


def expected_of(table: str) -> Schema:
    return {name: (type_, accepts(KINDS[f"{table}.{name}"], None)) for name, type_ in TABLES[table].items()}


def found_of(schema: Mapping[str, tuple[str, bool]], table: str) -> Schema:
    """Return the columns of *schema* that a description or a state lists; a store has more, for its queries."""
    return {name: column for name, column in schema.items() if name in TABLES[table]}


@pytest.mark.parametrize("table", TABLES)
async def test_the_columns_agree_with_the_schema_of_sqlite(table: str, path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()

    db = sqlite3.connect(path)
    rows = db.execute(f"PRAGMA table_info({table})").fetchall()
    db.close()

    types = {"TEXT": TEXT, "INTEGER": BIGINT}
    schema = {name: (types[type_], not (notnull or pk)) for _, name, type_, notnull, _, pk in rows}
    assert found_of(schema, table) == expected_of(table)


@pytest.mark.once
@pytest.mark.parametrize("table", TABLES)
async def test_the_columns_agree_with_the_schema_of_postgresql(table: str, tmp_path: Path) -> None:
    url = url_of_schema(str(tmp_path))
    store = PostgresStore(url)
    await store.open()
    await store.close()

    server, _, name = url.rpartition("schema=")
    db = await asyncpg.connect(server.rstrip("?&"))
    try:
        rows = await db.fetch(
            "SELECT column_name, data_type, is_nullable = 'YES' FROM information_schema.columns"
            " WHERE table_schema = $1 AND table_name = $2",
            name,
            table,
        )
    finally:
        await db.close()

    schema = {column: (type_, is_nullable) for column, type_, is_nullable in rows}
    assert found_of(schema, table) == expected_of(table)


# ---------------------------------------------------------------- there and back

NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
MOMENTS = st.integers(FIRST, LAST)
DURATIONS = st.integers(1, 10**15).map(lambda micros: timedelta(microseconds=micros))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
SCHEDULES: st.SearchStrategy[Schedule] = st.one_of(
    st.builds(Every, DURATIONS, immediately=st.booleans()),
    st.builds(Delay, DURATIONS, immediately=st.booleans()),
    st.builds(At, st.datetimes(timezones=st.just(NOON.tzinfo))),
    st.sampled_from([Cron("0 9 * * 1-5", tz="Europe/Stockholm"), Cron("*/5 * * * * *", tz="UTC"), Manual()]),
)
RETRIES = st.sampled_from(
    [None, Retry.none(), Retry.backoff(["1s", "1m"]), Retry.in_window(2, delay="5m"), Retry.budget(3, "1d")]
)
STATE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "activity": st.sampled_from(ACTIVITIES),
    "phase": st.sampled_from(Phase),
    "last_exit_code": st.none() | st.integers(-(2**63), 2**63 - 1),
    **{name: st.none() | TEXTS for name in STATE_TEXTS},
    "cursor": st.none() | TEXTS.map(json.dumps),
    "retries": st.none() | TEXTS.map(json.dumps),
    **{
        name: st.integers(0, MOST_COUNTED) for name, kind in STATE.items() if accepts(kind, 0) and not accepts(kind, -1)
    },
}
STATES = st.builds(
    JobState, **{name: STATE_VALUES[name] if name in STATE_VALUES else st.none() | MOMENTS for name in STATE}
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    spec = JobSpec(
        draw(SCHEDULES),
        handler=draw(NAMES),
        id=draw(NAMES),
        namespace=draw(NAMES),
        payload=draw(JSON),
        metadata=draw(st.dictionaries(TEXTS, JSON, max_size=3)),
        user_id=draw(st.none() | NAMES),
        name=draw(st.none() | NAMES),
        priority=draw(st.sampled_from(Priority)),
        group=draw(st.none() | NAMES),
        misfire=draw(st.sampled_from(Misfire)),
        retry=draw(RETRIES),
        timeout=draw(st.none() | DURATIONS),
        on_interrupt=draw(st.sampled_from(OnInterrupt)),
    )
    job = add(spec, id=str(spec.id), handler=str(spec.handler), now=to_micros(NOON))
    return replace(
        job,
        uid=draw(st.integers(1, 2**53)),
        revision=draw(st.integers(1, 2**53)),
        anchor=draw(MOMENTS),
        created=draw(MOMENTS),
        updated=draw(MOMENTS),
        state=draw(STATES),
    )


@given(job=jobs())
def test_any_job_comes_back_from_its_columns(job: Job) -> None:
    description, state = description_values(job), tuple(state_values(job.state))

    assert read_job(description).with_state(read_state(state)) == job
    for types, values in ((DESCRIPTION_TYPES, description), (STATE_TYPES, state)):
        for type_, value in zip(types.values(), values, strict=True):
            assert value is None or type(value) is {TEXT: str, BIGINT: int}[type_]
