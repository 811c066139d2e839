"""Whose store it is. The commands in a file run as the user who opens it, so that a stranger's file is refused."""

from __future__ import annotations

import os
import sys

from scheduler_async.errors import StoreError
from scheduler_async.sqlite import SQLiteStore

# SQLite reads these too, and takes them for its own.
BESIDE = ("-wal", "-shm", "-journal")


class OwnStore(SQLiteStore):
    """A file that belongs to the user who runs the program."""

    async def open(self) -> None:
        """Open the file, or make it, unless it belongs to somebody else."""
        check_owner(self.path)
        await super().open()
        try:
            check_owner(self.path)  # somebody may have put it there while we were about to make it
        except StoreError:
            await self.close()
            raise


def check_owner(path: str) -> None:
    """Raise `StoreError` if another user owns the file at *path*, a link to it, or what SQLite reads beside it."""
    if sys.platform == "win32":
        return
    target = os.path.realpath(path)
    for file in (path, target, *(f"{target}{suffix}" for suffix in BESIDE)):
        try:
            owner = os.lstat(file).st_uid
        except (OSError, ValueError):  # it is not there
            continue
        if owner != os.geteuid():
            raise StoreError(
                f"The file {file} belongs to {user_name(owner)}, who could have put any command into it, and these "
                "would run as you. Use a store of your own, or --trust if you trust its owner."
            )


def user_name(number: int) -> str:
    """Return the name of a user, or the number if it has no name."""
    import pwd

    try:
        return f"the user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
