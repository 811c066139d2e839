"""The starts of groups that have a rate: count them, move them, and tell when the next one is allowed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.rates import LONGEST, MOST_STARTS, SLACK, Counted, Rate, Rates, Settlement, free_at
from scheduler_async.stores.sqlite.base import WorkBase
from scheduler_async.timekeeping.instants import Micros

# A damaged row counts for nothing, and is deleted sooner or later.
IS_SOUND: Final = f"typeof(starts) = 'integer' AND starts BETWEEN 1 AND {MOST_STARTS}"
IS_LIVE: Final = f"until > :now AND until <= :now + {LONGEST}"
PRUNE: Final = f"DELETE FROM group_start WHERE until <= :now OR until > :now + {LONGEST}"
LIVE_STARTS: Final = f"""
    SELECT rate_key, sum(starts) FROM group_start WHERE {IS_LIVE} AND {IS_SOUND} GROUP BY rate_key
"""
STARTS_OF: Final = f"""
    SELECT until, starts
      FROM group_start
     WHERE rate_key = :key AND settled = :settled AND {IS_LIVE} AND {IS_SOUND}
  ORDER BY until
"""
ADD: Final = """
    INSERT INTO group_start (rate_key, settled, until, starts)
    VALUES (?, ?, ?, ?)
        ON CONFLICT (rate_key, settled, until) DO UPDATE SET starts = starts + excluded.starts
"""
TAKE_AWAY: Final = "UPDATE group_start SET starts = starts - ? WHERE rate_key = ? AND settled = 0 AND until = ?"
FORGET: Final = "DELETE FROM group_start WHERE rate_key = ? AND until > ? RETURNING starts"


class RateWork(WorkBase):
    """Steps of claims, and the transactions of starts. For their purpose, see `Store`."""

    def _live_starts(self, db: sqlite3.Connection, now: Micros) -> Counter[str]:
        """Return how many starts count now, by the key of their rate."""
        return Counter(dict(db.execute(LIVE_STARTS, {"now": now}).fetchall()))

    def _count_starts(
        self, db: sqlite3.Connection, runs: Sequence[ClaimedRun], rates: Rates, now: Micros
    ) -> Counter[tuple[str, Micros]]:
        """Count the starts of claimed *runs* whose groups have a rate. Forget those that no longer count."""
        if not rates:
            return Counter()
        claimed = ((group_key(run.job.namespace, run.job.group), run.claimed_at) for run in runs)
        counted = rates.starts(claimed)
        if counted:
            db.execute(PRUNE, {"now": now})
            db.executemany(ADD, [(key, False, until, count) for (key, until), count in counted.items()])
        return counted

    def _next_start(
        self, db: sqlite3.Connection, started: Mapping[str, int], rates: Rates, now: Micros
    ) -> Micros | None:
        """Return when the first of the rates that are reached allows another start, or None if none is reached."""
        moments = []
        for key, rate in rates.exhausted(started).items():
            at = self._free_at(db, key, rate.excess(started[key]), now)
            moments.append(at if at <= rate.until(now) else self._follow_the_clock(db, key, rate, now))
        return min(moments, default=None)

    def _free_at(self, db: sqlite3.Connection, key: str, excess: int, now: Micros) -> Micros:
        settled = db.execute(STARTS_OF, {"key": key, "settled": True, "now": now})
        unsettled = db.execute(STARTS_OF, {"key": key, "settled": False, "now": now}).fetchall()
        return free_at(
            excess,
            (Counted(until, starts) for until, starts in settled),
            [Counted(until, starts, is_settled=False) for until, starts in unsettled],
            now,
        )

    def _follow_the_clock(self, db: sqlite3.Connection, key: str, rate: Rate, now: Micros) -> Micros:
        """Count the starts of the future as of *now*: they began before the clock was set back."""
        until = rate.until(now)
        starts = [count for (count,) in db.execute(FORGET, (key, until + SLACK)).fetchall()]
        db.execute(ADD, (key, True, until, sum(starts)))
        return until

    def rate_free_at(self, db: sqlite3.Connection, key: str, rate: Rate, now: Micros) -> Micros:
        return self._free_at(db, key, rate.excess(self._live_starts(db, now)[key]), now)

    def settle_starts(self, db: sqlite3.Connection, settled: Mapping[Settlement, int]) -> None:
        db.executemany(TAKE_AWAY, [(count, one.key, one.counted) for one, count in settled.items()])
        begun = [(one.key, True, one.until, count) for one, count in settled.items() if one.until is not None]
        db.executemany(ADD, begun)
