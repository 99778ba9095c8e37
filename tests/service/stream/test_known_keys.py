"""Which keys of jobs in line a process knows."""

from __future__ import annotations

import pytest

from qo.service.stream import known_keys
from qo.service.stream.known_keys import KnownKeys
from qo.values import InLine


def line(**keys: int) -> list[InLine]:
    return [InLine(id=name, task="build", key=key, groups=()) for name, key in keys.items()]


def test_a_change_answers_the_key_that_the_job_had() -> None:
    known = KnownKeys(line(a=1))

    assert known.change("a", 5) == 1
    assert known.change("a", None) == 5
    assert known.change("a", None) is None
    assert known.change("new", 7) is None


def test_a_reading_adds_jobs_that_were_too_far_back_when_the_next_one_comes() -> None:
    known = KnownKeys(line(a=1))
    known.take(line(a=1, b=2))

    assert known.get("b") is None
    known.take(line(a=1, b=2))
    assert known.get("b") == 2


@pytest.mark.parametrize("key", [9, None])
def test_a_reading_does_not_bring_back_what_changed_meanwhile(key: int | None) -> None:
    known = KnownKeys(line(a=1))
    known.change("a", key)
    known.take(line(a=1))
    known.take([])

    assert known.get("a") == key


def test_those_of_the_front_of_the_line_are_kept_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_keys, "MOST_KEYS", 3)
    known = KnownKeys(line(front=1))
    known.change("b", 2)
    known.take(line(front=1))
    known.take(line(front=1))
    for name, key in (("c", 3), ("d", 4)):
        known.change(name, key)

    assert [known.get(name) for name in ("front", "b", "c", "d")] == [1, None, 3, 4]
