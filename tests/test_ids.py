from __future__ import annotations

import time
from itertools import pairwise

import pytest

from qo.ids import new_debug_id, new_id, new_secret

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def read(text: str) -> int:
    number = 0
    for character in text:
        number = number * 32 + CROCKFORD.index(character)
    return number


def test_an_id_is_a_ulid_of_the_present_millisecond() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    assert len(made) == 26
    assert before <= read(made[:10]) <= time.time_ns() // 1_000_000


def test_ids_sort_by_the_time_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for milliseconds in (0, 1, 31, 32, 1_794_856_975_872, 1_794_856_975_873, (1 << 48) - 1):
        monkeypatch.setattr(time, "time_ns", lambda now=milliseconds: now * 1_000_000)
        made.append(new_id())
        assert read(made[-1][:10]) == milliseconds
    assert all(earlier < later for earlier, later in pairwise(made))


def test_every_random_character_takes_every_value_and_no_two_ids_are_the_same() -> None:
    made = [new_id() for _ in range(2000)]
    assert len(set(made)) == len(made)
    assert all({each[place] for each in made} == set(CROCKFORD) for place in range(10, 26))


def test_a_debug_id_is_ten_characters_that_cannot_be_misread() -> None:
    made = [new_debug_id() for _ in range(2000)]
    assert {len(each) for each in made} == {10}
    assert set("".join(made)) == set(CROCKFORD)
    assert len(set(made)) == len(made)


def test_a_secret_is_32_bytes_of_which_every_one_takes_very_many_values() -> None:
    made = [new_secret() for _ in range(2000)]
    assert {len(each) for each in made} == {32}
    assert len(set(made)) == len(made)
    assert all(len({each[place] for each in made}) > 200 for place in range(32))
