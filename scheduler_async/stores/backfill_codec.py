"""Convert rows of backfills to values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler_async.errors import StoreError
from scheduler_async.jobs.backfill import Backfill, BackfillState
from scheduler_async.stores.unreadable import count, shown_text


def read_backfill(row: Sequence[Any]) -> Backfill:
    """Return the backfill of a row: its number, its counts, its state, and the name of its job."""
    number, total, done, failed, state, job_id, namespace = row
    try:
        return Backfill(
            number=number,
            total=count(total),
            done=count(done),
            failed=count(failed),
            state=BackfillState(state),
            job_id=shown_text(job_id),
            namespace=shown_text(namespace),
        )
    except ValueError as error:
        raise StoreError(f"Backfill {number} cannot be read from the store: {error}.") from error
