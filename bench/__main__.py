"""`make bench`: every figure, in one run. `--quick` with fewer jobs, to see that it works."""

from __future__ import annotations

import asyncio
import sys

from bench import (
    calibration,
    flat_claims,
    history_speed,
    http_speed,
    http_watchers,
    lanes,
    limiter_speed,
    redis_speed,
    runtime_speed,
    store_speed,
    wake_ups,
)


async def main(*, quick: bool) -> None:
    print(f"one synchronous 4 KiB write on this disk: {store_speed.disk_sync_ms():.2f} ms")
    best, median = store_speed.cpu_ms()
    print(f"a fixed piece of Python on this processor: {best:.0f} ms at best, {median:.0f} ms at the median")
    await store_speed.report(jobs=500 if quick else 5000)
    await runtime_speed.report(jobs=1000 if quick else 10_000)
    if quick:
        await redis_speed.report(jobs=1000, many=5000, parked=1000)
    else:
        await redis_speed.report()
    if quick:
        await http_speed.report(lists=5, jobs=50, rounds=3)
    else:
        await http_speed.report()
    await http_watchers.report(watchers=200 if quick else 1000, rounds=1 if quick else 3)
    await history_speed.report(**{"rounds": 2, "jobs": 500, "records": 1000} if quick else {})
    await lanes.report()
    await wake_ups.report(rounds=5 if quick else 30)
    await limiter_speed.report(rounds=5 if quick else 60)
    await calibration.report(hours=2 if quick else 24)
    await flat_claims.report_positions(waiting=1000 if quick else 10_000)
    await flat_claims.report_relimiting(parked=2000 if quick else 100_000)
    await flat_claims.report(many=5000 if quick else 1_000_000, parked=1000 if quick else 100_000)


asyncio.run(main(quick="--quick" in sys.argv))
