"""What does it cost to be watched? The same runs with and without OpenTelemetry, by turns, in one process.

Each round lets the same jobs run on a virtual clock in a store in memory, where nothing else takes long: the most that
telemetry can matter. "Watched" is a span for each run that is kept in a batch, and all metrics.

    python benchmarks/telemetry.py [--rounds 15] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from scheduler_async import Every, Scheduler
from scheduler_async.telemetry import instrument
from scheduler_async.testing import VirtualClock

JOBS, RUNS = 20, 50


class Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        return SpanExportResult.SUCCESS


async def seconds(path: Path | str, watched: tuple[TracerProvider, MeterProvider] | None) -> float:
    """How long JOBS jobs take to run RUNS times each."""
    clock = VirtualClock()
    scheduler = Scheduler(path, clock=clock)

    @scheduler.handler("work")
    async def work() -> None: ...

    if watched is not None:
        instrument(scheduler, tracer_provider=watched[0], meter_provider=watched[1])
    async with scheduler:
        for number in range(JOBS):
            await scheduler.add_job(Every("1m"), handler="work", id=str(number))
        begun = perf_counter()
        for _ in range(RUNS):
            await clock.advance("1m")
        took = perf_counter() - begun
        assert scheduler.state().trigger_count == JOBS * RUNS
    return took


async def measure(rounds: int) -> dict[str, float]:
    tracing = TracerProvider()
    tracing.add_span_processor(BatchSpanProcessor(Nowhere()))
    providers = tracing, MeterProvider([InMemoryMetricReader()])
    plain, watched = [], []
    for _ in range(rounds):
        plain.append(await seconds(":memory:", None))
        watched.append(await seconds(":memory:", providers))
    tracing.shutdown()
    providers[1].shutdown()
    micros = 1_000_000 / (JOBS * RUNS)
    return {
        "plain_us_per_run": median(plain) * micros,
        "watched_us_per_run": median(watched) * micros,
        "ratio": median(b / a for a, b in zip(plain, watched, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    found = asyncio.run(measure(options.rounds))

    print(f"Python {platform.python_version()}, {options.rounds} rounds of {JOBS * RUNS} runs, medians")
    print(f"not watched {found['plain_us_per_run']:7.0f} µs per run")
    print(f"watched     {found['watched_us_per_run']:7.0f} µs per run, {found['ratio']:.2f} times as long")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
