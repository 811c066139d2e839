"""The limits of a tenant, without a store."""

from __future__ import annotations

import pytest

from scheduler_async import QuotaError
from scheduler_async.rules.quotas import Quota


def test_without_limits_everything_is_allowed() -> None:
    quota = Quota(namespace="mine")

    quota.check_handler("any")
    quota.check_payload("x" * 1_000_000)
    quota.check_jobs(1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("stored", "added", "is_allowed"),
    [(0, 3, True), (2, 1, True), (3, 0, True), (9, 0, True), (0, 4, False), (3, 1, False), (9, 1, False)],
)
def test_jobs_are_counted_only_when_some_are_added(stored: int, added: int, is_allowed: bool) -> None:
    quota = Quota(namespace="mine", max_jobs=3)

    if is_allowed:
        quota.check_jobs(stored, added)
    else:
        with pytest.raises(QuotaError, match="at most 3 jobs"):
            quota.check_jobs(stored, added)


@pytest.mark.parametrize(("payload", "is_allowed"), [('"ab"', True), ('"abc"', False), ('"å"', True), ('"åä"', False)])
def test_a_payload_is_measured_in_bytes(payload: str, is_allowed: bool) -> None:
    quota = Quota(namespace="mine", max_payload=4)

    if is_allowed:
        quota.check_payload(payload)
    else:
        with pytest.raises(QuotaError, match="allows 4"):
            quota.check_payload(payload)
