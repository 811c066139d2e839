"""All transactions of a PostgreSQL store, combined from the modules of their subjects."""

from __future__ import annotations

from scheduler_async.stores.postgres.claims import ClaimWork
from scheduler_async.stores.postgres.copying import CopyWork
from scheduler_async.stores.postgres.endings import EndingWork
from scheduler_async.stores.postgres.jobs import JobWork
from scheduler_async.stores.postgres.nodes import NodeWork
from scheduler_async.stores.postgres.upkeep import UpkeepWork


class Work(JobWork, ClaimWork, EndingWork, NodeWork, UpkeepWork, CopyWork):
    """Each method is one transaction on a given connection. For their purpose, see `Store`."""
