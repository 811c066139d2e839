"""Decisions about jobs whose schedules may take long to answer, such as those that users write.

Code of users never runs within a transaction, or under a lock of the engine: it may sleep, block, or never return. So
`next_after` of a user's class is called like this:

1. A transaction that needs a decision about such a job asks `Decisions.about`, which raises `Undecided`. A transaction
   about many jobs (claims, recoveries, the ends of pauses, reviews) leaves this job as it is, and goes on. Any other
   (an edit, a removal, the ending of its run, a purge) is rolled back.
2. `engine/deciding.py` makes the decision in a thread, for the job as the transaction has read it.
3. The transaction is made again. It uses the decision if the job is still as it was. Otherwise the job is undecided
   again.

Reading a stored schedule may also take long: its class may have a constructor, and the library of public holidays takes
a while to load. A transaction that meets such a schedule for the first time gets an `UnreadSchedule`, which counts as
undecided until it was read.

All other schedules answer within microseconds. They are asked within the transaction.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeAlias, TypeVar, cast

from scheduler_async.jobs.job import Job
from scheduler_async.schedules.unknown import UnreadSchedule
from scheduler_async.timekeeping.instants import SECOND, Micros

T = TypeVar("T")

Key: TypeAlias = tuple[int, int, *tuple[Hashable, ...]]
"""What a decision is about: its kind, and the number of the job or of the run."""

# The kinds of decisions.
CHANGE, CLAIM, END, INTERRUPT, RELEASE, REMOVE, RESUME, REVIEW = range(8)

# A decision that was not used for so long is made anew: the time for which it was made has passed.
FRESH_FOR: Micros = 30 * SECOND

# More than so many decisions that were never used are forgotten.
MOST_UNUSED = 10_000


class Undecided(Exception):  # noqa: N818 - a message to the engine, which users never see
    """A transaction needs a decision about a job whose schedule may take long to answer."""

    def __init__(self, key: Key, job: Job, now: Micros, make: Callable[[], object]) -> None:
        super().__init__(f"It is not decided what becomes of job {job.key}.")
        self.key, self.job, self.now, self.make = key, job, now, make

    @property
    def run(self) -> int:
        """The number of the run, if the decision is about one; otherwise that of the job."""
        return self.key[1]

    @property
    def is_read(self) -> bool:
        """Whether its schedule was read. If not, that comes first."""
        return not isinstance(self.job.schedule, UnreadSchedule)


class _Decision(NamedTuple):
    job: Job
    now: Micros
    answer: object
    error: Exception | None

    def fits(self, job: Job, now: Micros) -> bool:
        made_for = self.job
        is_same = (made_for.uid, made_for.revision, made_for.state) == (job.uid, job.revision, job.state)
        return is_same and abs(now - self.now) <= FRESH_FOR


class Decisions:
    """Which decisions do transactions need, and which of them are made? Several threads may use it."""

    def __init__(self) -> None:
        self._made: OrderedDict[Key, _Decision] = OrderedDict()
        self._wanted: deque[Undecided] = deque()
        self._claimable: deque[Job] = deque()

    def about(self, job: Job, key: Key, now: Micros, make: Callable[[], T]) -> T:
        """Return what *make* returns, or raise what it raises, without calling it: it was called before for this *job*.

        Raise `Undecided` if it was not.
        """
        schedule = job.schedule
        if isinstance(schedule, UnreadSchedule):
            raise self._want(Undecided(key, job, now, schedule.read))
        made = self._made.get(key)
        if made is None or not made.fits(job, now):
            raise self._want(Undecided(key, job, now, make))
        if made.error is not None:
            raise made.error
        return cast("T", made.answer)

    def _want(self, undecided: Undecided) -> Undecided:
        self._wanted.append(undecided)
        return undecided

    def take_wanted(self) -> list[Undecided]:
        """Return the decisions that transactions have needed since the last call."""
        return [self._wanted.popleft() for _ in range(len(self._wanted))]

    def note(self, undecided: Undecided, answer: object, error: Exception | None = None) -> None:
        """Keep the *answer* or the *error* for the transaction that needs it."""
        if undecided.is_read:
            self._made[undecided.key] = _Decision(undecided.job, undecided.now, answer, error)
            self._made.move_to_end(undecided.key)
        while len(self._made) > MOST_UNUSED:
            self._made.popitem(last=False)
        if undecided.key[0] == CLAIM:
            self._claimable.append(undecided.job)

    def take_claimable(self) -> list[Job]:
        """Return the jobs that claims have left out, and about which there is a decision since the last call."""
        return [self._claimable.popleft() for _ in range(len(self._claimable))]
