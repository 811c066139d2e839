"""All transactions of a store in memory, combined from the modules of their subjects."""

from __future__ import annotations

from scheduler_async.stores.memory.copying import CopyWork
from scheduler_async.stores.memory.pages import PageWork
from scheduler_async.stores.memory.upkeep import UpkeepWork


class Work(UpkeepWork, PageWork, CopyWork):
    """Each method is one transaction, which waits for nothing. For their purpose, see `Store`."""
