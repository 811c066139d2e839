"""Find the store that a command uses, and open it. `ownership` decides whether its file may be opened."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from scheduler_async.cli.exits import fail, misused

if TYPE_CHECKING:
    from scheduler_async import Scheduler, Store

DEFAULT_STORE = "scheduler.db"
STORE_VARIABLE = "SCHEDULER_ASYNC_STORE"
# The options before the command are kept here, since a process has only one command line.
_is_trusted = False
_store_before_command: str | None = None


@asynccontextmanager
async def open_scheduler(store: str | None, *, create: bool = False, **options: Any) -> AsyncIterator[Scheduler]:
    """Yield a scheduler on *store* that can run commands. Without *create*, the store must exist.

    Changes of jobs are recorded as those of the current user.
    """
    from scheduler_async import Scheduler
    from scheduler_async.cli.ownership import acting_as_user
    from scheduler_async.command import HANDLER, run_command

    path = store_path(store)
    if not create:
        check_there(path)
    scheduler = Scheduler(store_at(path), **options)
    scheduler.handler(HANDLER)(run_command)
    async with suggesting_names(scheduler):
        with acting_as_user():
            yield scheduler


@asynccontextmanager
async def suggesting_names(scheduler: Scheduler) -> AsyncIterator[None]:
    """Stop *scheduler* at the end. A `JobNotFoundError` gets a note with similar names."""
    from scheduler_async.cli.job_names import similar_names
    from scheduler_async.errors import JobNotFoundError

    try:
        yield
    except JobNotFoundError as error:
        for name in await similar_names(scheduler, error.job_id, error.namespace):
            error.add_note(name)
        raise
    finally:
        await scheduler.stop()


def store_at(path: str) -> Store:
    """Return the store at *path*, which is the path of a file or a URL."""
    from scheduler_async.options import store_of

    store = store_of(path)
    guard_file(store)
    return store


def guard_file(store: Store) -> None:
    """Keep *store* from opening a file of another user, unless --trust is given."""
    from scheduler_async.cli.ownership import guard
    from scheduler_async.stores.sqlite.store import SQLiteStore

    if isinstance(store, SQLiteStore):
        guard(store, trusted=_is_trusted)


def store_path(given: str | None) -> str:
    """Return the store to use: *given* with the command, given before it, or the default."""
    path = _store_before_command if given is None or _is_from_environment() else given
    if path is None:
        return DEFAULT_STORE
    if not path.strip():
        misused("--store is empty. Pass a path such as jobs.db, or a URL.")
    if path == ":memory:":
        misused("--store :memory: would forget all jobs when the command ends. Pass the path of a file.")
    return path


def is_url(path: str) -> bool:
    """Return whether *path* is a URL; raise `SchedulerError` if it looks like one but is not supported."""
    from scheduler_async.stores import addresses

    return addresses.is_url(path)


def check_there(path: str, remedy: str = "Add a job to create it, or pass another path with --store.") -> None:
    """End the program if there is no store at *path*. A database server reports that itself."""
    missing = why_missing(path)
    if missing is not None:
        fail(f"{missing} {remedy}", 1)


def why_missing(path: str) -> str | None:
    """Return a sentence if there is no store at *path*; None if there is, or if a database server has to tell."""
    if is_url(path):
        return None
    if not os.path.exists(path):  # noqa: PTH110 - it takes every text
        return f"Store {path} does not exist."
    if Path(path).is_file() and Path(path).stat().st_size == 0:
        return f"The file {path} is empty: it is not a store."
    return None


def is_store_given() -> bool:
    """Return whether --store is among the arguments, before the command or after it. The environment does not count."""
    context = click.get_current_context(silent=True)
    while context is not None:
        if context.get_parameter_source("store") is ParameterSource.COMMANDLINE:
            return True
        context = context.parent
    return False


def _is_from_environment() -> bool:
    """Return whether the command has its store from the environment: one that was given before the command prevails."""
    context = click.get_current_context(silent=True)
    is_unnamed = context is not None and context.get_parameter_source("store") is ParameterSource.ENVIRONMENT
    return is_unnamed and _store_before_command is not None


def remember_store(path: str | None) -> None:
    """Keep the --store that was given before the command, for a command without one."""
    global _store_before_command  # noqa: PLW0603
    _store_before_command = path


def trust(_context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    """Allow a store file of another user, if --trust is given before the command or with it."""
    global _is_trusted  # noqa: PLW0603
    _is_trusted = _is_trusted or asked
