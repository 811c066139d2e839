"""The starts of groups that have a rate: count them, move them, and tell when the next one is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from scheduler_async.jobs.run import ClaimedRun
from scheduler_async.rules.groups import group_key
from scheduler_async.rules.rates import LONGEST, MOST_STARTS, SLACK, Counted, Rate, Rates, Settlement, free_at
from scheduler_async.stores.postgres.base import WorkBase
from scheduler_async.stores.postgres.bulk_writes import inserting, write_rows
from scheduler_async.timekeeping.instants import Micros

if TYPE_CHECKING:
    from asyncpg import Connection

# With limits or rates of groups, claims run one after another, so that their counts stay correct.
GROUP_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 7))"

# A damaged row counts for nothing, and is deleted sooner or later.
IS_SOUND: Final = f"starts BETWEEN 1 AND {MOST_STARTS}"
IS_LIVE: Final = f"until > $1::bigint AND until <= $1::bigint + {LONGEST}"
PRUNE: Final = f"DELETE FROM group_start WHERE until <= $1::bigint OR until > $1::bigint + {LONGEST}"
LIVE_STARTS: Final = f"""
    SELECT rate_key, sum(starts)::bigint FROM group_start WHERE {IS_LIVE} AND {IS_SOUND} GROUP BY rate_key
"""
STARTS_OF: Final = f"""
    SELECT until, starts, settled
      FROM group_start
     WHERE rate_key = $2 AND settled = $3 AND {IS_LIVE} AND {IS_SOUND}
  ORDER BY until
     LIMIT $4
"""
START_TYPES: Final = {"rate_key": "text", "settled": "boolean", "until": "bigint", "starts": "bigint"}
ADD: Final = f"""
    {inserting("group_start", START_TYPES)}
        ON CONFLICT (rate_key, settled, until) DO UPDATE SET starts = group_start.starts + excluded.starts
"""
TAKE_AWAY: Final = """
    UPDATE group_start AS t
       SET starts = t.starts - c.starts
      FROM unnest($1::text[], $2::boolean[], $3::bigint[], $4::bigint[]) AS c (rate_key, settled, until, starts)
     WHERE t.rate_key = c.rate_key AND t.settled = c.settled AND t.until = c.until
"""
FORGET: Final = "DELETE FROM group_start WHERE rate_key = $1 AND until > $2 RETURNING starts"


class RateWork(WorkBase):
    """Steps of claims, and the transactions of starts. For their purpose, see `Store`."""

    async def _live_starts(self, db: Connection, now: Micros) -> Counter[str]:
        """Return how many starts count now, by the key of their rate."""
        return Counter(dict(await db.fetch(LIVE_STARTS, now)))

    async def _count_starts(
        self, db: Connection, runs: Sequence[ClaimedRun], rates: Rates, now: Micros
    ) -> Counter[tuple[str, Micros]]:
        """Count the starts of claimed *runs* whose groups have a rate. Forget those that no longer count."""
        claimed = ((group_key(run.job.namespace, run.job.group), run.claimed_at) for run in runs)
        counted = rates.starts(claimed)
        if counted:
            await db.execute(PRUNE, now)
            await write_rows(db, ADD, _rows(counted, settled=False))
        return counted

    async def _next_start(self, db: Connection, started: Mapping[str, int], rates: Rates, now: Micros) -> Micros | None:
        """Return when the first of the rates that are reached allows another start, or None if none is reached."""
        moments = []
        for key, rate in rates.exhausted(started).items():
            at = await self._free_at(db, key, rate.excess(started[key]), now)
            moments.append(at if at <= rate.until(now) else await self._follow_the_clock(db, key, rate, now))
        return min(moments, default=None)

    async def _free_at(self, db: Connection, key: str, excess: int, now: Micros) -> Micros:
        settled, unsettled = [
            [Counted(*row) for row in await db.fetch(STARTS_OF, now, key, is_settled, most)]
            for is_settled, most in ((True, excess), (False, None))
        ]
        return free_at(excess, settled, unsettled, now)

    async def _follow_the_clock(self, db: Connection, key: str, rate: Rate, now: Micros) -> Micros:
        """Count the starts of the future as of *now*: they began before the clock was set back."""
        until = rate.until(now)
        starts = [count for (count,) in await db.fetch(FORGET, key, until + SLACK)]
        await write_rows(db, ADD, [(key, True, until, sum(starts))])
        return until

    async def rate_free_at(self, db: Connection, key: str, rate: Rate, now: Micros) -> Micros:
        return await self._free_at(db, key, rate.excess((await self._live_starts(db, now))[key]), now)

    async def settle_starts(self, db: Connection, settled: Mapping[Settlement, int]) -> None:
        await db.execute(GROUP_LOCK)  # otherwise two transactions could each wait for a row of the other
        away, there = Counter[tuple[str, Micros]](), Counter[tuple[str, Micros]]()
        for one, count in settled.items():  # a statement writes a row only once
            away[one.key, one.counted] += count
            if one.until is not None:
                there[one.key, one.until] += count
        await write_rows(db, TAKE_AWAY, _rows(away, settled=False))
        await write_rows(db, ADD, _rows(there, settled=True))


def _rows(starts: Mapping[tuple[str, Micros], int], *, settled: bool) -> list[tuple[str, bool, Micros, int]]:
    return [(key, settled, until, count) for (key, until), count in starts.items()]
