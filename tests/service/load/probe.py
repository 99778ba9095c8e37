"""Calls the API once every few milliseconds until its standard input ends, then says how long the slowest took.

probe.py URL JOB     a process of its own, so that what it measures does not wait for the test's other clients
"""

from __future__ import annotations

import statistics
import sys
import threading
import time

import httpx

PAUSE_SECONDS = 0.005
WARM_AFTER = 20
"""The first calls connect, and fill caches on both sides."""


def main(url: str, job_id: str) -> None:
    is_over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.readline()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    seconds: list[float] = []
    with httpx.Client(base_url=url, timeout=30, verify=False) as client:
        for _ in range(WARM_AFTER):
            client.get(f"/api/jobs/{job_id}").raise_for_status()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not is_over.wait(PAUSE_SECONDS):
            began = time.perf_counter()
            client.get(f"/api/jobs/{job_id}").raise_for_status()
            seconds.append(time.perf_counter() - began)
    sys.stdout.write(f"p99 {statistics.quantiles(seconds, n=100)[98]} of {len(seconds)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
