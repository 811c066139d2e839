"""The troubles of a store: told once, until they are over for all who have them."""

from __future__ import annotations

import itertools

import pytest

from scheduler_async import StoreError, StoreOutdatedError
from scheduler_async.engine.troubles import FIRST_RETRY, LAST_RETRY, retry_delay
from scheduler_async.testing import VirtualClock
from tests.engine.parts import Parts


def test_each_try_waits_twice_as_long_as_the_one_before_up_to_a_limit() -> None:
    delays = [retry_delay(failures) for failures in range(20)]

    assert delays[0] == FIRST_RETRY
    assert all(later in (2 * earlier, LAST_RETRY) for earlier, later in itertools.pairwise(delays))
    assert delays[-1] == LAST_RETRY


def test_a_store_that_fails_is_one_event_however_many_notice_it(clock: VirtualClock) -> None:
    parts = Parts(clock)

    parts.troubles.report("loop", StoreError("It is gone."))
    parts.troubles.report("watch", StoreError("It is still gone."))
    parts.troubles.report("loop", StoreError("It is gone."))

    (event,) = parts.listener.events
    assert (event.kind, event.reason) == ("store_failed", "It is gone.")
    assert parts.troubles.first == "It is gone."
    assert "watch" in parts.troubles


def test_a_store_works_again_when_it_works_for_all(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "scheduler_async")
    parts = Parts(clock)
    parts.troubles.report("loop", StoreError("It is gone."))
    parts.troubles.report("watch", StoreError("It is gone."))

    was_in_trouble = [parts.troubles.are_over_for(part) for part in ("writer", "loop", "watch", "watch")]

    assert was_in_trouble == [False, True, True, False]
    assert parts.listener.kinds == ["store_failed", "store_recovered"]
    assert caplog.text.count("The store works again") == 1
    assert not parts.troubles


async def test_a_store_that_a_newer_version_has_upgraded_is_told_once(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    parts = Parts(clock)
    parts.store.answers["check"] = StoreOutdatedError("jobs.db", 9, 8)

    await parts.troubles.check_store()
    await parts.troubles.check_store()

    assert parts.troubles.outdated is not None
    assert parts.listener.kinds == ["store_failed"]
    assert len(caplog.records) == 1


async def test_a_store_that_cannot_be_used_at_all_is_an_error(clock: VirtualClock) -> None:
    parts = Parts(clock)
    parts.store.answers["check"] = StoreError("It is gone.")

    with pytest.raises(StoreError, match="It is gone"):
        await parts.troubles.check_store()
