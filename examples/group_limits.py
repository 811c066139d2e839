"""Limits per group: mails go out two at a time, in all processes together, and other jobs do not wait for them.

python examples/group_limits.py

It prints:

    report-1 has started
    6 mails were sent, at most 2 at once
    report-1 started before the last mail
    first: the urgent mail
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from scheduler_async import At, JobSpec, Run, Scheduler


class Office:
    """Sends mails and writes reports, and counts how many mails are sent at once."""

    def __init__(self) -> None:
        self.at_once = self.most = 0
        self.order: list[str] = []
        self.mails_are_sent = asyncio.Event()

    async def send_mail(self, run: Run) -> None:
        self.order.append(run.job_id)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.2)
        self.at_once -= 1
        if sum(job_id.startswith("mail") for job_id in self.order) == 6 and not self.at_once:
            self.mails_are_sent.set()

    async def write_report(self, run: Run) -> None:
        print(f"{run.job_id} has started")
        self.order.append(run.job_id)


async def main() -> None:
    office = Office()
    # Two mails at once in each namespace, and five in all namespaces together. A number instead of a dict would limit
    # every group.
    scheduler = Scheduler(":memory:", group_limits={"mail": 2, "*/mail": 5})
    scheduler.handler("send-mail")(office.send_mail)
    scheduler.handler("write-report")(office.write_report)

    async with scheduler:
        now = At(datetime.now(UTC) + timedelta(seconds=0.5))
        mails = [
            JobSpec(
                now, handler="send-mail", id=f"mail-{number}", group="mail", priority="high" if number == 6 else "low"
            )
            for number in range(1, 7)
        ]
        await scheduler.add_jobs([*mails, JobSpec(now, handler="write-report", id="report-1")])
        await office.mails_are_sent.wait()

    print(f"{len(office.order) - 1} mails were sent, at most {office.most} at once")
    print(f"report-1 started before {'the last mail' if office.order[-1] != 'report-1' else 'nothing'}")
    first = next(job_id for job_id in office.order if job_id.startswith("mail"))
    print(f"first: the {'urgent' if first == 'mail-6' else 'ordinary'} mail")


if __name__ == "__main__":
    asyncio.run(main())
