"""Real servers as processes of their own, asked over HTTP and ended by signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from scheduler_async import At, JobSpec, Outcome, RunRow, Scheduler

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="servers are ended by signals here"),
    pytest.mark.timeout(90),
]

ROOT = Path(__file__).parent.parent
PYTHON = (sys.executable, "-u")
UVICORN = (*PYTHON, "-m", "uvicorn", "--port", "0", "--app-dir", ".")
GUNICORN = (*PYTHON, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--worker-class", "uvicorn_worker.UvicornWorker")

# A handler that leaves a trace outside of the store, and one that ends when it is told that the scheduler stops.
APP = """
    import os
    from scheduler_async import Run, Scheduler

    scheduler = Scheduler("jobs.db")
    effects = os.open("effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @scheduler.handler("note")
    async def note(run: Run) -> None:
        os.write(effects, f"{os.getpid()} {run.job_id}\\n".encode())

    @scheduler.handler("patient")
    async def patient(run: Run) -> None:
        print("begun", flush=True)
        await run.stopping.wait()
"""
STARLETTE = """
    from starlette.applications import Starlette
    from jobs import scheduler

    app = Starlette(lifespan=scheduler.lifespan)
"""
AIOHTTP = """
    from aiohttp import web
    from jobs import scheduler

    app = web.Application()
    app.cleanup_ctx.append(scheduler.cleanup_ctx)
    web.run_app(app, host="127.0.0.1", port=0)
"""


class Server:
    """A server that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    async def says(self, pattern: str) -> str:
        """Wait until it says something like *pattern*; return the first group, or all of it."""
        found = await asyncio.to_thread(self._read_until, pattern)
        return found[1] if found.groups() else found[0]

    def _read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"It ended without saying {pattern}:\n{''.join(self.said)}")

    async def ends(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = await asyncio.to_thread(self.process.communicate)
        self.said.append(rest)
        return self.process.returncode


# Linux ends a server in a session of its own when the process of the tests is killed.
END_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.execv(sys.argv[1], sys.argv[1:])
"""


@contextmanager
def serving(directory: Path, *command: str, **environment: str) -> Iterator[Server]:
    """A server that works in *directory*, and does not outlive the test."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", END_WITH_PARENT, *command],
        cwd=directory,
        env={**os.environ, "HOME": str(directory), **environment},  # some leave a socket there
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Server(process)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Where an application lies."""
    for name, text in {"jobs": APP, "starlette_app": STARLETTE, "aiohttp_app": AIOHTTP}.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    return tmp_path


@asynccontextmanager
async def operator(directory: Path) -> AsyncIterator[Scheduler]:
    """Another process's view of the jobs of an application."""
    scheduler = Scheduler(directory / "jobs.db")
    try:
        yield scheduler
    finally:
        await scheduler.stop()


async def rows_of(directory: Path, job_id: str | None = None) -> list[RunRow]:
    async with operator(directory) as scheduler:
        return await scheduler.run_log(job_id, limit=None)


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [
        # It has handled the signal, and then ends by it, as its manual says.
        pytest.param((*UVICORN, "--loop", "asyncio", "starlette_app:app"), -signal.SIGTERM, id="uvicorn on asyncio"),
        pytest.param((*UVICORN, "--loop", "uvloop", "starlette_app:app"), -signal.SIGTERM, id="uvicorn on uvloop"),
        pytest.param((*PYTHON, "aiohttp_app.py"), 0, id="aiohttp"),
        pytest.param((*GUNICORN, "starlette_app:app"), 0, id="gunicorn", marks=pytest.mark.once),
    ],
)
async def test_a_run_in_progress_finishes_when_the_server_is_asked_to_end(
    directory: Path, command: tuple[str, ...], exit_code: int
) -> None:
    async with operator(directory) as scheduler:
        await scheduler.add_job(At(datetime.now(UTC)), handler="patient", id="once")

    with serving(directory, *command) as server:
        await server.says("begun")
        assert await server.ends() == exit_code, server.said

    (row,) = await rows_of(directory)
    assert row.outcome is Outcome.SUCCESS


# ---------------------------------------------------------------- several workers


@pytest.mark.once
@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*UVICORN, "--workers", "4", "starlette_app:app"), id="uvicorn"),
        pytest.param((*GUNICORN, "--workers", "4", "starlette_app:app"), id="gunicorn"),
    ],
)
async def test_four_workers_on_one_file_run_every_occurrence_once(directory: Path, command: tuple[str, ...]) -> None:
    """Each has a scheduler of its own, and no leader is needed: the rows say so, and what the handlers wrote."""
    ids: list[str] = []
    effects: list[list[str]] = []
    with serving(directory, *command) as server:
        for _ in range(4):
            await server.says("Application startup complete")
        async with operator(directory) as scheduler:
            while len({pid for pid, _ in effects}) < 2:  # one of them may be faster than the others for a while
                first = datetime.now(UTC) + timedelta(seconds=0.5)
                new = [f"job-{number:05}" for number in range(len(ids), len(ids) + 200)]
                ids += new
                await scheduler.add_jobs(
                    JobSpec(At(first + timedelta(milliseconds=5 * number)), handler="note", id=job_id)
                    for number, job_id in enumerate(new)
                )
                while any(job.status != "disabled" for job in await scheduler.list_jobs()):
                    await asyncio.sleep(0.05)
                effects = [line.split() for line in (directory / "effects").read_text().splitlines()]
        assert await server.ends() == 0, server.said

    rows = await rows_of(directory)
    assert Counter(job_id for _, job_id in effects) == Counter(ids)
    assert Counter((row.job_id, row.outcome) for row in rows) == Counter((job_id, Outcome.SUCCESS) for job_id in ids)


# ---------------------------------------------------------------- the examples


@pytest.mark.once
@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*UVICORN, "examples.fastapi_service:app"), id="FastAPI, by uvicorn"),
        pytest.param((*PYTHON, "examples/fastapi_service.py"), id="FastAPI, by itself"),
        pytest.param((*PYTHON, "examples/aiohttp_service.py"), id="aiohttp"),
    ],
)
async def test_users_add_run_and_explain_jobs_over_http(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "reminders.db"
    tea = {"id": "tea", "schedule": "0 16 * * 1-5", "tz": "Europe/London", "text": "Tea?"}
    with serving(ROOT, *command, REMINDERS=str(path), PORT="0") as server:
        address = await server.says(r"unning on (http://127\.0\.0\.1:\d+)")
        async with aiohttp.ClientSession(address, headers={"X-User": "ada"}) as ada:

            async def ask(method: str, place: str, body: object = None, user: str = "ada") -> tuple[int, object]:
                async with ada.request(method, place, json=body, headers={"X-User": user}) as answer:
                    return answer.status, await answer.json() if answer.content_length else None

            added, reminder = await ask("POST", "/reminders", tea)
            assert added == 201
            assert isinstance(reminder, dict)
            assert reminder["schedule"] == "at 16:00 on Monday to Friday (Europe/London)"
            assert await ask("GET", "/reminders") == (200, [reminder])
            assert await ask("GET", "/reminders", user="bob") == (200, [])

            triggered, _ = await ask("POST", "/reminders/tea/trigger")
            assert triggered == 202
            await server.says("Reminder for ada: Tea[?]")
            outcomes: list[str] = []
            while outcomes != ["success"]:
                _, rows = await ask("GET", "/reminders/tea/runs")
                assert isinstance(rows, list)
                outcomes = [row["outcome"] for row in rows]
            _, explanation = await ask("GET", "/reminders/tea/explain")
            assert isinstance(explanation, dict)
            assert explanation["reason"] == "not_due"
            assert explanation["sentence"].startswith('Job "user-ada/tea" is not due: it runs at 16:00 on Monday')

            refused = {
                409: await ask("POST", "/reminders", tea),
                422: await ask("POST", "/reminders", {"schedule": "every 5x", "text": "Tea?"}),
                404: await ask("POST", "/reminders/tea/trigger", user="bob"),
            }
            assert [status for status, _ in refused.values()] == list(refused)
            assert refused[422][1] == {
                "detail": 'Invalid interval "5x": Invalid time unit "x". Valid units are: s, m, h, d'
            }
            assert (await ask("GET", "/reminders/coffee/runs"))[0] == 404
            assert (await ask("GET", "/reminders/coffee/explain"))[0] == 404
            assert (await ask("POST", "/reminders", {"text": "When?"}))[0] == 422
            assert (await ask("POST", "/reminders", {**tea, "id": "a/b c"}))[0] == 422
            assert (await ask("DELETE", "/reminders/tidy", user="default"))[0] == 404, "the service's own job"
            async with ada.post("/reminders", data=b"\xff", headers={"Content-Type": "application/json"}) as answer:
                assert answer.status in (400, 422)

            assert (await ask("DELETE", "/reminders/tea"))[0] == 204
            assert (await ask("DELETE", "/reminders/tea"))[0] == 404

            well, health = await ask("GET", "/health")
            assert isinstance(health, dict)
            assert (well, health["status"], health["store_reachable"]) == (200, "ok", True)
            path.unlink()
            ill, health = await ask("GET", "/health")
            assert isinstance(health, dict)
            assert (ill, health["status"], health["store_reachable"]) == (503, "failing", False)
