"""Tokens of a limiter in process grow for ever, also when its program is started again."""

from __future__ import annotations

import subprocess
import sys
import time

import qo

PROGRAM = """
import qo

limiter = qo.Limiter({"ollama": 1})
for _ in range(2000):
    with limiter.acquire("ollama") as lease:
        pass
print(lease.token)
"""


def last_token_of_a_start() -> int:
    return int(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True, text=True).stdout)


def test_tokens_of_the_next_start_are_greater_than_all_before() -> None:
    before = last_token_of_a_start()
    with qo.Limiter({"ollama": 1}).acquire("ollama") as lease:
        first_of_the_next = int(lease.token)

    assert first_of_the_next > before


def test_tokens_begin_with_the_time_of_day_so_that_they_grow_when_the_machine_is_started_again() -> None:
    """A clock that begins anew with the machine, or a count from 0, would not do."""
    microseconds = time.time_ns() // 1000
    with qo.Limiter({"ollama": 1}).acquire("ollama") as lease:
        assert int(lease.token) > microseconds
