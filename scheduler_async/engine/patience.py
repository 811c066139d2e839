"""Which endings may wait for others, to be recorded together with them."""

from __future__ import annotations

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.ended_runs import LINGER
from scheduler_async.engine.held_runs import Waiting
from scheduler_async.engine.lookahead import Lookahead
from scheduler_async.engine.setting import Setting
from scheduler_async.running.active_run import ActiveRun
from scheduler_async.timekeeping.instants import SECOND


class Patience:
    """Is there a reason to record an ending at once?"""

    def __init__(self, setting: Setting, agenda: Agenda, waiting: Waiting, lookahead: Lookahead) -> None:
        self._setting, self._agenda, self._waiting, self._lookahead = setting, agenda, waiting, lookahead

    def may_wait(self, active: ActiveRun) -> bool:
        """Return whether more endings will come in a moment, and nothing depends on this one until then."""
        return (
            (self._agenda.is_about_to_claim or self._others_begin_soon(active))
            and self._lookahead.is_in_use  # otherwise, a job may wait for the slot, or the store takes no time
            and active.ending is not None
            and active.ending.outcome.is_success
            and not active.is_awaited
            and not active.claimed.is_instance  # its job may be waiting to run once more
            and not self._agenda.is_hungry
            and not self._agenda.requests_wait
            and not self._setting.events.has_listeners
            and self._setting.progress.status == "running"
        )

    def _others_begin_soon(self, active: ActiveRun) -> bool:
        """Return whether other runs begin, and perhaps end, before this ending has waited for long."""
        first_at = self._waiting.first_at
        return first_at is not None and first_at < active.ended_at + LINGER * SECOND
