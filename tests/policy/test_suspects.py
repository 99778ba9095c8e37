"""When a suspect runs alone, and how many suspects a worker runs at once."""

from __future__ import annotations

import pytest

from qo.policy.suspects import Allowance, suspicion_of
from qo.values import Suspicion


@pytest.mark.parametrize(
    ("attempts", "max_attempts", "suspicion"),
    [(1, 3, Suspicion.SUSPECT), (2, 3, Suspicion.LAST), (1, 2, Suspicion.LAST), (0, 1, Suspicion.LAST)],
)
def test_a_suspect_whose_next_start_is_its_last_runs_alone(
    attempts: int, max_attempts: int, suspicion: Suspicion
) -> None:
    assert suspicion_of(attempts=attempts, max_attempts=max_attempts) is suspicion


def test_twice_as_many_suspects_are_taken_each_time_that_number_ended() -> None:
    allowance, seen = Allowance(), []

    for _ in range(8):
        seen.append(allowance.suspects)
        allowance.note_end()

    assert seen == [1, 2, 2, 4, 4, 4, 4, 8]
