"""A store for screenshots and tests of the page: two days of a small shop, in virtual time, always the same."""

from __future__ import annotations

import random
from datetime import timedelta

from scheduler_async import Cron, Every, Manual, Result, Retry, Run, Scheduler, acting_as
from scheduler_async.jobs.enums import Outcome
from scheduler_async.testing import VirtualClock

BEGIN = "2026-11-16T07:40:00Z"
NOW_AFTER = "49h22m10s"


class Shop:
    """The handlers of the shop. Each takes a time that depends on its occurrence alone."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock

    async def _take(self, run: Run, low: float, high: float) -> random.Random:
        chance = random.Random(f"{run.job_id}{run.scheduled_for}{run.attempt}")
        await self.clock.sleep(timedelta(seconds=chance.uniform(low, high)))
        return chance

    async def sync(self, run: Run) -> str:
        chance = await self._take(run, 0.4, 2.4)
        if chance.random() < 0.03:
            raise ConnectionError("the warehouse did not answer")
        return f"{chance.randint(3, 90)} articles"

    async def orders(self, run: Run) -> Result:
        chance = await self._take(run, 1, 9)
        found = chance.randint(0, 12)
        return Result(
            Outcome.NOOP if not found else Outcome.SUCCESS, message=f"{found} orders" if found else "no orders"
        )

    async def prices(self, run: Run) -> str:
        run.write("reading the catalogue\n")
        if run.scheduled_for.day == 18 and run.scheduled_for.hour >= 6:
            await self.clock.sleep("12s")
            raise TimeoutError("no answer from prices.example.com within 12 s")
        await self._take(run, 20, 45)
        return "2,140 prices"

    async def backup(self, run: Run) -> str:
        chance = await self._take(run, 240, 420)
        return f"{chance.uniform(14, 15):.1f} GB"

    async def import_(self, run: Run) -> str:
        run.progress(0.1, message="reading the file")
        if run.scheduled_for.day == 18 and run.scheduled_for.hour == 7:  # the last one
            run.write("opening /srv/incoming/stock.csv\n140,000 of 412,000 rows\n")
            run.progress(0.34, message="140,000 of 412,000 rows")
            await self.clock.sleep("3h")
        await self._take(run, 120, 300)
        return "412,000 rows"

    async def letters(self, run: Run) -> str:
        chance = await self._take(run, 3, 30)
        return f"{chance.randint(100, 900)} letters"

    async def probe(self, run: Run) -> None:
        await self._take(run, 0.02, 0.2)

    async def thumbnails(self, run: Run) -> None:
        await self._take(run, 5, 9)
        if f"{run.scheduled_for:%d%H}" >= "1716":
            raise OSError("No space left on device: /srv/thumbnails")

    async def reindex(self, run: Run) -> None:
        # Longer than its interval: every other occurrence is left out.
        await self._take(run, 2100, 2600)


async def fill(scheduler: Scheduler, clock: VirtualClock) -> None:
    """Give *scheduler*, which runs, its jobs and two days of history."""
    shop = Shop(clock)
    for name in ("sync", "orders", "prices", "backup", "letters", "probe", "thumbnails", "reindex"):
        scheduler.handler(name)(getattr(shop, name))
    scheduler.handler("import")(shop.import_)
    zone = "Europe/Stockholm"
    with acting_as("anna", via="admin"):
        await scheduler.add_job(Every("5m"), handler="orders", id="orders", name="Fetch new orders")
        await scheduler.add_job(Every("10m"), handler="sync", id="stock-sync", retry=Retry.in_window(max_retries=2))
        await scheduler.add_job(Cron("0 * * * *", tz=zone), handler="prices", id="prices")
        await scheduler.add_job(Cron("0 3 * * *", tz=zone), handler="backup", id="backup", priority="high")
        await scheduler.add_job(Cron("20 */2 * * *", tz=zone), handler="import", id="import-stock")
        await scheduler.add_job(Cron("0 8-17 * * 1-5", tz=zone), handler="letters", id="newsletter")
        await scheduler.add_job(Cron("*/3 6-22 * * *", tz=zone), handler="probe", id="probe-shop")
        await scheduler.add_job(Cron("45 */2 * * *", tz=zone), handler="thumbnails", id="thumbnails")
        await scheduler.add_job(Every("30m"), handler="reindex", id="search-index")
        await scheduler.add_job(
            Cron("30 6 1 * *", tz=zone), handler="letters", id="invoices", payload={"currency": "SEK"}
        )
        await scheduler.add_job(Manual(), handler="sync", id="rebuild-cache")
        await scheduler.add_job(Cron("0 9 * * 1", tz="America/New_York"), handler="letters", id="weekly-report")
    await clock.advance("30h")
    with acting_as("anna", via="page"):
        await scheduler.pause_job("newsletter", reason="new template", until="26h")
    with acting_as("bo", via="cli"):
        await scheduler.update_job("stock-sync", timeout="30s")
        await scheduler.trigger_job("rebuild-cache")
    await clock.advance("19h22m10s", wait_for_runs=False)
