"""When a job that failed is tried again."""

from __future__ import annotations

from qo.settings.sections import RetrySettings


def retry_delay_ms(attempt: int, settings: RetrySettings, *, drawn: float) -> int:
    """The wait after this attempt (1 is the first), doubling up to the longest.

    `drawn`, evenly from 0 to 1, places the wait within the jitter, so that jobs which failed together are not retried
    together.
    """
    try:
        grown = settings.first_delay_secs * float(settings.delay_multiplier) ** (attempt - 1)
    except OverflowError:
        grown = settings.max_delay_secs if settings.first_delay_secs else 0
    delay = min(grown, settings.max_delay_secs)
    return round(delay * (1 + settings.jitter * (2 * drawn - 1)) * 1000)
