"""The owner of a store file. Its jobs run as the current user, so a file of another user is refused."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from scheduler_async.cli.printing import put_sentence
from scheduler_async.errors import StoreError
from scheduler_async.jobs.history import acting_as
from scheduler_async.jobs.names import MAX_NAME_LENGTH
from scheduler_async.stores.sqlite.store import SQLiteStore

# SQLite reads these too, and takes them for its own.
BESIDE = ("-wal", "-shm", "-journal")


def guard(store: SQLiteStore, *, trusted: bool) -> None:
    """Let *store* open only a file of the current user, unless it is *trusted*.

    A file that everyone can write to is opened, with a warning the first time.
    """
    if sys.platform == "win32":
        return
    open_file = store.open
    is_warned = False

    async def open_checked() -> None:
        nonlocal is_warned
        if not trusted:
            check_owner(store.path)
        if not is_warned:
            is_warned = warn_of_writers(store.path)
        await open_file()
        try:
            if not trusted:
                check_owner(store.path)  # another user may have created it in the meantime
        except StoreError:
            await store.close()
            raise

    store.open = open_checked  # type: ignore[method-assign]  # a program's store may be of a class of its own


def check_owner(path: str) -> None:
    """Raise `StoreError` if another user owns the file at *path*, a link to it, or what SQLite reads beside it."""
    target = os.path.realpath(path)
    for file, status in statuses((path, target, *beside(target))):
        if status.st_uid != os.geteuid():
            raise StoreError(
                f"The file {file} belongs to {user_name(status.st_uid)}, who could have added any job to it, and its "
                "jobs would run as you. Use a store of your own, or pass --trust if you trust its owner."
            )


def warn_of_writers(path: str) -> bool:
    """Print a warning if every user can write to the file at *path*, or to what SQLite reads beside it."""
    name = os.path.realpath(path) if os.path.islink(path) else path  # noqa: PTH114 - it takes every text
    found = [
        file
        for file, status in statuses((name, *beside(name)))
        if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH
    ]
    if found:
        put_sentence(
            f"Warning: Every user of this machine can write to {found[0]}, and add jobs that run as you. "
            f'To prevent that, run "chmod 600 {shlex.join(found)}".'
        )
    return bool(found)


def beside(file: str) -> list[str]:
    """Return the names of the other files that belong to the store in *file*."""
    return [f"{file}{suffix}" for suffix in BESIDE]


def statuses(files: Iterable[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield those of *files* that exist, each with its owner and mode."""
    for file in files:
        try:
            status = os.lstat(file)
        except (OSError, ValueError):  # it is not there
            continue
        yield file, status


def acting_as_user() -> AbstractContextManager[None]:
    """Record the changes in this block as those of the current user."""
    return acting_as(own_name(), via="cli")


def own_name() -> str:
    """Return the name of the current user."""
    from getpass import getuser

    try:
        name = getuser()
    except (KeyError, OSError, ImportError):  # a user without a name, as in many containers
        name = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    usable = "".join(letter for letter in name if letter.isprintable()).strip()[:MAX_NAME_LENGTH]
    return usable or "unknown"


def user_name(number: int) -> str:
    """Return the name of a user, or the number if it has no name."""
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
