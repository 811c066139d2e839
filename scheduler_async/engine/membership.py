"""The life of a node: it joins the store, beats, notices dead nodes and changes, rejoins if it must, and leaves.

`stores/liveness.py` says which nodes are dead. `Store.recover` then deletes the row of a dead node, if its beat has not
changed meanwhile, and records its runs as interrupted (`stores/*/endings.py`). What that means for their jobs is in
`rules/finishing.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from logging import ERROR, INFO, WARNING
from typing import TypeVar

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.recorder import Recorder
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.tasks import Tasks
from scheduler_async.engine.troubles import Troubles
from scheduler_async.errors import SchedulerError, StoreOutdatedError
from scheduler_async.logs import say
from scheduler_async.outbox import QuietLock
from scheduler_async.running.active_run import HELD, RUNNING
from scheduler_async.running.runner import Runner
from scheduler_async.stores.liveness import BEAT, LEASE, MARGIN, Watch, new_identity, retire
from scheduler_async.stores.messages import NodeLost, NodeRow

# How often to look for changes of other processes, which must be noticed within two seconds.
POLL = 1.0  # seconds

T = TypeVar("T")


class Membership:
    """Do the other nodes know that this one is alive, and which of them are dead?"""

    def __init__(
        self,
        setting: Setting,
        lock: QuietLock,
        node: OwnNode,
        runner: Runner,
        ended: EndedRuns,
        agenda: Agenda,
        announcer: Announcer,
        clock_watch: ClockWatch,
        troubles: Troubles,
        recorder: Recorder,
        tasks: Tasks,
        deciding: Deciding,
        settle: Callable[[], Awaitable[None]],
    ) -> None:
        """*lock* is held while the node rejoins. *settle* ends the runs that it has claimed without knowing."""
        self._setting, self._lock, self._node, self._watch = setting, lock, node, Watch()
        self._runner, self._ended, self._recorder = runner, ended, recorder
        self._agenda, self._announcer = agenda, announcer
        self._clock_watch, self._troubles = clock_watch, troubles
        self._tasks, self._deciding, self._settle = tasks, deciding, settle
        self._to_recover: dict[int, NodeRow] = {}  # dead nodes of which some runs are not recovered yet
        self._recovery: asyncio.Task[None] | None = None
        self._told_handlers: list[str] | None = None  # the handlers that the store knows of
        self._failed_tries = 0  # to rejoin
        self._tries_again_at = float("-inf")  # by the monotonic clock of the machine

    # ============================================================ joining and leaving

    async def join(self) -> None:
        """Become a new node of the store, and recover the runs of dead nodes."""
        setting, node = self._setting, self._node
        begun = setting.machine.monotonic()
        identity = new_identity()
        handlers = setting.handlers.names
        try:
            node.id = await setting.ask(setting.store.join(identity, setting.clock.micros(), handlers))
        except BaseException:
            retire(identity)
            raise
        node.identity, self._told_handlers = identity, handlers
        # In a store of this process alone, no other node can take this one for dead.
        node.trusted_until = begun + LEASE - MARGIN if setting.store.is_shared else float("inf")
        try:
            await self._beat()
        except BaseException:
            node.id = None  # the other nodes will take its row for that of a dead node
            retire(identity)
            raise
        node.has_joined = True

    async def leave(self) -> None:
        """Sign off, so that the other nodes need not wait until the lease expires."""
        setting = self._setting
        await setting.ask(setting.store.leave(self._node.required_id(), setting.clock.micros()))

    async def as_node(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work* as a node; if the other nodes have taken this one for dead, rejoin and do it again."""
        try:
            return await work()
        except NodeLost:
            await self.rejoin()
        try:
            return await work()
        except NodeLost:
            raise SchedulerError("The scheduler cannot stay connected to its store.") from None

    async def rejoin(self) -> None:
        """Cancel the runs of this node and join as a new one: the other nodes take it for dead, or soon will.

        The lock is not held between the steps, so that log handlers hear of each at once.
        """
        await self._give_up_node(self._node.id)
        while (delay := await self._try_to_rejoin()) is not None:
            await self._setting.machine.wait(self._runner.stopping, delay)

    async def _give_up_node(self, lost: int | None) -> None:
        async with self._lock:
            node = self._node
            if not node.has_joined or lost is None or node.id != lost:
                return  # the store was closed meanwhile, or the loop and the watch have both noticed
            say(WARNING, "Node %s lost its lease; cancelling its runs and rejoining", node.name)
            await self._disown_everything()
            node.retire()
            node.id = None
            self._failed_tries = 0

    async def _try_to_rejoin(self) -> float | None:
        """Join, unless that is done or pointless; return in how many seconds to try again if it fails."""
        node, machine, troubles = self._node, self._setting.machine, self._troubles
        async with self._lock:
            is_closed = not node.has_joined or self._runner.stopping.is_set()
            if is_closed or node.id is not None or troubles.outdated is not None:
                return None
            if (delay := self._tries_again_at - machine.monotonic()) > 0:
                return delay  # another task has just tried
            try:
                await self._recorder.record_all()  # as far as no other node has taken the runs over
                await self.join()
            except StoreOutdatedError as error:
                troubles.note_outdated(error)
            except Exception as error:
                words = "Cannot join the store; trying again in %g s: %s"
                say(ERROR, words, POLL, error, exc_info=self._failed_tries == 0)
                self._failed_tries += 1
                self._tries_again_at = machine.monotonic() + POLL
                return POLL
            else:
                say(INFO, "This is now node %s", node.name)
                self._agenda.look_again()
                troubles.works_again.set()
            return None

    async def _disown_everything(self) -> None:
        """Cancel all runs that have not ended, and give their handlers a moment to clean up."""
        ended = {active.claimed.id for active in self._ended.unrecorded}
        lost = [active for active in self._runner if active.claimed.id not in ended]
        for active in lost:
            self._runner.disown(active)
        tasks = [active.task for active in lost if active.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=MARGIN)

    # ============================================================ watching

    async def keep_watch(self, version: int, halt: asyncio.Event) -> None:
        """Notice changes of other processes, show that this node is alive, and notice nodes that are dead."""
        ask, store, machine, troubles = self._setting.ask, self._setting.store, self._setting.machine, self._troubles
        last_beat = machine.monotonic()
        while not await machine.wait(halt, POLL):
            try:
                seen = await ask(store.version())
                changed = seen != version
                await self._tell_of_new_handlers()
                if changed:
                    self._agenda.look_again()
                    self._agenda.hear_of_requests()
                is_time = machine.monotonic() - last_beat >= BEAT
                if changed or is_time:
                    await self._compare_with_held()
                version = seen  # only now: if the store fails meanwhile, the change is noticed again
                if changed or is_time or troubles or self._watch.someone_is_gone():
                    last_beat = machine.monotonic()
                    await troubles.check_store()
                    await self._beat()
                if troubles.are_over_for("watch"):
                    # The other parts need not wait for their next try.
                    self._agenda.changed.set()
                    troubles.works_again.set()
            except NodeLost:
                await self.rejoin()
            except StoreOutdatedError as error:
                troubles.note_outdated(error)
            except Exception as error:
                if "watch" not in troubles:
                    say(ERROR, "Cannot reach the store; trying again every %g s", POLL, exc_info=True)
                troubles.report("watch", error)
                if not self._node.is_trusted():
                    await self.rejoin()

    async def _tell_of_new_handlers(self) -> None:
        """Let other processes know which handlers this node has, if that has changed."""
        handlers = self._setting.handlers.names
        if handlers != self._told_handlers:
            await self._setting.ask(self._setting.store.note_handlers(self._node.required_id(), handlers))
            self._told_handlers = handlers

    async def _compare_with_held(self) -> None:
        """Cancel runs whose jobs another process has removed, and runs that another node has taken over.

        A claim whose answer was lost may be committed much later. Let the next claim settle the runs of such a claim;
        without the loop, there may be none.
        """
        before = [*self._runner]
        held = await self._setting.ask(self._setting.store.held(self._node.required_id()))
        for active in before:
            if active.stage in (HELD, RUNNING) and active.claimed.id not in held and not active.has_ended:
                self._runner.disown(active)
        known = {active.claimed.id for active in (*before, *self._runner)} | self._ended.refused
        if not held <= known:
            self._agenda.is_unsure = True
            self._agenda.look_again()
            if self._setting.progress.status == "stopped":
                await self._settle()

    async def _beat(self) -> None:
        """Show that this node is alive, and record the runs of dead nodes as interrupted."""
        ask, store, machine, node = self._setting.ask, self._setting.store, self._setting.machine, self._node
        own = node.required_id()
        begun = machine.monotonic()
        nodes = await ask(store.beat(own))
        node.trusted_until = max(node.trusted_until, begun + LEASE - MARGIN)
        dead = self._watch.find_dead(nodes, own, machine.monotonic())
        self._agenda.has_neighbours = len(nodes) - len(dead) > 1
        if dead and self._troubles.outdated is None and await self._recover(dead):
            self._to_recover |= {node.id: NodeRow.missing(node.id, node.identity.name) for node in dead}
            if self._recovery is None or self._recovery.done():
                self._recovery = self._tasks.spawn(self._recover_rest(), "recovery")

    async def _recover(self, dead: Sequence[NodeRow]) -> bool:
        """Record the runs of *dead* nodes as interrupted. Return whether some are left for now."""
        now = self._clock_watch.believed_now()
        self._agenda.look_again()  # even if the answer is lost
        interrupted = await self._setting.ask(self._setting.store.recover(dead, now, self._setting.rules))
        is_left = bool(self._deciding.begin())
        self._announcer.interrupted(interrupted, now)
        self._agenda.learn_of(edit.job for edit, _ in interrupted)
        self._agenda.look_again()
        return is_left

    async def _recover_rest(self) -> None:
        """Record runs of nodes whose rows are deleted, as soon as it is decided what becomes of their jobs."""
        while self._to_recover:
            await self._deciding.finish()
            if self._tasks.halt.is_set():
                return
            gone = [*self._to_recover.values()]
            if not await self._recover(gone):
                for node in gone:
                    self._to_recover.pop(node.id, None)
