"""Whose store it is: the command line does not open a file of another user, whose commands it would run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_async import Manual, Scheduler, SQLiteStore, StoreError
from scheduler_async.cli.ownership import BESIDE, guard
from scheduler_async.stores.sqlite import store as sqlite

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="it has other owners"), pytest.mark.once]


def guarded(path: Path) -> SQLiteStore:
    """A store as the command line opens it."""
    store = SQLiteStore(path)
    guard(store, trusted=False)
    return store


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets somebody else run the program from now on."""
    stranger = os.geteuid() + 1
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: stranger)


@pytest.fixture
async def theirs(path: Path, become: Callable[[], None]) -> Path:
    """A store that belongs to somebody else."""
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    become()
    return path


async def test_a_store_of_another_user_is_refused(theirs: Path) -> None:
    before = theirs.read_bytes()

    with pytest.raises(StoreError, match=r"belongs to .* --trust if you trust its owner"):
        await guarded(theirs).open()

    assert theirs.read_bytes() == before
    assert list(theirs.parent.iterdir()) == [theirs]


async def test_a_library_call_opens_what_it_is_given(theirs: Path) -> None:
    """A program knows what it opens; a command line is typed wherever somebody is."""
    scheduler = Scheduler(theirs)

    assert await scheduler.list_jobs() == []
    await scheduler.stop()


@pytest.mark.parametrize("suffix", BESIDE)
async def test_what_sqlite_reads_beside_the_store_has_to_be_ours_too(
    path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that a stranger puts beside a store is played back into it."""
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    beside = Path(f"{path}{suffix}")
    beside.write_bytes(b"planted")
    lstat = os.lstat
    me, stranger = os.geteuid(), os.geteuid() + 1

    def owned(file: str) -> os.stat_result:
        found = list(lstat(file))
        found[4] = stranger if str(file) == str(beside) else me
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", owned)

    with pytest.raises(StoreError, match=f"{beside.name} belongs to"):
        await guarded(path).open()


async def test_a_link_that_another_user_made_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory for everyone, somebody could let the default name lead anywhere."""
    link = path.with_name("scheduler.db")
    link.symlink_to(path)
    lstat = os.lstat

    def owned(file: str) -> os.stat_result:
        found = list(lstat(file))
        found[4] += str(file) == str(link)
        return os.stat_result(found)

    monkeypatch.setattr(os, "lstat", owned)

    with pytest.raises(StoreError, match=r"scheduler\.db belongs to"):
        await guarded(link).open()

    assert not path.exists()


async def test_a_file_that_appears_while_it_is_about_to_be_made_is_refused(
    path: Path, become: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who waits for the moment gains nothing."""
    create = sqlite._create_file

    def be_too_late(name: str) -> None:
        create(name)
        become()

    monkeypatch.setattr(sqlite, "_create_file", be_too_late)
    store = guarded(path)

    with pytest.raises(StoreError, match="belongs to"):
        await store.open()

    assert store._writer is None


STRANGER = "import os; os.geteuid = lambda: os.getuid() + 1; from scheduler_async.cli import main; main()"

PROGRAM = """
from scheduler_async import Scheduler

scheduler = Scheduler("jobs.db")

@scheduler.handler("work")
async def work() -> None: ...
"""


@pytest.fixture
async def here(path: Path) -> Path:
    """A directory with a store, and with a program that uses it."""
    scheduler = Scheduler(path)
    await scheduler.add_job(Manual(), handler="work", id="a")
    await scheduler.stop()
    (path.parent / "mine.py").write_text(PROGRAM)
    return path.parent


def called(line: str, here: Path, code: str = STRANGER) -> subprocess.CompletedProcess[str]:
    """What the program says, by default to somebody else."""
    return subprocess.run(
        [sys.executable, "-c", code, *line.split()],
        check=False,
        cwd=here,
        env={**os.environ, **({} if "mine:" in line else {"SCHEDULER_ASYNC_STORE": "jobs.db"})},
        capture_output=True,
        text=True,
    )


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("list", 1),
        ("run", 1),
        ("copy jobs.db other.db", 1),
        ("run mine:scheduler", 1),
        ("cron --app mine:scheduler", 1),
        ("trigger a --app mine:scheduler", 1),
        ("list --trust", 0),
        ("--trust list", 0),
        ("copy jobs.db other.db --trust", 0),
        ("cron --app mine:scheduler --trust", 0),
        ("trigger a --app mine:scheduler --trust", 0),
    ],
)
def test_only_trust_opens_a_store_of_another_user(line: str, code: int, here: Path) -> None:
    """Nor does the store of a program: its jobs would run as whoever types the command."""
    done = called(line, here)

    assert done.returncode == code, done.stderr
    assert ("--trust" in done.stderr) == (code == 1)


# ---------------------------------------------------------------- files that everyone can write to

OWNER = "from scheduler_async.cli import main; main()"
WARNING = (
    "Warning: Every user of this machine can write to jobs.db, and add jobs that run as you. "
    'To prevent that, run "chmod 600 jobs.db".\n'
)


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("list", OWNER),
        ("list --json", OWNER),
        ("list --trust", STRANGER),
        ("copy jobs.db other.db", OWNER),
        ("cron --app mine:scheduler", OWNER),
    ],
)
def test_a_store_that_everyone_can_write_to_is_pointed_out_once(line: str, code: str, here: Path) -> None:
    """Whoever can write to it can add a command; the store works all the same."""
    (here / "jobs.db").chmod(0o666)

    done = called(line, here, code)

    assert (done.returncode, done.stderr) == (0, WARNING)
    (here / "jobs.db").chmod(0o660)
    assert called(line, here, code).stderr == ""


async def test_the_warning_names_all_files_that_everyone_can_write_to(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a link leads to, and what SQLite has left beside it; not the link, which has no mode of its own."""
    monkeypatch.chdir(path.parent)
    link = path.with_name("link to jobs.db")
    link.symlink_to(path)
    store = guarded(Path(link.name))
    await store.open()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").chmod(0o666)
    other = guarded(Path(link.name))

    await other.open()
    await other.close()
    await other.open()
    await other.close()
    await store.close()

    (line,) = capsys.readouterr().err.splitlines()
    assert f"chmod 600 {path} {path}-wal {path}-shm" in line


@pytest.mark.once
def test_nothing_disturbs_a_line_that_a_shell_completes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "jobs.db").chmod(0o666)
    monkeypatch.setenv("_SCHEDULER_ASYNC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "scheduler-async show ")
    monkeypatch.setenv("COMP_CWORD", "2")

    done = called("", here, OWNER)
    refused = called("", here, STRANGER)

    assert (done.stdout.split(), done.stderr) == (["a"], "")
    assert (refused.stdout.split(), refused.stderr) == ([], "")
