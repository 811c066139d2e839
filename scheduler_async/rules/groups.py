"""Groups: jobs that share a limit on how many of them run at once, or a rate, each within its namespace. Pure.

`Rooms` says how many runs each group may still start. A claim counts the runs of each group, and their starts if the
group has a rate (`rules/rates.py`), in its transaction. It takes no more than `Rooms` allows: SQLite through
`stores/ready_queue.py`, PostgreSQL in the SQL of its claim. The limits are those of the scheduler that claims. A manual
run is counted, and starts even if its group is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from scheduler_async.errors import InvalidJobError, quoted
from scheduler_async.jobs.names import MAX_NAME_LENGTH, check_name

# Names are printable, so no name contains it.
_SEPARATOR = "\n"

EVERYWHERE = "*/"
"""The prefix of a limit that applies to a group across all namespaces."""

NO_GROUP = ""
"""The key of jobs without a group. No group has this key."""


def group_key(namespace: str, group: str | None) -> str | None:
    """Return the unique key of a group within a store. Stores keep it with the state of a job."""
    return None if group is None else f"{namespace}{_SEPARATOR}{group}"


def check_limited(key: object, what: str = "group_limits") -> None:
    """Raise `InvalidJobError` unless *key* is a valid key of `group_limits`, or of `group_rates`."""
    text = key if isinstance(key, str) else ""
    name = text.removeprefix(EVERYWHERE)
    if name == "*":
        each_group = _EACH_GROUP if what == "group_limits" else ""
        problem = f"The key {quoted(key)} in {what} is not the name of a group. {each_group}{_KEYS}"
    elif text == EVERYWHERE:
        problem = f"The key {quoted(key)} in {what} must continue with the name of a group. {_KEYS}"
    elif not _is_name(name):
        problem = (
            f"A key in {what} must be the name of a group, not {quoted(key)}. A name has 1 to {MAX_NAME_LENGTH} "
            f"printable characters, without whitespace around them. {_KEYS}"
        )
    else:
        return
    raise InvalidJobError(problem, what)


_KEYS = 'Use "mail" to limit the group "mail" in each namespace, or "*/mail" to limit it across all namespaces.'
_EACH_GROUP = "To limit every group, pass a number: group_limits=2. "


def is_ambiguous(key: str) -> bool:
    """Return whether *key* looks like "namespace/group", for which there is no separate limit."""
    return "/" in key and not key.startswith(EVERYWHERE)


def _is_name(name: object) -> bool:
    try:
        check_name(name, "group")
    except InvalidJobError:
        return False
    return True


class Rooms:
    """The number of further runs that each group allows, within its namespace and across all namespaces."""

    def __init__(
        self,
        limit: int | None,
        limits: Mapping[str, int],
        running: Mapping[str, int],
        rates: Mapping[str, int] = MappingProxyType({}),
        started: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Apply *limit* to every group that *limits* does not name. *running* counts runs by group key.

        *rates* bound the starts within their periods, with keys as in *limits*; *started* counts those so far by the
        key of the rate.
        """
        self.limit = limit
        self.own, shared = _split(limits)
        self._left: dict[str, float] = {}
        for key, count in running.items():
            self._left[key] = self._limit_of(name_in(key)) - count
        everywhere: Counter[str] = Counter()
        for key, count in running.items() if shared else ():
            everywhere[name_in(key)] += count
        self.shared = {name: most - everywhere[name] for name, most in shared.items()}
        """By name, the free slots of groups with a limit across all namespaces."""
        if rates:
            self._apply_rates(rates, started)

    def _apply_rates(self, rates: Mapping[str, int], started: Mapping[str, int]) -> None:
        own, shared = _split(rates)
        of_group = {key for key in started if not key.startswith(EVERYWHERE) and name_in(key) in own}
        for key in of_group | {key for key in self._left if name_in(key) in own}:
            name = name_in(key)
            left = self._left.get(key)
            free = self._limit_of(name) if left is None else left
            self._left[key] = min(free, own[name] - started.get(key, 0))
        for name, most in own.items():  # for groups that have neither runs nor starts
            self.own[name] = int(min(self._limit_of(name), most))
        for name, most in shared.items():
            self.shared[name] = min(self.shared.get(name, most), most - started.get(EVERYWHERE + name, 0))

    def _limit_of(self, name: str) -> float:
        limit = self.own.get(name, self.limit)
        return float("inf") if limit is None else limit

    def of(self, key: str) -> float:
        """Return how many more runs the group with this *key* allows."""
        if key == NO_GROUP:
            return float("inf")
        name = name_in(key)
        left = self._left.get(key)
        own = self._limit_of(name) if left is None else left
        return min(own, self.shared[name]) if name in self.shared else own

    def take(self, key: str, count: int = 1) -> None:
        """Add *count* runs to the group with this *key*. A negative *count* removes them."""
        if key != NO_GROUP:
            name = name_in(key)
            left = self._left.get(key)
            self._left[key] = (self._limit_of(name) if left is None else left) - count
            if name in self.shared:
                self.shared[name] -= count

    @property
    def in_use(self) -> dict[str, int | None]:
        """By key, the free slots within its namespace of each group that has runs. None means any number."""
        return {key: None if left == float("inf") else int(left) for key, left in self._left.items()}

    @property
    def full(self) -> tuple[list[str], list[str]]:
        """The keys of groups that are full within their namespace, and the names of groups that are full everywhere."""
        keys = [key for key, left in self._left.items() if left <= 0]
        names = [name for room in (self.own, self.shared) for name, left in room.items() if left <= 0]
        return keys, names


def _split(limits: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the limits within a namespace, and those across all namespaces, both by the name of the group."""
    own = {name: most for name, most in limits.items() if not name.startswith(EVERYWHERE)}
    return own, {name.removeprefix(EVERYWHERE): most for name, most in limits.items() if name not in own}


def name_in(key: str) -> str:
    """Return the name of the group with this *key*."""
    return key.partition(_SEPARATOR)[2]
