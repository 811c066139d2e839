"""Calls for a page of operators: parts of long lists, counts, tallies, and what needs attention. Nothing changes.

They are quick however large the store is. A tenant is a collection of namespaces: every call looks at these alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, tzinfo

from scheduler_async.engine.engine import Engine
from scheduler_async.engine.outlook import Outlook
from scheduler_async.engine.survey import Survey
from scheduler_async.errors import InvalidJobError, JobNotFoundError, quoted
from scheduler_async.jobs.enums import Outcome, Status, Trigger, check_choice
from scheduler_async.jobs.history import ChangeRow
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.names import MAX_NAME_LENGTH
from scheduler_async.jobs.pages import Concern, Count, Counts, Page, Planned, TallyRow
from scheduler_async.jobs.run import RunRow
from scheduler_async.options import check_count, check_key, check_stretch, check_text
from scheduler_async.schedules.next_runs import Occurrence
from scheduler_async.stores.searches import (
    FAILING,
    LATE,
    TALLY_KEYS,
    ChangeSearch,
    Found,
    JobSearch,
    Number,
    RunSearch,
    T,
    TallySearch,
    position_text,
    read_position,
)
from scheduler_async.timekeeping.instants import HOUR, LAST, Micros, from_micros, parse_instant, to_micros
from scheduler_async.timekeeping.zones import as_tzinfo

# The positions of jobs: by what they do, by name, and in a text search.
JOB_POSITIONS = ((int, int, int), (str, str), (int, str, str))
ROW_POSITIONS = ((int,),)

MOST_ROWS = 1_000
"""A page has at most so many items."""

LONGEST_TEXT = 2 * MAX_NAME_LENGTH + 1
"""Nothing longer is part of a name such as "namespace/id"."""

MOST_HOURS = 24 * 100
"""`planned` looks no further ahead."""


class Overviewing:
    """The calls of a scheduler for a page of operators."""

    def __init__(self, engine: Engine) -> None:
        self.__survey = Survey(engine, Outlook(engine))

    def now(self) -> datetime:
        """Return the time, by the clock that the scheduler goes by."""
        return from_micros(self.__survey.now)

    async def jobs_page(
        self,
        *,
        order: str = "next",
        status: Status | str | None = None,
        text: str | None = None,
        handler: str | None = None,
        group: str | None = None,
        ids: Collection[str] | None = None,
        namespaces: Collection[str] | None = None,
        ended: bool | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[Job]:
        """Return a part of the jobs that meet all conditions. `list_jobs` returns all of them at once.

        *order* is "next": jobs in progress, then by their next run, then jobs without one; or "name": by namespace and
        id. *status* is one of `Status`, or "failing" for jobs whose last runs have failed, or "late" for jobs that are
        due and that no scheduler has claimed. *text* searches in "namespace/id" and in titles; jobs whose name or id
        begins with it come first, ordered by name. *ids* and *namespaces* select the jobs with these ids and in these
        namespaces; None selects all jobs. *ended=True* selects jobs whose schedule has no more occurrences, and
        *ended=False* all others.

        For the next part, pass `Page.next` as *after*, with the same conditions. A search that finds little stops
        before the page is full, and continues at `Page.next`.
        """
        for name, value in (("text", text), ("handler", handler), ("group", group)):
            if value is not None:
                check_text(value, name)
        if ended is not None and not isinstance(ended, bool):
            raise InvalidJobError(f"ended must be True, False or None, not {quoted(ended)}.", "ended")
        if text is not None and len(text) > LONGEST_TEXT:
            raise InvalidJobError(f"text must have at most {LONGEST_TEXT} characters, not {len(text):,}.", "text")
        by_name = _check_one_of(order, ("next", "name"), "order") == "name"
        statuses = (*(one.value for one in Status), FAILING, LATE)
        wanted = JobSearch(
            by_name=by_name,
            status=None if status is None else _check_one_of(status, statuses, "status"),
            text=text or None,
            handler=handler,
            group=group,
            ids=_check_names(ids, "ids"),
            namespaces=_check_namespaces(namespaces),
            ended=ended,
            now=self.__survey.now,
            after=read_position(after, JOB_POSITIONS[2:] if text else JOB_POSITIONS[by_name : by_name + 1]),
            limit=_check_limit(limit),
        )
        return _page(Found[Job](items=()) if _sees_nothing(wanted.namespaces) else await self.__survey.jobs(wanted))

    async def runs_page(
        self,
        *,
        id: str | None = None,
        namespace: str | None = None,
        namespaces: Collection[str] | None = None,
        outcome: Outcome | str | None = None,
        trigger: Trigger | str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[RunRow]:
        """Return a part of the run log, newest first, of one job or of all.

        The conditions are those of `run_log`. With an *id* and without a *namespace*, the job is that of the namespace
        "default". *namespaces* selects the runs of jobs in these namespaces; None selects all runs. For the next part,
        pass `Page.next` as *after*, with the same conditions. A search that finds little stops before the page is full,
        and `Page.looked_back_to` says how far back it has searched.
        """
        first, last = check_stretch(since, until)
        wanted = RunSearch(
            id=_check_id(id),
            namespaces=_namespaces_of(id, namespace, namespaces),
            outcome=None if outcome is None else check_choice(Outcome, outcome, "outcome"),
            trigger=None if trigger is None else check_choice(Trigger, trigger, "trigger"),
            since=first,
            until=last,
            after=read_position(after, ROW_POSITIONS),
            limit=_check_limit(limit),
        )
        return _page(Found[RunRow](items=()) if _sees_nothing(wanted.namespaces) else await self.__survey.runs(wanted))

    async def changes_page(
        self,
        *,
        id: str | None = None,
        namespace: str | None = None,
        namespaces: Collection[str] | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[ChangeRow]:
        """Return a part of the changes of jobs, newest first, of one job or of all. See `changes` and `runs_page`."""
        first, last = check_stretch(since, until)
        wanted = ChangeSearch(
            id=_check_id(id),
            namespaces=_namespaces_of(id, namespace, namespaces),
            since=first,
            until=last,
            after=read_position(after, ROW_POSITIONS),
            limit=_check_limit(limit),
        )
        nothing = Found[ChangeRow](items=())
        return _page(nothing if _sees_nothing(wanted.namespaces) else await self.__survey.changes(wanted))

    async def counts(self, *, namespaces: Collection[str] | None = None) -> Counts:
        """Return how many jobs are running, late, failing, paused and so on, counted up to a limit. See `Count`."""
        found = await self.__survey.counts(_check_namespaces(namespaces))
        return Counts(
            running=_count(found.running),
            queued=_count(found.queued),
            late=_count(found.late),
            failing=_count(found.failing),
            paused=_count(found.paused),
            disabled=_count(found.disabled),
            idle=_count(found.idle),
            left_out=_count(found.left_out),
            total=_count(found.total),
            next_run_at=None if found.next_run_at is None else from_micros(found.next_run_at),
        )

    async def recent_runs(self, jobs: Sequence[tuple[str, str]], n: int = 60) -> list[tuple[RunRow, ...]]:
        """Return the last *n* rows of the run log of each of these jobs, oldest first.

        *jobs* are pairs of a namespace and an id. The answer has the same order. A job that does not exist has no
        rows.
        """
        if not isinstance(jobs, Sequence):
            raise InvalidJobError(f"jobs must be a list of pairs of a namespace and an id, not {quoted(jobs)}.", "jobs")
        names = [_check_pair(pair) for pair in jobs]
        return await self.__survey.recent_runs(names, _check_limit(n, "n"))

    async def tally(
        self,
        *,
        since: datetime | str,
        until: datetime | str | None = None,
        namespaces: Collection[str] | None = None,
        by: Collection[str] = TALLY_KEYS,
        after: str | None = None,
        limit: int = 500,
    ) -> Page[TallyRow]:
        """Return how many runs ended from *since* to *until*, by "hour", "namespace", "outcome" and "node".

        They come in this order. Pass some of these names as *by* to add up over the others, which are None then. The
        hours of both ends are included. The tally counts runs of removed jobs and runs that are no longer kept, too. It
        goes back 90 days. Skipped occurrences are counted in the hour in which they were skipped. For the next part,
        pass `Page.next` as *after*, with the same conditions.
        """
        names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Collection) else ()
        kept = tuple(key for key in TALLY_KEYS if key in names)
        if not kept or len(kept) < len(names):
            raise InvalidJobError(f"by must be some of {', '.join(TALLY_KEYS)}, not {quoted(by)}.", "by")
        wanted = TallySearch(
            since=to_micros(parse_instant(since, "value of since")),
            until=self.__survey.now if until is None else to_micros(parse_instant(until, "value of until")),
            namespaces=_check_namespaces(namespaces),
            by=kept,
            after=read_position(after, (tuple(int if key == "hour" else str for key in kept),)),
            limit=_check_limit(limit),
        )
        found = await self.__survey.tally(wanted)
        return _page(Found(items=[_tally_row(*row) for row in found.items], next=found.next))

    async def planned(
        self, *, until: datetime | str, namespaces: Collection[str] | None = None, most: int = 500
    ) -> Planned:
        """Return how many occurrences are planned for each hour from now until *until*, for 100 days at most.

        The call computes the schedules of at most *most* jobs. If there are more jobs, or if a job runs very often, the
        numbers are an estimate, and `Planned.exact` is False.
        """
        now = self.__survey.now
        last = min(to_micros(parse_instant(until, "value of until")), now - now % HOUR + MOST_HOURS * HOUR, LAST)
        looked_at = check_count(most, "most") or MOST_ROWS
        found = await self.__survey.planned(last, _check_namespaces(namespaces), looked_at)
        return Planned(hours=tuple((from_micros(hour), n) for hour, n in found.hours.items()), exact=found.is_exact)

    async def attention(self, *, namespaces: Collection[str] | None = None, limit: int = 50) -> list[Concern]:
        """Return what needs the attention of an operator, each with its cause and its effect.

        no_scheduler
            No scheduler is running.
        loop_blocked
            A handler has blocked the event loop of this process.
        node_lost
            A process of a scheduler has died in the last 24 hours.
        clock_skew
            The clock of a machine differs from that of the store by more than a second.
        unreadable
            The store cannot read a job that is due, running or failing.
        disabled
            Failures have disabled a job.
        stuck
            A run takes more than three times as long as 95 % of the last runs of its job, and more than a minute.
        failing
            The last run of a job has failed, or several in a row.
        no_handler
            A job is due, and no scheduler has its handler. There is one concern for each handler.
        late
            A job has been due for more than a minute, and has not started.
        left_out
            The last three occurrences of a job, or more, were left out in the last 24 hours.

        They come in this order, at most *limit* of them. With *namespaces*, only concerns about jobs in these
        namespaces are returned, and none about nodes.
        """
        return await self.__survey.attention(_check_namespaces(namespaces), _check_limit(limit))

    async def upcoming(
        self, id: str, *, namespace: str = "default", n: int = 10, zone: str | tzinfo = UTC
    ) -> list[Occurrence]:
        """Return the next *n* runs of a job, as far as they are known, with notes on clock changes and calendars.

        *zone* is the time zone of the reader. A job that is paused without an end, or disabled, has none.
        """
        check_key(id, namespace)
        readers_zone, most = as_tzinfo(zone), _check_limit(n, "n")
        job = await self.__survey.job(namespace, id)
        if job is None:
            raise JobNotFoundError(id, namespace)
        return await self.__survey.upcoming(job, most, readers_zone)

    async def coming_runs(
        self, jobs: Sequence[Job], *, until: datetime | str | None = None, n: int = 60
    ) -> list[tuple[datetime, ...]]:
        """Return when each of *jobs* runs next, up to *n* times until *until*, as far as that is known.

        The answer has the order of *jobs*. A job has no times if it is disabled, if it is paused without an end, or if
        its schedule raises an error. If the times of a job depend on the end of its next run, only the first is known.
        """
        if not isinstance(jobs, Sequence) or not all(isinstance(job, Job) for job in jobs):
            raise InvalidJobError(f"jobs must be a list of jobs, not {quoted(jobs)}.", "jobs")
        last = LAST - 1 if until is None else min(to_micros(parse_instant(until, "value of until")), LAST - 1)
        return await self.__survey.coming_runs(jobs, last, _check_limit(n, "n"))

    async def mark(self, *, namespaces: Collection[str] | None = None) -> str:
        """Return a string that changes when a run begins, ends, reports progress or is skipped, or when a job changes.

        It covers the changes of all processes. Compare it with an earlier one to learn whether to read again.
        """
        return await self.__survey.mark(_check_namespaces(namespaces))


def _page(found: Found[T]) -> Page[T]:
    back = found.looked_back_to
    return Page(
        items=tuple(found.items),
        next=position_text(found.next),
        looked_back_to=None if back is None else from_micros(back),
    )


def _tally_row(
    hour: Micros | None, namespace: str | None, outcome: Outcome | None, node: str | None, n: int
) -> TallyRow:
    at = None if hour is None else from_micros(hour)
    return TallyRow(hour=at, namespace=namespace, outcome=outcome, node=node, n=n)


def _count(number: Number) -> Count:
    return Count(n=number.n, exact=number.is_exact)


def _sees_nothing(namespaces: frozenset[str] | None) -> bool:
    return namespaces is not None and not namespaces


def _check_one_of(value: object, choices: Sequence[str], what: str) -> str:
    """Return *value* if it is one of *choices*."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidJobError(f"{what} must be one of {', '.join(choices)}, not {quoted(value)}.", what)
    return str(value)


def _check_names(names: Collection[str] | None, what: str) -> frozenset[str] | None:
    """Return *names* as a set. None is all of them."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Collection):
        raise InvalidJobError(
            f'{what} must be a list of names such as ["default"], or None, not {quoted(names)}.', what
        )
    for name in names:
        check_text(name, what)
    return frozenset(names)


def _check_namespaces(namespaces: Collection[str] | None) -> frozenset[str] | None:
    """Return the namespaces that a caller may see. None is all of them."""
    return _check_names(namespaces, "namespaces")


def _namespaces_of(id: str | None, namespace: str | None, namespaces: Collection[str] | None) -> frozenset[str] | None:
    """Return the namespaces to look at, if one of them may be named."""
    seen = _check_namespaces(namespaces)
    if namespace is not None:
        check_text(namespace, "namespace")
    named = "default" if namespace is None and id is not None else namespace
    if named is None:
        return seen
    return frozenset({named}) if seen is None else seen & {named}


def _check_id(id: str | None) -> str | None:
    if id is not None:
        check_text(id, "id")
    return id


def _check_pair(pair: tuple[str, str]) -> tuple[str, str]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise InvalidJobError(
            f'jobs must be pairs of a namespace and an id, such as [("default", "daily")], not {quoted(pair)}.', "jobs"
        )
    namespace, job_id = pair
    check_key(job_id, namespace)
    return namespace, job_id


def _check_limit(limit: int, what: str = "limit") -> int:
    """Return the largest number of items of a page."""
    number = check_count(limit, what)
    if number is None or number > MOST_ROWS:
        raise InvalidJobError(f"{what} must be a whole number from 1 to {MOST_ROWS:,}.", what)
    return number
