"""The names of a group's figures. Groups of a reserved kind are summed under that kind; any other has its own."""

from __future__ import annotations

from qo.policy.groups import KINDS, kind_of

DEPTH = "depth"
PROMISE_KEPT, PROMISE_MISSED = "promise:kept", "promise:missed"
HIGHEST_WAIT_BUCKET_SECONDS = 65536
WAIT_BUCKETS_SECONDS = (0, *(1 << exponent for exponent in range(HIGHEST_WAIT_BUCKET_SECONDS.bit_length())))


def wait_bucket(waited_ms: int) -> int:
    """The wait in whole seconds, rounded up to a power of two; 0 for no wait."""
    if waited_ms <= 0:
        return 0
    seconds = -(-waited_ms // 1000)
    return min(1 << (seconds - 1).bit_length(), HIGHEST_WAIT_BUCKET_SECONDS)


def figures_of(group: str) -> list[str]:
    """The names of the figures that belong to this group alone."""
    if kind_of(group) != group or group in KINDS:
        return []
    return [f"rejected:{group}", *(f"acquired:{group}:{seconds}" for seconds in WAIT_BUCKETS_SECONDS)]


def own_group_of(figure: str) -> str | None:
    """The group that a figure belongs to alone; None for any other figure."""
    what, _, rest = figure.partition(":")
    group = {"rejected": rest, "acquired": rest.rpartition(":")[0]}.get(what)
    return None if group in KINDS else group
