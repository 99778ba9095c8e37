"""The snapshot of the reference model, which a store's whole state is compared with."""

from __future__ import annotations

from collections import Counter
from typing import Any

from qo.policy.ordering import priority_of
from tests.conformance.model.reads import Reads
from tests.conformance.model.state import JobRow, certain


class Snapshots(Reads):
    def snapshot(self) -> dict[str, Any]:
        state = self.state
        return {
            "jobs": {
                row.id: {
                    "job": self.as_job(row, with_history=True),
                    "key": row.key,
                    "parked": self.parked(row),
                    "due_at": row.due_at,
                    "steady_at": row.steady_at,
                    "start_by": row.start_by,
                    "steady_start_by": row.steady_start_by,
                    "overdue_message": row.overdue_message,
                    "quota_day": row.quota_day,
                    "deferred": row.deferred,
                    "boost": row.boost,
                    "iterations_batch": row.iterations_batch,
                    "aged_at": row.aged_at,
                    "reminded": row.reminded,
                    "ended_token": None if row.ended_token is None else str(row.ended_token),
                    "payload": row.payload,
                    "checkpoint": row.checkpoint,
                    "contact": row.contact,
                    "suspicion": int(row.suspicion),
                    "number": row.number,
                    "passed": row.passed,
                    "turn": row.turn,
                }
                for row in state.jobs.values()
            },
            "groups": {
                name: {
                    "limit": row.limit,
                    "source": None if row.source is None else int(row.source),
                    "paused": row.paused,
                    "closed_until": row.closed_until,
                }
                for name, row in state.groups.items()
                if row.is_set()
            },
            "slots": self.slots_by_group(),
            "leases": {
                str(token): {
                    "holder": lease.holder,
                    "job": lease.is_job,
                    "worker": lease.worker,
                    "claim": lease.claim,
                    "expires_at": lease.expires_at,
                }
                for token, lease in state.leases.items()
            },
            "tickets": {
                ticket.holder: {
                    "key": ticket.key,
                    "groups": ticket.groups,
                    "parked": self.parked(ticket),
                    "expires_at": ticket.expires_at,
                    "lease_ms": ticket.lease_ms,
                    "wait_ms": ticket.wait_ms,
                    "passed": ticket.passed,
                    "turn": ticket.turn,
                }
                for ticket in state.tickets.values()
            },
            "open": self.open_groups(),
            "states": self.counts(),
            "counts": dict(Counter(priority_of(certain(row.key)) for row in self.in_line())),
            "users": {name: (row.standing, row.pinned) for name, row in state.users.items()},
            "quota": dict(state.quota),
            "parents": dict(state.parents),
            "tasks": {
                task: (options.groups, options.max_attempts)
                for task, options in state.tasks.items()
                if options.groups or options.max_attempts
            },
            "workers": {
                name: {
                    "instance": row.instance,
                    "tasks": tuple(options.name for options in row.tasks),
                    "capacity": row.capacity,
                    "heard_at": row.heard_at,
                    "expires_at": row.expires_at,
                }
                for name, row in state.workers.items()
            },
            "events": list(state.events),
            "audit": list(state.audit),
            "series": dict(state.series),
            "averages": dict(state.averages),
            "clock": {
                "noted_at": state.noted_at,
                "lease_ms": state.lease_ms,
                "turn_after": state.turn_after,
                "uncounted_ms": state.uncounted_ms,
                "fallen_ms": state.fallen_ms,
                "renewed_since_gap": state.renewed_since_gap,
                "token_at_gap": state.token_at_gap,
                "next_sequence": state.next_sequence,
                "last_token": state.last_token,
            },
        }

    def slots_by_group(self) -> dict[str, dict[int, str]]:
        by_group: dict[str, dict[int, str]] = {}
        for token, lease in self.state.leases.items():
            for group, number in lease.slots.items():
                by_group.setdefault(group, {})[number] = str(token)
        return by_group

    def open_groups(self) -> list[tuple[str, int, str, int]]:
        """The groups that have room and something parked, by task ("" for callers) and suspicion, with the first key
        there."""
        heads: dict[tuple[str, int, str], int] = {}
        for waiting in self.state.in_lanes():
            task, suspicion = (waiting.task, int(waiting.suspicion)) if isinstance(waiting, JobRow) else ("", 0)
            group = self.parked(waiting)
            if group is not None and self.has_room(group):
                key = certain(waiting.key)
                heads[task, suspicion, group] = min(heads.get((task, suspicion, group), key), key)
        return sorted((task, suspicion, group, key) for (task, suspicion, group), key in heads.items())
