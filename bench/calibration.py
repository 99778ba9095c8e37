"""Whether jobs start when their estimates say: three simulated days, and how fast estimates are made."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from bench.calibration_plot import draw_plot
from bench.scoring import Result
from bench.simulated_days import DAYS
from bench.simulation import LEASE_MS, play
from qo.policy.estimates.base import duration_of_task
from qo.policy.estimates.forecast import forecast_line
from qo.queue.estimator import Estimator
from qo.settings import Settings
from qo.store.sqlite import SQLiteStore
from qo.values import Average, Registration, Standing, Submission, TaskOptions

COVERAGE_AT_LEAST, COVERAGE_AT_MOST = 0.75, 0.90


async def report(*, hours: float = 24, seed: int = 1, plot: Path | None = None) -> None:
    await report_speed()
    print(f"\nfirst estimates against real waits, {hours:g} simulated hours each (80 % range; seed {seed})")
    results = []
    for make_day in DAYS.values():
        result = await play(make_day(hours, seed))
        print_result(result)
        results.append(result)
    if plot is not None:
        await asyncio.to_thread(plot.write_text, draw_plot(results), encoding="utf-8")
        print(f"  drawn in {plot}")


def print_result(result: Result) -> None:
    waits = sorted(promise.waited for promise in result.promises)
    median, longest_tenth = waits[len(waits) // 2], waits[len(waits) * 9 // 10]
    width, base_width = result.width(), result.base_width()
    print(f"  {result.day.name}: {result.jobs} jobs, {len(result.promises)} got an estimate, {result.replays} replays;")
    print(f"    they waited {median:.0f} s at the median, a tenth longer than {longest_tenth:.0f} s")
    print(
        f"    {result.coverage():.1%} started inside their range"
        f" ({COVERAGE_AT_LEAST:.0%} to {COVERAGE_AT_MOST:.0%} wanted), median width {width:.0f} s"
    )
    print(f"    from the shortest to the longest fifth: {' '.join(f'{c:.0%}' for c in result.coverage_by_wait())}")
    print(
        f"    base rule: {result.base_coverage():.1%} inside ±30 %; as many as above inside"
        f" ±{result.base_spread():.0%}, median width {base_width:.0f} s"
    )
    print(f"    width against the base rule's: {width / base_width:.2f} times (at most 1)")


async def report_speed(*, waiting: int = 10_000, rounds: int = 5) -> None:
    """Time a replay, its delay of the event loop and a look-up, with so many jobs in line of 500 limited users."""
    settings = Settings()
    store = await SQLiteStore.open(":memory:")
    tasks = tuple(TaskOptions(name=name, limit=20) for name in ("build", "mail", "scan"))
    await store.register(Registration(name="worker", tasks=tasks, capacity=50, lifetime_ms=LEASE_MS))
    average = [(Average(name=duration_of_task(task.name), first=60, weight=0.3), 60.0) for task in tasks]
    await store.observe(average)
    for first in range(0, waiting, 1000):
        await store.submit(
            [
                Submission(
                    id=f"job-{number}",
                    task=tasks[number % 3].name,
                    user=f"user-{number % 500}",
                    standing=Standing(tier="bootstrapper", user_limit=2),
                )
                for number in range(first, first + 1000)
            ]
        )
    estimator = Estimator(store, settings)
    situation = await estimator.read()
    replays = []
    for _ in range(rounds):
        began = time.thread_time()
        forecast_line(situation, settings)
        replays.append((time.thread_time() - began) * 1000)
    await estimator.refresh()
    began = time.perf_counter()
    for number in range(1000):
        estimator.estimate(f"job-{number}")
    look_up_ms = time.perf_counter() - began
    print(f"\nestimates with {waiting} waiting")
    print(f"  a replay, off the event loop: {min(replays):.0f} ms at best of {rounds} (under 100)")
    print(f"  reading an estimate: {look_up_ms:.3f} ms (under 1)")
    await store.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description="Calibration of estimates on simulated days.")
    arguments.add_argument("--hours", type=float, default=24)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plot", type=Path)
    chosen = arguments.parse_args()
    asyncio.run(report(hours=chosen.hours, seed=chosen.seed, plot=chosen.plot))


if __name__ == "__main__":
    main()
