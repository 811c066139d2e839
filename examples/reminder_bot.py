"""A chat bot that schedules reminders: one-shots and repeating ones, for each user, in a store that survives restarts.

python examples/reminder_bot.py

It prints:

    ada: /remind 1s tea is ready
    bot: I will remind you in 1s (reminder 1).
    bob: /every 9:00 stand-up
    bot: I will remind you at 09:00 (Europe/Stockholm) (reminder 2).
    ada: /remind soon cake
    bot: I do not understand "soon". Try 30s, 5m, 2h or 1d.
    bot restarts
    bot to ada: tea is ready
    bob: /list
    bot: 2: stand-up, at 09:00 (Europe/Stockholm)
    bob: /cancel 2
    bot: Reminder 2 is cancelled.
    bob: /cancel 1
    bot: You have no reminder 1.
"""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from scheduler_async import At, Cron, Every, InvalidScheduleError, JobNotFoundError, Run, Schedule, Scheduler


class Bot:
    """Answers messages. Each user has a namespace, so that users cannot see or cancel the reminders of others."""

    def __init__(self, store: Path, numbers: count[int]) -> None:
        # A reminder that came due while the bot was down is sent late. Sent reminders are removed after a day.
        self.scheduler = Scheduler(store, purge_disabled_after="1d")
        self.scheduler.handler("remind")(self.remind)
        self.numbers = numbers
        self.sent = asyncio.Event()

    async def remind(self, run: Run) -> None:
        print(f"bot to {run.user_id}: {run.payload['text']}")
        self.sent.set()

    async def hear(self, user: str, message: str) -> None:
        print(f"{user}: {message}")
        print(f"bot: {await self.answer(user, message)}")

    async def answer(self, user: str, message: str) -> str:
        match message.split(maxsplit=2):
            case ["/remind", delay, text]:
                try:
                    wait = Every(delay).interval  # a schedule reads durations, and refuses nonsense
                except InvalidScheduleError:
                    return f'I do not understand "{delay}". Try 30s, 5m, 2h or 1d.'
                number = await self.add(user, At(datetime.now(UTC) + wait), text)
                return f"I will remind you in {delay} (reminder {number})."
            case ["/every", time, text]:
                hour, _, minute = time.partition(":")
                schedule = Cron(f"{int(minute)} {int(hour)} * * *", tz="Europe/Stockholm")
                number = await self.add(user, schedule, text)
                return f"I will remind you {schedule.describe()} (reminder {number})."
            case ["/list"]:
                jobs = await self.scheduler.list_jobs(namespace=f"user-{user}")
                waiting = [job for job in jobs if job.enabled]
                return "\n".join(f"{job.id}: {job.payload['text']}, {job.schedule.describe()}" for job in waiting)
            case ["/cancel", number]:
                try:
                    await self.scheduler.remove_job(number, namespace=f"user-{user}")
                except JobNotFoundError:
                    return f"You have no reminder {number}."
                return f"Reminder {number} is cancelled."
        return "Try /remind 5m text, /every 9:00 text, /list or /cancel 1."

    async def add(self, user: str, schedule: Schedule, text: str) -> str:
        job = await self.scheduler.add_job(
            schedule,
            handler="remind",
            id=str(next(self.numbers)),
            namespace=f"user-{user}",
            user_id=user,
            payload={"text": text},
        )
        return job.id


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        store, numbers = Path(directory, "reminders.db"), count(1)
        bot = Bot(store, numbers)
        # A scheduler accepts jobs before it is started. It just does not run them.
        await bot.hear("ada", "/remind 1s tea is ready")
        await bot.hear("bob", "/every 9:00 stand-up")
        await bot.hear("ada", "/remind soon cake")
        await bot.scheduler.stop()

        print("bot restarts")
        bot = Bot(store, numbers)
        async with bot.scheduler:
            await bot.sent.wait()
            await bot.hear("bob", "/list")
            await bot.hear("bob", "/cancel 2")
            await bot.hear("bob", "/cancel 1")


if __name__ == "__main__":
    asyncio.run(main())
