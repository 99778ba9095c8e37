"""The delay before another attempt: 1 s, doubling to 10 minutes, with a jitter of 20 % (SPEC.md section 5)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qo.policy.retry import retry_delay_ms
from qo.settings import TEN_YEARS_SECS, RetrySettings

DEFAULTS = RetrySettings()
MIDDLE = 0.5
"""the draw that leaves a delay as it is"""

attempts = st.integers(1, 10**6)
draws = st.floats(0, 1)
any_settings = st.builds(
    RetrySettings,
    first_delay_secs=st.just(0) | st.floats(0.001, TEN_YEARS_SECS),
    delay_multiplier=st.integers(1, 100) | st.floats(1, 100),
    max_delay_secs=st.just(0) | st.floats(0.001, TEN_YEARS_SECS),
    jitter=st.floats(0, 1),
)


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (9, 256), (10, 512), (11, 600), (12, 600), (100, 600), (10**6, 600)],
)
def test_the_delay_is_a_second_and_doubles_to_ten_minutes(attempt: int, seconds: int) -> None:
    assert retry_delay_ms(attempt, DEFAULTS, drawn=MIDDLE) == seconds * 1000


@pytest.mark.parametrize(
    ("attempt", "drawn", "milliseconds"),
    [
        (1, 0.0, 800),
        (1, 0.25, 900),
        (1, 0.75, 1100),
        (1, 1.0, 1200),
        (3, 0.0, 3200),
        (3, 1.0, 4800),
        (11, 0.0, 480_000),
        (11, 1.0, 720_000),
    ],
)
def test_the_draw_places_it_evenly_within_twenty_percent(attempt: int, drawn: float, milliseconds: int) -> None:
    assert retry_delay_ms(attempt, DEFAULTS, drawn=drawn) == milliseconds


@given(attempts, draws)
def test_a_delay_stays_within_the_jitter_around_the_doubled_one(attempt: int, drawn: float) -> None:
    plain = min(1000 * 2 ** min(attempt - 1, 20), 600_000)

    assert round(plain * 0.8) <= retry_delay_ms(attempt, DEFAULTS, drawn=drawn) <= round(plain * 1.2)


@given(attempts, any_settings, draws)
def test_no_delay_is_negative_or_above_the_longest_with_its_jitter(
    attempt: int, settings: RetrySettings, drawn: float
) -> None:
    delay = retry_delay_ms(attempt, settings, drawn=drawn)

    assert isinstance(delay, int)
    assert 0 <= delay <= round(settings.max_delay_secs * (1 + settings.jitter) * 1000)


@given(st.integers(1, 2000), any_settings)
@example(100, RetrySettings(delay_multiplier=1.05))
def test_each_delay_is_the_last_delay_times_the_multiplier_up_to_the_longest(
    attempt: int, settings: RetrySettings
) -> None:
    longest = settings.max_delay_secs * 1000
    before = retry_delay_ms(attempt, settings, drawn=MIDDLE)
    after = retry_delay_ms(attempt + 1, settings, drawn=MIDDLE)

    # Each is rounded to a whole millisecond; the first one's rounding is multiplied too.
    rounding = 0.5 + 0.5 * settings.delay_multiplier
    assert after == pytest.approx(min(before * settings.delay_multiplier, longest), rel=1e-9, abs=rounding)


@pytest.mark.parametrize("multiplier", [1.01, 1.05, 1.1, 1.5, 2, 100])
def test_any_multiplier_above_one_reaches_the_longest_delay(multiplier: float) -> None:
    settings = RetrySettings(delay_multiplier=multiplier)

    assert retry_delay_ms(10_000, settings, drawn=MIDDLE) == 600_000


@given(attempts, draws)
def test_without_jitter_the_draw_changes_nothing(attempt: int, drawn: float) -> None:
    settings = RetrySettings(jitter=0)

    assert retry_delay_ms(attempt, settings, drawn=drawn) == retry_delay_ms(attempt, settings, drawn=MIDDLE)


@given(attempts, draws)
def test_a_multiplier_of_one_keeps_the_first_delay(attempt: int, drawn: float) -> None:
    settings = RetrySettings(first_delay_secs=5, delay_multiplier=1, jitter=0)

    assert retry_delay_ms(attempt, settings, drawn=drawn) == 5000


@given(attempts, draws)
def test_a_first_delay_of_zero_retries_at_once_however_often(attempt: int, drawn: float) -> None:
    assert retry_delay_ms(attempt, RetrySettings(first_delay_secs=0), drawn=drawn) == 0


def test_a_first_delay_above_the_longest_is_cut_to_it() -> None:
    settings = RetrySettings(first_delay_secs=900, max_delay_secs=600)

    assert retry_delay_ms(1, settings, drawn=MIDDLE) == 600_000
