"""The limits of a tenant: how many jobs, which handlers and schedules, and how much JSON. Pure: no I/O, no async."""

from __future__ import annotations

from msgspec import Struct

from scheduler_async.errors import QuotaError, quoted
from scheduler_async.schedules.after import After
from scheduler_async.schedules.base import Schedule


class Quota(Struct, frozen=True, kw_only=True):
    """What a tenant may do in its namespace. None is no limit."""

    namespace: str
    handlers: frozenset[str] | None = None
    max_jobs: int | None = None
    max_payload: int | None = None
    """In bytes of JSON: of a payload, of metadata, and of a cursor."""

    def check_handler(self, handler: str) -> None:
        """Raise `QuotaError` unless the tenant may use *handler*."""
        if self.handlers is not None and handler not in self.handlers:
            allowed = ", ".join(quoted(name) for name in sorted(self.handlers)) or "none"
            raise QuotaError(
                f"Namespace {quoted(self.namespace)} may not use handler {quoted(handler)}. Its handlers: {allowed}.",
                self.namespace,
                "handlers",
            )

    def check_schedule(self, schedule: Schedule) -> None:
        """Raise `QuotaError` if *schedule* follows a job of another namespace: its runs would tell of those jobs."""
        if isinstance(schedule, After) and schedule.namespace not in (None, self.namespace):
            raise QuotaError(
                f"Namespace {quoted(self.namespace)} may not follow jobs of namespace {quoted(schedule.namespace)}, "
                "only its own. Leave out the namespace of After.",
                self.namespace,
                "schedule",
            )

    def check_payload(self, payload_json: str, what: str = "payload") -> None:
        """Raise `QuotaError` if a payload, or *what* else a job holds, is too large, as JSON in UTF-8."""
        if self.max_payload is None:
            return
        size = len(payload_json) if payload_json.isascii() else len(payload_json.encode())
        if size > self.max_payload:
            raise QuotaError(
                f"The {what} has {size:,} bytes of JSON, and namespace {quoted(self.namespace)} allows "
                f"{self.max_payload:,}. Shorten it, or store it elsewhere and pass a reference to it.",
                self.namespace,
                "max_payload",
            )

    def check_jobs(self, stored: int, added: int) -> None:
        """Raise `QuotaError` if *added* jobs are too many beside those that are *stored*."""
        if self.max_jobs is not None and added and stored + added > self.max_jobs:
            jobs = "1 job" if self.max_jobs == 1 else f"{self.max_jobs:,} jobs"
            raise QuotaError(
                f"Namespace {quoted(self.namespace)} may have at most {jobs}; adding {added:,} would exceed that. "
                "Remove jobs that are no longer needed: disabled and ended jobs count.",
                self.namespace,
                "max_jobs",
            )
