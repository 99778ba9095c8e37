"""The limits and pauses of groups, as a queue's users and operators see and change them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from qo.policy.checks import check_flag, check_group
from qo.queue.base import QueueBase
from qo.values import GroupStatus, Limit, LimitIgnored, Source, Unlimited

log = logging.getLogger("qo.queue")


class Limiting(QueueBase):
    """The part of `Queue` that limits groups."""

    _warned: set[LimitIgnored]

    async def pause(self, group: str, *, by: str | None = None) -> None:
        """Let no further job or caller start in this group until it is resumed."""
        await self.store_here.set_paused(group, True, by=by)

    async def resume(self, group: str, *, by: str | None = None) -> None:
        """End a pause. Resuming a group that is not paused is harmless."""
        await self.store_here.set_paused(group, False, by=by)

    async def set_limit(self, group: str, slots: int, by: str | None = None) -> None:
        """Limit a group, as an operator: this wins over every other source."""
        await self.store_here.set_limits([Limit(group=group, slots=slots, source=Source.OPERATOR)], by=by)

    async def remove_limit(self, group: str, by: str | None = None) -> None:
        """Leave the group unlimited until a limit is set again."""
        await self.store_here.set_limits([Unlimited(group=group)], by=by)

    async def limit(self, group: str) -> GroupStatus:
        """A group's limit, the holders of its slots, and how many jobs and callers wait for one."""
        check_group(group)
        return (await self.store_here.groups([group]))[0]

    async def limits(self) -> list[GroupStatus]:
        """All groups that have a limit, a pause or holders, by name, without their slots."""
        return list(await self.store_here.groups())

    async def release_slot(self, group: str, slot_id: int, by: str | None = None, force: bool = False) -> str:
        """Take a slot, and with it the whole lease, from its holder. Returns the holder's name.

        A job goes back to its place in line with an attempt spent. Without `force` this works only on a lease that has
        run out.
        """
        check_flag("force", force)
        return await self.store_here.revoke(group, slot_id, force=force, by=by)

    def configured_limits(self) -> tuple[Limit, ...]:
        """The limits in the settings, except for groups whose slots are in a bucket. Workers that register and
        `qo apply` write them to the store."""
        concurrency = self.settings.concurrency
        kept_elsewhere = concurrency.shared_groups if concurrency.store is not None else ()
        return tuple(
            Limit(group=group, slots=slots, source=Source.CONFIGURATION)
            for group, slots in concurrency.limits.items()
            if group not in kept_elsewhere
        )

    def warn_of_ignored(self, ignored: Sequence[LimitIgnored]) -> None:
        """Log each limit that a stronger source keeps out, once."""
        for each in ignored:
            if each not in self._warned:
                self._warned.add(each)
                log.warning(
                    "the limit %d of group %s wanted by a %s is not used: the %s set %d",
                    each.wanted.slots,
                    each.wanted.group,
                    each.wanted.source.name.lower(),
                    each.in_force.source.name.lower(),
                    each.in_force.slots,
                )
