"""All transactions of a PostgreSQL store, combined from the modules of their subjects."""

from __future__ import annotations

from scheduler_async.stores.postgres.copying import CopyWork
from scheduler_async.stores.postgres.lone_claims import LoneClaimWork
from scheduler_async.stores.postgres.nodes import NodeWork
from scheduler_async.stores.postgres.pages import PageWork
from scheduler_async.stores.postgres.requests import RequestWork
from scheduler_async.stores.postgres.upkeep import UpkeepWork


class Work(PageWork, RequestWork, NodeWork, UpkeepWork, CopyWork, LoneClaimWork):
    """Each method is one transaction on a given connection. For their purpose, see `Store`."""
