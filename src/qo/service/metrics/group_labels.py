"""The label `group`: the kind of a group with a reserved prefix, its own name for up to 200 others, else `other`."""

from __future__ import annotations

from collections.abc import Iterable

from qo.policy.groups import GLOBAL, KINDS, PROVIDERS, kind_of

MOST_BY_NAME = 200
"""How many groups have a label of their own, by HTTP.md. The kinds, `global` and `providers` are not counted."""
OTHER = "other"
RESERVED = frozenset({GLOBAL, PROVIDERS, *KINDS})


class GroupLabels:
    """A group keeps its label: a group that changed to or from `other` would take its counts along, and a counter would
    go down. So the groups that come first get names. Servers that met them in another order may differ in which they
    name."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def meet(self, groups: Iterable[str]) -> None:
        """Give those of the groups names that have none, in this order, while there are names left."""
        for group in groups:
            kind = kind_of(group)
            if len(self._named) < MOST_BY_NAME and kind not in RESERVED and kind != OTHER:
                self._named.add(kind)

    def of(self, group: str) -> str:
        """The label of a group that was met."""
        kind = kind_of(group)
        return kind if kind in RESERVED or kind in self._named else OTHER


def group_of(figure: str) -> str | None:
    """The group, or the kind of groups, that a figure of the store is about; None for any other figure."""
    what, _, rest = figure.partition(":")
    match what:
        case "rejected":
            return rest
        case "acquired":
            return rest.rpartition(":")[0]
        case _:
            return None
