"""What the scheduler says while it works: a line for each run, with its ids, and little else."""

from __future__ import annotations

import ast
import asyncio
import io
import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import scheduler_async
from scheduler_async import At, Every, Manual, Outcome, Retry, Scheduler
from scheduler_async.logs import say
from scheduler_async.testing import VirtualClock
from tests.cast import HOUR, MINUTE, NOON, PATIENCE, NewScheduler, Worker

# What a record carries that nobody asked for.
ORDINARY = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Listener(logging.Handler):
    """Keeps every line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """Every line of the package, from INFO on."""
    caplog.set_level(logging.INFO, "scheduler_async")
    logger, listener = logging.getLogger("scheduler_async"), Listener()
    logger.addHandler(listener)
    yield listener.lines
    logger.removeHandler(listener)


def facts_of(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in ORDINARY}


async def test_a_run_is_one_line_with_all_that_is_known_of_it(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, lines: list[logging.LogRecord]
) -> None:
    worker.takes = "2s"
    await scheduler.add_job(At(NOON + MINUTE), handler="work", id="report")
    lines.clear()

    await clock.advance("5m")

    (row,) = await scheduler.run_log()
    (line,) = lines
    assert line.levelno == logging.INFO
    assert line.getMessage() == f"Run {row.id} of default/report: success in 2000 ms"
    assert facts_of(line) == {
        "job": "default/report",
        "run": row.id,
        "attempt": 1,
        "outcome": "success",
        "duration_ms": 2000.0,
    }


ENDS = [
    pytest.param(None, "success", logging.INFO, id="success"),
    pytest.param(Outcome.NOOP, "noop", logging.INFO, id="nothing to do"),
    pytest.param(Outcome.SKIPPED, "skipped", logging.INFO, id="skipped"),
    pytest.param(ValueError("no"), "error", logging.WARNING, id="failure"),
]


async def test_a_failure_says_where_the_handler_failed(
    scheduler: Scheduler, clock: VirtualClock, lines: list[logging.LogRecord]
) -> None:
    @scheduler.handler("fails")
    async def fails() -> None:
        raise KeyError("missing")

    await scheduler.add_job(At(NOON), handler="fails", id="a")
    await clock.advance()

    (line,) = (line for line in lines if facts_of(line).get("outcome"))
    assert isinstance(line.exc_info, tuple)
    assert isinstance(line.exc_info[1], KeyError)
    assert 'raise KeyError("missing")' in "".join(traceback.format_exception(line.exc_info[1]))
    assert line.module == "announcer", "where it is said, not where all is said"


@pytest.mark.parametrize(("answer", "outcome", "level"), ENDS)
async def test_only_a_failure_is_more_than_information(
    scheduler: Scheduler,
    worker: Worker,
    clock: VirtualClock,
    lines: list[logging.LogRecord],
    answer: object,
    outcome: str,
    level: int,
) -> None:
    worker.answer = answer
    await scheduler.add_job(Every("1h"), handler="work", id="a")
    lines.clear()

    await clock.advance("1h")

    assert [(facts_of(line)["outcome"], line.levelno) for line in lines] == [(outcome, level)]


async def test_hours_of_runs_has_a_line_for_each_and_no_others(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, lines: list[logging.LogRecord]
) -> None:
    """Passes, skips, retries and wake-ups for nothing are not worth a line."""
    worker.takes = "90s"
    worker.answer = ValueError("no")
    await scheduler.add_job(Every("30m"), handler="work", id="fails", retry=Retry.in_window(1), misfire="skip")
    await scheduler.add_job(Every("1m"), handler="work", id="too often", retry=Retry.none())
    await scheduler.add_job(Manual(), handler="work", id="never")
    lines.clear()

    await clock.advance("4h")
    clock.set(clock.now() + HOUR)  # misfires
    await clock.advance("1h")

    rows = await scheduler.run_log(limit=None)
    ran = [row.id for row in rows if row.started_at is not None and row.outcome is not None]
    assert Counter(facts_of(line).get("run") for line in lines if "clock" not in line.getMessage()) == Counter(ran)
    assert len(ran) < len(rows)


async def test_a_run_whose_job_is_removed_has_its_line_too(
    scheduler: Scheduler, worker: Worker, clock: VirtualClock, lines: list[logging.LogRecord]
) -> None:
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    lines.clear()

    await scheduler.remove_job("a")
    await clock.advance()

    (line,) = lines
    assert line.levelno == logging.INFO
    assert "was cancelled" in line.getMessage()
    assert facts_of(line) == {"job": "default/a", "run": worker.runs[0].id, "attempt": 1}


async def test_a_run_that_ended_as_its_job_was_removed_has_one_line(
    new_scheduler: NewScheduler, worker: Worker, clock: VirtualClock, lines: list[logging.LogRecord]
) -> None:
    """Its handler is through, and how it ended is about to be written."""
    scheduler = new_scheduler(":memory:")
    await scheduler.start()
    worker.blocks = True
    await scheduler.add_job(At(NOON), handler="work", id="a")
    await clock.advance()
    lines.clear()

    async with scheduler._engine.locks.recording:  # the writer waits
        worker.go.set()
        async with asyncio.timeout(PATIENCE):
            while worker.active:
                await asyncio.sleep(0)
        await scheduler.remove_job("a")
    await clock.advance()

    assert [facts_of(line)["run"] for line in lines] == [worker.runs[0].id]


async def test_an_interval_that_is_raised_names_its_job(idle: Scheduler, lines: list[logging.LogRecord]) -> None:
    await idle.add_job(Every(MINUTE / 120), handler="work", id="quick", namespace="tenant")

    assert [facts_of(line) for line in lines] == [{"job": "tenant/quick"}]


def lines_in_the_source() -> list[tuple[str, str, bool]]:
    """Every `say(…)` of the package: where it is, what it says, and whether it carries anything."""
    found = []
    for file in Path(scheduler_async.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [(f"{file.name}:{line}", text, carries) for line, text, carries in lines_of(function)]
    return found


def lines_of(function: ast.AST) -> Iterator[tuple[int, str, bool]]:
    words = ""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id="words")], value=ast.Constant(value=str(text))):
                words = text
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Name(id="say"), args=[_, message, *_], keywords=keywords):
                text = str(message.value) if isinstance(message, ast.Constant) else words
                yield node.lineno, text, any(keyword.arg == "extra" for keyword in keywords)


def test_whatever_is_said_of_a_job_or_a_run_carries_its_name() -> None:
    """A line of which nobody sees in a test how it looks."""
    lines = lines_in_the_source()
    concerned = [
        line
        for line in lines
        if line[1].startswith(("Run %d", "Discarding", "Job %s", "%s blocks", "The interval of %s"))
    ]

    assert len(lines) > 20
    assert len(concerned) >= 9
    assert [place for place, _, carries in concerned if not carries] == []


def test_a_handler_that_fails_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log is full")

    logger, handler = logging.getLogger("scheduler_async"), Broken()
    logger.addHandler(handler)
    try:
        say(logging.WARNING, "All is well")
    finally:
        logger.removeHandler(handler)

    assert "the log is full" in capsys.readouterr().err


FORGED = "no\n2026-01-05 12:00:00 INFO Run 1 of default/a: success in 1 ms\x1b[2J\u2028\x9b"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a log file would hold."""
    logger, file = logging.getLogger("scheduler_async"), io.StringIO()
    handler = logging.StreamHandler(file)
    handler.setFormatter(
        logging.Formatter("2026-01-05 12:00:00 %(levelname)s %(message)s %(job)s", defaults={"job": ""})
    )
    logger.addHandler(handler)
    yield file
    logger.removeHandler(handler)


async def test_an_error_cannot_pass_for_a_line_of_the_log(
    scheduler: Scheduler, clock: VirtualClock, written: io.StringIO
) -> None:
    """Neither what it says nor its traceback, which has its newlines, and which others have caused."""

    @scheduler.handler("fails")
    async def fails() -> None:
        try:
            raise KeyError(FORGED)
        except KeyError:
            raise ValueError(FORGED) from ExceptionGroup(FORGED, [ValueError(FORGED)])

    await scheduler.add_job(At(NOON), handler="fails", id="a", retry=Retry.none())
    await clock.advance()

    first, *others = written.getvalue().split("\n")
    assert first.startswith("2026-01-05 12:00:00 WARNING Run ")
    assert any("ExceptionGroup" in line for line in others)
    assert all(line.startswith("  ") for line in others if line and not line.startswith("2026-01-05 12:00:00 WARNING"))
    assert "".join(written.getvalue().split("\n")).isprintable()


def test_names_cannot_pass_for_a_line_of_the_log(written: io.StringIO) -> None:
    say(logging.WARNING, "Job %s is disabled: %s, after %d", FORGED, ValueError(FORGED), 3, extra={"job": FORGED})

    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert "after 3" in line
