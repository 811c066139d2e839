"""All transactions of a SQLite store, combined from the modules of their subjects."""

from __future__ import annotations

from scheduler_async.stores.sqlite.copying import CopyWork
from scheduler_async.stores.sqlite.nodes import NodeWork
from scheduler_async.stores.sqlite.pages import PageWork
from scheduler_async.stores.sqlite.requests import RequestWork
from scheduler_async.stores.sqlite.upkeep import UpkeepWork


class Work(PageWork, RequestWork, NodeWork, UpkeepWork, CopyWork):
    """Each method is one transaction on the thread of the connection. For their purpose, see `Store`."""
