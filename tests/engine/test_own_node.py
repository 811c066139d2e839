"""The node that this process is, and how long it trusts its lease."""

from __future__ import annotations

import pytest

from scheduler_async.engine.own_node import OwnNode
from scheduler_async.stores.liveness import new_identity
from scheduler_async.stores.messages import NodeLost
from scheduler_async.testing import VirtualClock


def test_a_process_that_has_not_joined_is_no_node(clock: VirtualClock) -> None:
    node = OwnNode(clock)

    with pytest.raises(NodeLost):
        node.required_id()
    assert (node.name, node.has_joined) == (None, False)


async def test_a_node_is_trusted_until_its_lease_ends(clock: VirtualClock) -> None:
    node = OwnNode(clock)
    node.trusted_until = clock.monotonic() + 30

    await clock.advance("30s")
    node.check_trust()
    await clock.advance("1s")

    with pytest.raises(NodeLost):
        node.check_trust()


def test_the_clock_of_the_wall_says_nothing_about_a_lease(clock: VirtualClock) -> None:
    node = OwnNode(clock)
    node.trusted_until = clock.monotonic() + 30

    clock.set("2030-01-01T00:00:00Z")

    assert node.is_trusted()


def test_a_node_that_is_closed_claims_nothing_more_and_keeps_its_name(clock: VirtualClock) -> None:
    """Rows that are written last still bear it."""
    node = OwnNode(clock)
    node.id, node.identity, node.has_joined = 5, new_identity(), True

    node.retire()
    node.close()

    with pytest.raises(NodeLost):
        node.required_id()
    assert not node.has_joined
    assert node.name == node.identity.name
