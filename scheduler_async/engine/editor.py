"""Changes to jobs: added, edited, paused, resumed, disabled, removed, or declared in code.

`rules.edits` decides what becomes of a job. The editor checks descriptions before that, has the store carry the change
out in one transaction, and then announces it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from logging import WARNING
from typing import Any, NamedTuple

from msgspec.structs import replace

from scheduler_async.engine.engine import Engine
from scheduler_async.errors import (
    InvalidJobError,
    JobDisabledError,
    JobExistsError,
    JobNotFoundError,
    SchedulerError,
    StoreError,
)
from scheduler_async.jobs.enums import OnConflict
from scheduler_async.jobs.events import EventKind
from scheduler_async.jobs.history import NO_ACTOR, Actor, current_actor
from scheduler_async.jobs.job import Job
from scheduler_async.jobs.names import key_of
from scheduler_async.jobs.spec import JobSpec
from scheduler_async.logs import say
from scheduler_async.rules import edits
from scheduler_async.rules.next_run import with_cursor
from scheduler_async.rules.quotas import Quota
from scheduler_async.rules.terms import Transition
from scheduler_async.shielding import in_breaths
from scheduler_async.stores.codec import has_unreadable_state, refuse_stand_ins, refuse_unreadable_state
from scheduler_async.stores.messages import Change, Decision
from scheduler_async.timekeeping.instants import Micros

# These decide whether the handler can be called. To check them may run code of the user's.
CALL = {"handler", "payload"}

# The JSON of a job whose size the quota of a tenant limits.
SIZED = ("payload", "metadata")
# An edit may leave these as they are, even if the quota does not allow them.
LIMITED = (*SIZED, "schedule")

# What an edit of other fields leaves as another program may have stored it.
GIVEN = ("schedule", *LIMITED)

# How a declared job was changed, in the record of the change.
DECLARED = "declaration"

# Python 3.11 finds a name of the module ten times faster than a member of an enum, and many jobs may be added at once.
ADDED = EventKind.ADDED

WITHOUT_USER = "it has no user_id, and this scheduler requires one"


class Editor:
    """How is a job changed?"""

    def __init__(
        self, engine: Engine, *, min_interval: timedelta | None, require_user: bool, timezone: str | None = None
    ) -> None:
        self._engine = engine
        self._ask = engine.setting.ask
        self._store, self._clock, self._handlers = engine.setting.store, engine.setting.clock, engine.handlers
        self._min_interval, self._require_user, self._timezone = min_interval, require_user, timezone
        self._declared: list[JobSpec] = []

    # ============================================================ adding

    async def add(self, specs: Sequence[JobSpec], quota: Quota | None = None) -> list[Job]:
        """Add the jobs that *specs* describe in one transaction, if *quota* allows it."""
        now = await self._now()
        changes: list[Change] = []
        with self._handlers.forgotten_on_error() as registered:
            async for some in in_breaths(specs):
                changes += [await self._addition(self._fitting(spec, quota, registered), now) for spec in some]
            jobs = await self._change(changes, now, quota)
        self._look_for(registered)
        return jobs

    def declare(self, spec: JobSpec) -> None:
        """Add a job at each start, or bring the stored one up to date."""
        name = spec.namespace, spec.id
        if any((other.namespace, other.id) == name for other in self._declared):
            raise JobExistsError(str(spec.id), spec.namespace)
        declared = self._checked(spec)
        self._handlers.check_payload(str(declared.handler), declared.description.payload_json)
        self._declared.append(declared)
        self._engine.setting.declared.add((declared.namespace, str(declared.id)))

    async def prepare(self, now: Micros) -> None:
        """Do what comes before the first run: disable jobs without a user if one is required, add declared jobs."""
        if self._require_user:
            await self._disable_without_user(now)
        if not self._declared:
            return
        declarations = [_declaration(await self._addition(spec, now)) for spec in self._declared]
        by = current_actor()
        by = Actor(via=DECLARED) if by is NO_ACTOR else by

        async def declare() -> list[Transition | None]:
            return await self._ask(self._store.change(declarations, now, by))

        for edit in await self._engine.session.deciding.asked(declare):
            self._engine.session.announcer.edited(edit, now)
            if edit is not None:
                await self._engine.session.claimer.begun_elsewhere(edit.job)

    async def _disable_without_user(self, now: Micros) -> None:
        async def disable() -> list[Job]:
            return await self._ask(self._store.disable_without_user(WITHOUT_USER, now))

        for job in await self._engine.session.deciding.asked(disable):
            say(WARNING, "Job %s is disabled: %s", job.key, WITHOUT_USER, extra={"job": job.key})
            self._engine.session.announcer.tell(EventKind.DISABLED, now, job=job, reason=WITHOUT_USER)

    # ============================================================ editing

    async def update(
        self,
        namespace: str,
        id: str,
        changes: Mapping[str, Any],
        quota: Quota | None = None,
        revision: int | None = None,
    ) -> Job:
        """Apply *changes* to a job, and nothing else, if *quota* allows it and if the job has this *revision*."""

        def changes_of(job: Job) -> Mapping[str, Any]:
            edits.check_revision(job, revision)
            return changes

        return await self.update_by(namespace, id, changes_of, quota)

    async def update_by(
        self,
        namespace: str,
        id: str,
        changes_of: Callable[[Job], Mapping[str, Any]],
        quota: Quota | None = None,
    ) -> Job:
        """Apply the changes that *changes_of* returns for the job as it is. Start over if it changed in between.

        The description is made, and its payload checked, before the transaction: both may run code of the user's.
        """
        with self._handlers.forgotten_on_error() as registered:
            edited = await self._update_by(namespace, id, changes_of, quota, registered)
        self._look_for(registered)
        return edited

    async def _update_by(
        self,
        namespace: str,
        id: str,
        changes_of: Callable[[Job], Mapping[str, Any]],
        quota: Quota | None,
        registered: set[str],
    ) -> Job:
        while True:
            await self._engine.ready()
            job = _existing(await self._ask(self._store.get(namespace, id)), id, namespace)
            changes = changes_of(job)
            cursor = edits.edited_cursor(changes)
            if quota is not None and cursor is not None:
                quota.check_payload(cursor, "cursor")
            spec = edits.edited_spec(job, changes)
            if changes.keys() & CALL:
                spec = self._fitting(spec, quota, registered, changes)
            else:
                if quota is not None:
                    self._check_quota(spec, quota, changes)
                spec = self._checked(spec, changes)
            now = await self._now()
            with suppress(_OutdatedError):
                (edited,) = await self._change(
                    [_Revision(namespace, id, job, spec, now, is_slow=spec.schedule.may_be_slow, cursor=cursor)], now
                )
                return edited

    async def pause(
        self, namespace: str, id: str, reason: str | None, end_of: Callable[[Micros], Micros | None]
    ) -> Job:
        """Keep a job from starting until it is resumed, or until the time that *end_of* returns for now."""
        until = end_of(await self._now())

        def pause(job: Job, now: Micros) -> Transition:
            if not job.enabled:
                raise JobDisabledError(id, namespace)
            return edits.pause(job, now, reason, until)

        return await self._change_state(namespace, id, EventKind.PAUSED, pause)

    async def resume(self, namespace: str, id: str) -> Job:
        """Let a paused or disabled job start again."""
        return await self._change_state(namespace, id, EventKind.RESUMED, self._resumed)

    async def disable(self, namespace: str, id: str, reason: str) -> Job:
        """Take a job out of scheduling for *reason*."""
        return await self._change_state(
            namespace, id, EventKind.DISABLED, lambda job, now: edits.disable(job, reason, now)
        )

    def _resumed(self, job: Job, now: Micros) -> Transition:
        self._check_user(job.user_id)
        refuse_unreadable_state(job)
        refuse_stand_ins(job)
        return edits.resume_if_it_computes(job, now)

    async def _change_state(
        self, namespace: str, id: str, kind: EventKind, change: Callable[[Job, Micros], Transition]
    ) -> Job:
        now = await self._now()

        def decide(job: Job | None) -> Transition:
            found = _existing(job, id, namespace)
            changed = change(found, now)
            if changed.state == found.state and not changed.skips:
                return Transition(found)
            return Transition(replace(changed.job, updated=now), changed.skips, changed.kind or kind)

        (job,) = await self._change([Decision(namespace, id, decide, adds=False)], now)
        return job

    # ============================================================ removing

    async def remove(self, namespace: str, id: str, revision: int | None = None) -> Job:
        """Remove a job if it has this *revision*, and cancel its run unless that run asks for it."""
        await self._engine.ready()
        remove = partial(self._remove_and_tell, namespace, id, revision)
        job, ran_here = await self._engine.session.deciding.asked(lambda: self._ask(remove()))
        if not ran_here:
            await self._engine.session.claimer.begun_elsewhere(job)
        return job

    async def _remove_and_tell(self, namespace: str, id: str, revision: int | None) -> tuple[Job, bool]:
        session = self._engine.session
        caller = session.runner.current()
        own_run = None if caller is None else caller.claimed.id
        removed = await self._store.remove(namespace, id, self._clock.micros(), own_run, current_actor(), revision)
        job = _existing(removed, id, namespace)
        runs = [active for active in session.runner if active.claimed.uid == job.uid]
        for active in runs:
            if active is not caller:
                session.runner.disown(active)
        session.announcer.tell(EventKind.REMOVED, self._clock.micros(), job=job)
        return job, bool(runs)

    # ============================================================ checks

    def _fitting(
        self, spec: JobSpec, quota: Quota | None, registered: set[str], given: Container[str] = GIVEN
    ) -> JobSpec:
        """Return *spec* as this scheduler takes it. If its handler is a new function, it is *registered* for now."""
        if not isinstance(spec.handler, str):
            self._handlers.register_for(registered, spec.handler)
        if quota is not None:
            self._check_quota(spec, quota, given)
        return self._with_fitting_payload(self._checked(spec, given))

    def _look_for(self, registered: set[str]) -> None:
        """Look for jobs that have waited for handlers that are now *registered*."""
        if registered:
            self._engine.session.agenda.look_again()

    def _checked(self, spec: JobSpec, given: Container[str] = GIVEN) -> JobSpec:
        """Return *spec* as this scheduler takes it: with a known handler, a user if required, and a fixed schedule."""
        self._check_user(spec.user_id)
        spec = spec.with_handler(self._handlers.name_of(spec.handler))
        return self._with_fixed_schedule(spec) if "schedule" in given else spec

    def _check_quota(self, spec: JobSpec, quota: Quota, given: Container[str]) -> None:
        """Raise `QuotaError` unless *quota* allows the handler of *spec*, and the fields that are *given*."""
        quota.check_handler(self._handlers.name_of(spec.handler))
        if "schedule" in given:
            quota.check_schedule(spec.schedule)
        for field in SIZED:
            if field in given:
                quota.check_payload(getattr(spec.description, f"{field}_json"), field)

    def _with_fixed_schedule(self, spec: JobSpec) -> JobSpec:
        """Return *spec* with a schedule that means the same from now on: it has a zone, and no tiny interval."""
        if self._timezone is not None:
            zoned = spec.schedule.in_zone(self._timezone)
            spec = spec if zoned == spec.schedule else spec.with_schedule(zoned)
        if self._min_interval is None:
            return spec
        raised = spec.schedule.raised_to(self._min_interval)
        if raised is spec.schedule:
            return spec
        say(
            WARNING,
            "The interval of %s is shorter than min_interval and was raised to it: it runs %s",
            spec.id or "a job",
            raised.describe(),
            extra=None if spec.id is None else {"job": key_of(spec.namespace, spec.id)},
        )
        return spec.with_schedule(raised)

    def _with_fitting_payload(self, spec: JobSpec) -> JobSpec:
        """Return *spec* if its handler takes its payload. Before the start, a handler may still be missing."""
        name = str(spec.handler)
        if self._engine.progress.status == "running" or self._handlers.has(name):
            self._handlers.check_payload(name, spec.description.payload_json)
        return spec

    def _check_user(self, user_id: str | None) -> None:
        if self._require_user and user_id is None:
            raise InvalidJobError(
                "user_id is required, since the scheduler has require_user=True. Pass the user whose job it is.",
                "user_id",
            )

    async def _addition(self, spec: JobSpec, now: Micros) -> _Addition:
        addition = _Addition(spec.namespace, spec.id or uuid.uuid4().hex, spec, now)
        if not addition.is_slow:
            return addition
        return addition._replace(new=await self._engine.session.deciding.made(addition.make))

    # ============================================================ carrying out

    async def _now(self) -> Micros:
        if self._store.clock is self._clock:
            await self._engine.ready()  # only then is it known what it shows
        return self._clock.micros()

    async def _change(self, changes: Sequence[Change], now: Micros, quota: Quota | None = None) -> list[Job]:
        await self._engine.ready()
        change = partial(self._change_and_tell, changes, now, quota)
        jobs = await self._engine.session.deciding.asked(lambda: self._ask(change()))
        for place, job in enumerate(jobs):
            if job.is_running:
                await self._engine.session.claimer.begun_elsewhere(job)
                jobs[place] = job.as_of(now)
        return jobs

    async def _change_and_tell(self, changes: Sequence[Change], now: Micros, quota: Quota | None) -> list[Job]:
        jobs: list[Job] = []
        edited = {(change.namespace, change.id) for change in changes if not _only_adds(change)}
        change = partial(self._store.change, changes, now, current_actor(), quota=quota)
        try:
            made = await (self._engine.undisturbed(edited, change) if edited else change())
        except StoreError:
            self._engine.session.agenda.look_again()  # the store may have made the change all the same
            raise
        async for some in in_breaths(made):
            for edit in some:
                assert edit is not None
                self._engine.session.announcer.edited(edit, now)
                jobs.append(edit.job)
        agenda = self._engine.session.agenda
        agenda.learn_of(jobs)
        if edited:
            agenda.look_for_backfills()  # a paused job may go on
        return jobs


# ---------------------------------------------------------------- what a store is given to decide


class _Addition(NamedTuple):
    """Adds a job. A tuple, not a function: many jobs may be added at once, and each waits in memory until then."""

    namespace: str
    id: str
    spec: JobSpec
    now: Micros
    adds: bool = True
    new: Job | None = None
    """The new job, if it was made before: its schedule may be slow."""

    @property
    def is_slow(self) -> bool:
        """Whether its schedule may be slow."""
        return self.spec.schedule.may_be_slow

    def make(self) -> Job:
        """Return the new job."""
        return edits.add(self.spec, id=self.id, handler=str(self.spec.handler), now=self.now)

    def decide(self, existing: Job | None) -> Transition:
        """Return the new job, or what becomes of the one that has this id."""
        spec = self.spec
        if existing is None:
            return Transition(self.make() if self.new is None else replace(self.new), kind=ADDED)
        if spec.on_conflict is OnConflict.RAISE:
            raise JobExistsError(self.id, self.namespace)
        if spec.on_conflict is OnConflict.KEEP:
            return Transition(existing)
        return _edited(existing, spec, self.now)


class _OutdatedError(SchedulerError):
    """A job has changed since it was read."""


class _Revision(NamedTuple):
    """A new description of a job, made for the job as it was *read*."""

    namespace: str
    id: str
    read: Job
    spec: JobSpec
    now: Micros
    adds: bool = False
    is_slow: bool = False
    cursor: str | None = None
    """The JSON of a new cursor, if there is one."""

    def decide(self, job: Job | None) -> Transition:
        """Return the edited job, or raise `_OutdatedError`."""
        found = _existing(job, self.id, self.namespace)
        seen, is_now = ((one.uid, one.revision, edits.is_wanted(one)) for one in (self.read, found))
        if seen != is_now:
            raise _OutdatedError
        if self.cursor is not None:
            state = with_cursor(found.state, self.cursor)
            found = found.with_state(replace(state, cursor_edits=state.cursor_edits + 1))
        return _edited(found, self.spec, self.now)


def _declaration(addition: _Addition) -> Change:
    """Return the change that adds a declared job. If the stored job has the same description, nothing changes."""
    spec, now = addition.spec, addition.now

    def decide(existing: Job | None) -> Transition | None:
        if existing is None:
            return addition.decide(None)
        if has_unreadable_state(existing):
            return None
        if (existing.description, existing.handler) == (spec.description, spec.handler):
            return None
        return _edited(existing, spec.with_enabled(edits.is_wanted(existing)), now)

    return Decision(addition.namespace, addition.id, decide, is_slow=addition.is_slow)


def _edited(job: Job, spec: JobSpec, now: Micros) -> Transition:
    edited = edits.edit(job, spec, handler=str(spec.handler), now=now)
    is_disabled = job.enabled and not edited.job.enabled
    return replace(edited, kind=EventKind.DISABLED if is_disabled else EventKind.UPDATED)


def _existing(job: Job | None, id: str, namespace: str) -> Job:
    if job is None:
        raise JobNotFoundError(id, namespace)
    return job


def _only_adds(change: Change) -> bool:
    return isinstance(change, _Addition) and change.spec.on_conflict is not OnConflict.REPLACE
