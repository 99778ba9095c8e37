"""The flow of the last minute: how many jobs joined, started, ended and failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from qo.job import ENDED, State
from qo.values import SeriesPoint

MINUTE_MS = 60_000


class Flow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    joined: int
    started: int
    ended: int
    """How many jobs ended, in whatever way."""
    failed: int


def flow_of(series: Sequence[SeriesPoint], *, now_ms: int) -> Flow:
    """The last 60 seconds. Figures are kept by the minute of the clock, so the minute before the present one counts
    with the part of it that is less than 60 seconds ago."""
    present = now_ms // MINUTE_MS
    part_of_last = 1 - now_ms % MINUTE_MS / MINUTE_MS
    counts: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    for point in series:
        what = _counted_as(point.name)
        if point.minute >= present:
            counts.update(dict.fromkeys(what, point.count))
        elif point.minute == present - 1:
            parts.update(dict.fromkeys(what, point.count))
    return Flow(**{name: counts[name] + round(parts[name] * part_of_last) for name in Flow.__struct_fields__})


def _counted_as(figure: str) -> tuple[str, ...]:
    name, _, rest = figure.partition(":")
    if figure == "submitted":
        return ("joined",)
    if name == "wait":
        return ("started",)
    if name == "ended" and rest in ENDED:
        return ("ended", "failed") if rest == State.FAILED else ("ended",)
    return ()
