"""Requests of other processes to cancel runs of this one. The claimer takes their requests to start runs."""

from __future__ import annotations

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.setting import Setting
from scheduler_async.running.runner import Runner
from scheduler_async.stores.messages import NodeLost

# How soon to look again for a run whose claim the store has just answered, or when the store fails.
SOON, LATER = 0.05, 1.0  # seconds


class Requests:
    """Which runs of this process should be cancelled?"""

    def __init__(self, setting: Setting, node: OwnNode, agenda: Agenda, runner: Runner) -> None:
        self._setting, self._node, self._agenda, self._runner = setting, node, agenda, runner

    async def keep_heeding(self) -> None:
        """Cancel runs when another process asks for it. While it does not, nothing wakes up."""
        requested, machine = self._agenda.cancels_requested, self._setting.machine
        delay: float | None = None
        while True:
            if delay is None:
                await requested.wait()
            else:
                await machine.wait(requested, delay)
            requested.clear()
            try:
                is_done = await self._heed()
            except Exception:  # the watch reports a failing store
                delay = LATER
            else:
                delay = None if is_done else min(SOON if delay is None else 2 * delay, LATER)

    async def _heed(self) -> bool:
        """Cancel the runs that should be; return False if the claim of one is not known here yet."""
        try:
            cancels = await self._setting.ask(self._setting.store.cancels(self._node.required_id()))
        except NodeLost:
            return True  # all its runs are cancelled anyway
        found = {run: self._runner.find(run) for run in cancels}
        for run, active in found.items():
            if active is not None:
                self._runner.cancel_on_request(active, cancels[run])
        return None not in found.values()
