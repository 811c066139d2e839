"""A session: the parts of the engine, for as long as the store is open."""

from __future__ import annotations

import asyncio

from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.checkup import Checkup
from scheduler_async.engine.claimer import Claimer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.ended_runs import EndedRuns
from scheduler_async.engine.janitor import Janitor
from scheduler_async.engine.launcher import Launcher
from scheduler_async.engine.locks import Locks
from scheduler_async.engine.loop import Loop
from scheduler_async.engine.membership import Membership
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.patience import Patience
from scheduler_async.engine.rated_starts import RatedStarts
from scheduler_async.engine.recorder import Recorder
from scheduler_async.engine.reporter import LiveReporter
from scheduler_async.engine.requests import Requests
from scheduler_async.engine.setting import Setting
from scheduler_async.engine.tasks import Tasks
from scheduler_async.engine.troubles import Troubles


class Session:
    """What is known only while the store is open?

    The engine makes a session when it opens the store and drops it when it closes the store, so nothing has to be
    reset. While the store is closed, the engine has a session that is not open. Each part gets the parts that it
    needs, so the order below shows the dependencies.
    """

    def __init__(self, setting: Setting, locks: Locks, kept: set[asyncio.Task[None]]) -> None:
        """*kept* holds references to tasks until they are done."""
        self.is_open = False
        self.tasks = Tasks(kept)
        self.node = node = OwnNode(setting.machine)
        self.announcer = announcer = Announcer(setting.events, setting.outbox, node)
        self.agenda = agenda = Agenda()
        self.deciding = deciding = Deciding(setting, self.tasks, agenda)
        troubles = Troubles(setting, announcer)
        self.clock_watch = watch = ClockWatch(setting, agenda, announcer, deciding)
        self.ended_runs = ended = EndedRuns(setting.clock, watch, agenda, announcer)
        self.reporter = LiveReporter(setting)
        self.launcher = launcher = Launcher(setting, node, announcer, watch, ended, self.reporter)
        self.runner = runner = launcher.runner
        self.requests = Requests(setting, node, agenda, runner)
        self.rated_starts = rated = RatedStarts(setting)
        self.claimer = Claimer(
            setting, locks.claiming, node, agenda, announcer, watch, launcher, ended, rated, deciding
        )
        ended.wait_if(Patience(setting, agenda, launcher.waiting, self.claimer.lookahead).may_wait)
        self.janitor = Janitor(setting, announcer, watch, troubles, deciding)
        self.recorder = Recorder(
            setting,
            locks.recording,
            runner,
            ended,
            agenda,
            announcer,
            watch,
            troubles,
            self.janitor,
            self.claimer.release,
            deciding,
        )
        self.membership = Membership(
            setting,
            locks.rejoining,
            node,
            runner,
            ended,
            agenda,
            announcer,
            watch,
            troubles,
            self.recorder,
            self.tasks,
            deciding,
            self.claimer.settle_now,
        )
        self.loop = Loop(setting, node, agenda, watch, troubles, self.claimer, self.recorder, self.membership.rejoin)
        self.checkup = Checkup(setting, agenda, watch, troubles, self.claimer, self.loop)
