"""Typed payloads: a handler declares what it needs, and wrong payloads are refused when a job is added.

python examples/typed_payloads.py

It prints:

    Invoice 2026-001 over 99.50 EUR, due 2026-07-01, to ada
    Reminder 2 for order 17, attempt 1
    refused: the payload of invoice-2
    stored as: {'number': '2026-001', 'to': 'ada', 'amount': '99.50', 'due': '2026-07-01', 'currency': 'EUR'}
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, TypedDict

from scheduler_async import Manual, PayloadError, Run, Scheduler

scheduler = Scheduler(":memory:")


@dataclass(frozen=True)
class Invoice:
    """A dataclass may have fields that JSON has no type for: they are stored as text, and read back as themselves."""

    number: str
    to: str
    amount: Decimal
    due: date
    currency: Literal["EUR", "SEK"] = "EUR"


class Reminder(TypedDict):
    order: int
    count: int


@scheduler.handler("send-invoice")
async def send_invoice(invoice: Invoice) -> None:
    print(f"Invoice {invoice.number} over {invoice.amount} {invoice.currency}, due {invoice.due}, to {invoice.to}")


@scheduler.handler("remind")
async def remind(run: Run, reminder: Reminder) -> None:
    print(f"Reminder {reminder['count']} for order {reminder['order']}, attempt {run.attempt}")


async def main() -> None:
    async with scheduler:
        invoice = Invoice("2026-001", "ada", Decimal("99.50"), date(2026, 7, 1))
        job = await scheduler.add_job(Manual(), handler="send-invoice", id="invoice-1", payload=invoice)
        await scheduler.wait_for_run(await scheduler.trigger_job("invoice-1"))

        # What comes over HTTP or from a terminal is plain JSON, and is checked in the same way.
        await scheduler.add_job(Manual(), handler="remind", id="remind-17", payload={"order": 17, "count": 2})
        await scheduler.wait_for_run(await scheduler.trigger_job("remind-17"))

        try:
            await scheduler.add_job(Manual(), handler="send-invoice", id="invoice-2", payload={"number": "2026-002"})
        except PayloadError as error:  # as a text, it says what is missing
            print(f"refused: the {error.field} of invoice-2")

        print(f"stored as: {job.payload}")


if __name__ == "__main__":
    asyncio.run(main())
