"""The options of a job that few jobs need, as one value. A store keeps them in one column, usually empty. Pure.

A new option has these places: a field of `Policy` with its check in `policy_of`, a property of `Described`, an argument
of `JobSpec`, and the public signatures (`JobOptions` in `options.py` and `Scheduler.add_job`). It needs no migration.
"""

from __future__ import annotations

import json
from datetime import timedelta
from functools import lru_cache

from msgspec import Struct

from scheduler_async.errors import quoted
from scheduler_async.jobs.enums import Overlap, check_choice
from scheduler_async.jobs.json_forms import plain
from scheduler_async.jobs.json_text import Json
from scheduler_async.jobs.names import refuse
from scheduler_async.timekeeping.durations import parse_interval, parse_stored_interval

CATCH_UP_LIMIT = 100
"""How many missed occurrences a job with `misfire="run_all"` runs, unless it says otherwise."""

# More cannot be told apart from no limit, and every store can count this far.
MOST_RUNS = 2**31
# A claim looks at each of them.
MOST_CAUGHT_UP = 10_000


class Policy(Struct, frozen=True, gc=False, kw_only=True):
    """The options of a job that are rarely given. Their names are those of the arguments of `Scheduler.add_job`."""

    max_instances: int = 1
    overlap: Overlap = Overlap.SKIP
    misfire_grace: timedelta | None = None
    catch_up_limit: int = CATCH_UP_LIMIT
    catch_up_window: timedelta | None = None
    max_runs: int | None = None

    @property
    def has_instances(self) -> bool:
        """Whether a run may begin, or be asked to end, while another one goes on. See `rules.instances`."""
        return self.max_instances > 1 or self.overlap is Overlap.CANCEL

    @property
    def json_text(self) -> str | None:
        """The options that differ from the defaults, as JSON. None if there are none."""
        return _json_text(self)


USUAL = Policy()
"""The policy of most jobs."""

POLICY_FIELDS = Policy.__struct_fields__


def policy_of(
    *,
    max_instances: int = 1,
    overlap: Overlap | str = Overlap.SKIP,
    misfire_grace: str | timedelta | None = None,
    catch_up_limit: int = CATCH_UP_LIMIT,
    catch_up_window: str | timedelta | None = None,
    max_runs: int | None = None,
) -> Policy:
    """Return the policy with these options. Raise `InvalidJobError` if one of them is wrong."""
    policy = Policy(
        max_instances=_check_count(max_instances, "max_instances"),
        overlap=check_choice(Overlap, overlap, "overlap"),
        misfire_grace=None if misfire_grace is None else parse_grace(misfire_grace),
        catch_up_limit=_check_count(catch_up_limit, "catch_up_limit", MOST_CAUGHT_UP),
        catch_up_window=None if catch_up_window is None else parse_interval(catch_up_window),
        max_runs=None if max_runs is None else _check_count(max_runs, "max_runs"),
    )
    return USUAL if policy == USUAL else policy


def parse_grace(grace: str | timedelta) -> timedelta:
    """Return the longest lateness that is not a misfire. Unlike other durations, it may be zero: "0s"."""
    text = grace.strip().lower() if isinstance(grace, str) else grace
    return timedelta(0) if text in _ZERO else parse_interval(grace)


@lru_cache(maxsize=256)
def read_policy(text: str | None) -> Policy:
    """Return the policy that `Policy.json_text` wrote. Raise an error if it cannot be read."""
    if text is None:
        return USUAL
    stored = json.loads(text)
    unknown = stored.keys() - set(POLICY_FIELDS)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not known")
    for name in ("misfire_grace", "catch_up_window"):
        if name in stored:
            stored[name] = timedelta(0) if stored[name] in _ZERO else parse_stored_interval(stored[name])
    return policy_of(**stored)


_ZERO = (timedelta(0), "0s", "0m", "0h", "0d")


@lru_cache(maxsize=256)
def _json_text(policy: Policy) -> str | None:
    given = {name: getattr(policy, name) for name in POLICY_FIELDS}
    stored: dict[str, Json] = {name: plain(value) for name, value in given.items() if value != getattr(USUAL, name)}
    return json.dumps(stored, separators=(",", ":")) if stored else None


def _check_count(value: object, field: str, most: int = MOST_RUNS) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        refuse(field, f"must be a whole number from 1 to {most}, not {quoted(value)}")
    return value
