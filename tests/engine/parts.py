"""What a part of the engine needs around it when a test looks at that part alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec.structs import replace

from scheduler_async import Every, Job, JobSpec, Status, Trigger
from scheduler_async.engine.agenda import Agenda
from scheduler_async.engine.announcer import Announcer
from scheduler_async.engine.clock_watch import ClockWatch
from scheduler_async.engine.deciding import Deciding
from scheduler_async.engine.own_node import OwnNode
from scheduler_async.engine.setting import Limits, Progress, Setting
from scheduler_async.engine.tasks import Tasks
from scheduler_async.engine.troubles import Troubles
from scheduler_async.jobs.events import Event, Events
from scheduler_async.jobs.run import Attempt, ClaimedRun, Ending, Run
from scheduler_async.outbox import Outbox
from scheduler_async.rules import edits
from scheduler_async.rules.terms import Rules
from scheduler_async.running.active_run import ActiveRun, Stage
from scheduler_async.running.handlers import Handlers
from scheduler_async.stores.decided import Decisions
from scheduler_async.testing import VirtualClock
from scheduler_async.timekeeping.instants import Micros, to_micros
from tests.cast import NOON

NOON_MICROS = to_micros(NOON)


class FakeStore:
    """A store that notes what it is asked, and answers what the test says: a value, an exception, or a function."""

    is_shared = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {}
        self.decisions = Decisions()

    def questions(self) -> list[str]:
        return [name for name, _ in self.asked]

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*args: Any, **_: Any) -> Any:
            self.asked.append((name, args))
            answer = self.answers.get(name)
            if callable(answer):
                answer = answer(*args)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask


class Listener:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def run_begins(self, run: Run) -> Callable[[Ending | None, BaseException | None], None]:
        return lambda _ending, _error: None

    def heard(self, event: Event) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events]


class Parts:
    """The parts on which the others stand, around a store and a clock of the test."""

    def __init__(self, clock: VirtualClock, **limits: Any) -> None:
        self.clock, self.store, self.listener = clock, FakeStore(), Listener()
        self.setting = Setting(
            store=cast(Any, self.store),
            clock=clock,
            machine=clock,
            rules=Rules(),
            limits=Limits(**limits),
            handlers=Handlers(clock),
            events=Events(),
            outbox=Outbox(),
            progress=Progress(status="running"),
        )
        self.setting.events.observers.append(self.listener)
        self.node = OwnNode(clock)
        self.agenda = Agenda()
        self.announcer = Announcer(self.setting.events, self.setting.outbox, self.node)
        self.troubles = Troubles(self.setting, self.announcer)
        self.tasks = Tasks(set())
        self.deciding = Deciding(self.setting, self.tasks, self.agenda)
        self.clock_watch = ClockWatch(self.setting, self.agenda, self.announcer, self.deciding)


def new_job(id: str = "a", now: Micros = NOON_MICROS) -> Job:
    """A job that is due every minute."""
    return edits.add(JobSpec(Every("1m"), handler="work"), id=id, handler="work", now=now)


def claimed_run(id: int = 1, at: Micros = NOON_MICROS, *, is_queued: bool = False) -> ClaimedRun:
    """A run that a store has handed over."""
    job = new_job()
    job.take_number(7)
    activity = Status.QUEUED if is_queued else Status.RUNNING
    claimed = job.with_state(replace(job.state, activity=activity, next_run_at=None, last_run_at=at))
    return ClaimedRun.of(id, claimed, Attempt(at, 1, Trigger.SCHEDULE, at), "null", job.state)


def active_run(id: int = 1, at: Micros = NOON_MICROS, stage: Stage = Stage.CLAIMED) -> ActiveRun:
    return ActiveRun(claimed_run(id, at), stage)
