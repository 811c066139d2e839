"""What runs write, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_async import InvalidJobError, Manual, Run, Scheduler
from scheduler_async.jobs.output import KEPT, Output
from scheduler_async.testing import VirtualClock
from tests.cast import NewScheduler


def output(*parts: bytes) -> str | None:
    kept = Output()
    for part in parts:
        kept.write(part)
    return kept.text()


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        pytest.param((), None, id="nothing"),
        pytest.param((b"",), None, id="nothing, written"),
        pytest.param((b"a", b"b\n"), "ab\n", id="all of it"),
        pytest.param(("å".encode()[:1], "å".encode()[1:]), "å", id="a character in two parts"),
        pytest.param((b"\xff!",), "\N{REPLACEMENT CHARACTER}!", id="no text at all"),
        pytest.param((b"a\0b",), "a␀b", id="what no store can keep"),
        pytest.param((b"a" * KEPT, b"b"), "a" * (KEPT - 1) + "b", id="the oldest goes"),
        pytest.param((b"x" * (KEPT - 1), "åb".encode()), "x" * (KEPT - 3) + "åb", id="to the byte"),
        pytest.param(("€".encode() * KEPT,), "€" * (KEPT // 3), id="the cut goes through a character"),
        pytest.param((b"\x80" * KEPT,), "\N{REPLACEMENT CHARACTER}" * KEPT, id="that is no character at all"),
    ],
)
def test_the_last_of_it_is_kept(parts: tuple[bytes, ...], text: str | None) -> None:
    assert output(*parts) == text


@given(st.lists(st.binary(max_size=KEPT // 3), max_size=12))
def test_what_is_kept_does_not_depend_on_how_it_was_written(parts: list[bytes]) -> None:
    assert output(*parts) == output(b"".join(parts))


async def test_what_a_run_writes_is_kept_with_it(store: str, new_scheduler: NewScheduler, clock: VirtualClock) -> None:
    """However it ends; and it goes when its row goes."""
    scheduler = new_scheduler(store, keep_runs=2)

    @scheduler.handler
    async def talk(run: Run) -> None:
        run.write("Hello")
        run.write(b" \xe2\x82\xac")
        if run.payload == "fail":
            raise ValueError("no")
        if run.payload == "hang":
            await clock.sleep("1h")

    @scheduler.handler
    def talk_in_thread(run: Run) -> None:
        run.write("from a thread")

    await scheduler.add_job(Manual(), handler="talk", id="a", timeout="1m")
    await scheduler.add_job(Manual(), handler="talk_in_thread", id="b")
    await scheduler.add_job(Manual(), handler="talk", id="c")
    await scheduler.start()
    first = await scheduler.trigger_job("a")
    await clock.advance()
    failed = await scheduler.trigger_job("a", payload="fail")
    await clock.advance()
    threaded = await scheduler.trigger_job("b")
    await clock.advance()

    assert await scheduler.run_output(first) == "Hello €"
    assert await scheduler.run_output(failed) == "Hello €"
    assert await scheduler.run_output(threaded) == "from a thread"
    assert await scheduler.run_output(999) is None
    rows = [await scheduler.get_run(run) for run in (threaded, failed, first)]
    assert [row and replace(row, traceback=None, payload=None) for row in rows] == await scheduler.run_log()
    assert await scheduler.get_run(999) is None

    timed_out = await scheduler.trigger_job("a", payload="hang")
    await clock.advance("1m")
    assert await scheduler.run_output(timed_out) == "Hello €"
    await clock.advance("2h")  # by then, old rows are gone
    assert [row.id for row in await scheduler.run_log("a")] == [timed_out, failed]
    assert await scheduler.run_output(first) is None
    await scheduler.remove_job("a")
    assert await scheduler.run_output(failed) == "Hello €"


async def test_what_cannot_be_written_is_refused_when_it_is_written(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Not when the run ends, which would then never be recorded. A buffer that changes later was written as it was."""

    @scheduler.handler("talk")
    async def talk(run: Run) -> None:
        buffer = bytearray(b"as it was")
        run.write(buffer)  # type: ignore[arg-type]
        buffer[:] = b"something"
        run.write(["a"])  # type: ignore[arg-type]

    await scheduler.add_job(Manual(), handler="talk", id="a")
    run = await scheduler.trigger_job("a")
    await clock.advance()

    (row,) = await scheduler.run_log("a")
    assert str(row.error).startswith("TypeError")
    assert await scheduler.run_output(run) == "as it was"


async def test_a_run_that_is_no_number_has_no_output(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidJobError, match="run_id must be the id of a row"):
        await scheduler.run_output("first")  # type: ignore[arg-type]
