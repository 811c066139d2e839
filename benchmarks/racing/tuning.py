"""SQLite as fast as SQLAlchemy lets it be at the durability that scheduler_async has: a log beside the file, no flush
per commit. For those that block the event loop while they write, that is the setting that matters most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event


def tuned_engine(path: Path) -> Engine:
    engine: Engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", tune)
    return engine


def tune(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.close()
