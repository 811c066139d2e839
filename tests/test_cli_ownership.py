"""Whose store it is: the command line does not open a file of another user, whose commands it would run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_async import Scheduler, SQLiteStore, StoreError, sqlite
from scheduler_async.cli.ownership import BESIDE, OwnStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="it has other owners")


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
        await OwnStore(theirs).open()

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
        await OwnStore(path).open()


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
        await OwnStore(link).open()

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
    store = OwnStore(path)

    with pytest.raises(StoreError, match="belongs to"):
        await store.open()

    assert store._writer is None


STRANGER = "import os; os.geteuid = lambda: os.getuid() + 1; from scheduler_async.cli import main; main()"


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("list", 1),
        ("run", 1),
        ("copy jobs.db other.db", 1),
        ("list --trust", 0),
        ("--trust list", 0),
        ("copy jobs.db other.db --trust", 0),
    ],
)
async def test_only_trust_opens_a_store_of_another_user(line: str, code: int, path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.close()
    env = {**os.environ, "SCHEDULER_ASYNC_STORE": path.name}

    done = subprocess.run(
        [sys.executable, "-c", STRANGER, *line.split()],
        check=False,
        cwd=path.parent,
        env=env,
        capture_output=True,
        text=True,
    )

    assert done.returncode == code, done.stderr
    assert ("--trust" in done.stderr) == (code == 1)
