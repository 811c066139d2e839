"""Which store a command uses, and how it is opened. Whether its file may be opened is decided in `ownership`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scheduler_async.cli.exits import fail, misused

if TYPE_CHECKING:
    from scheduler_async import Scheduler, Store

DEFAULT_STORE = "scheduler.db"
STORE_VARIABLE = "SCHEDULER_ASYNC_STORE"
# A program has one command line: what was given before the command is kept here.
_is_trusted = False
_store_before_command: str | None = None


@asynccontextmanager
async def open_scheduler(store: str | None, *, create: bool = False, **options: Any) -> AsyncIterator[Scheduler]:
    """A scheduler on the store that was asked for. Only what writes to it makes a new one."""
    from scheduler_async import Scheduler
    from scheduler_async.command import HANDLER, run_command

    path = store_path(store)
    if not create:
        check_there(path)
    scheduler = Scheduler(store_at(path), **options)
    scheduler.handler(HANDLER)(run_command)
    try:
        yield scheduler
    finally:
        await scheduler.stop()


def store_at(path: str) -> Store:
    """Return the store at *path*, which is the path of a file or a URL."""
    from scheduler_async.options import store_of

    store = store_of(path)
    guard_file(store)
    return store


def guard_file(store: Store) -> None:
    """Let *store* open no file of another user, unless --trust is given."""
    from scheduler_async.cli.ownership import guard
    from scheduler_async.stores.sqlite.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        guard(store, trusted=_is_trusted)


def store_path(given: str | None) -> str:
    """The store that was asked for, with the command or before it."""
    path = given if given is not None else _store_before_command
    if path is None:
        return DEFAULT_STORE
    if not path.strip():
        misused("--store names no file. It takes a path such as jobs.db.")
    if path == ":memory:":
        misused("--store :memory: would keep nothing, since every command is a program of its own. Name a file.")
    return path


def is_url(path: str) -> bool:
    """Whether a store is a database elsewhere; `SchedulerError` if it cannot be told."""
    from scheduler_async.stores import addresses

    return addresses.is_url(path)


def check_there(path: str, remedy: str = "Add a job to make one, or name another with --store.") -> None:
    """Refuse to go on without a store: a file with something in it, or a database elsewhere, which says so itself."""
    if is_url(path):
        return
    if not os.path.exists(path):  # noqa: PTH110 - it takes every text
        fail(f"There is no store {path} here yet. {remedy}", 1)
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        fail(f"The file {path} is empty, and no store yet. {remedy}", 1)


def is_named(path: str | None) -> bool:
    """Return whether the command line names the store at *path*. The environment alone does not count."""
    return path not in (None, os.environ.get(STORE_VARIABLE))


def store_before_command() -> str | None:
    """Return the --store that was given before the command, or by the environment."""
    return _store_before_command


def remember_store(path: str | None) -> None:
    """Keep the --store that was given before the command, for commands that are given none."""
    global _store_before_command  # noqa: PLW0603
    _store_before_command = path


def trust(_context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Use a store file that belongs to somebody else, if that was asked for, before the command or with it."""
    global _is_trusted  # noqa: PLW0603
    _is_trusted = _is_trusted or asked
