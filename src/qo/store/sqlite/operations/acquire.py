"""acquire, release: slots without a job.

Writes   tickets, leases, slots
Answers  acquire: what each holder has now. release: whether it was theirs
Events   granted, for each slot that is handed over to a waiting caller
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.job import moment
from qo.policy.ordering import drawn_place, order_key
from qo.store.sqlite.operations.catch_up import catch_up
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import counted_now, on_the_clock
from qo.store.sqlite.shared.hand_over import drop_ticket, hand_over
from qo.store.sqlite.shared.lanes import TICKETS
from qo.store.sqlite.shared.lease import end_leases
from qo.store.sqlite.shared.rows import to_json
from qo.store.sqlite.shared.step import Step
from qo.values import Grant, Ticket


def acquire(step: Step, tickets: Sequence[Ticket]) -> list[Grant]:
    if tickets:
        catch_up(step)
    asking = set()
    for ticket in tickets:
        asking.add(ticket.holder)
        token, _, is_in_line = _what_it_has(step, ticket.holder)
        if is_in_line:
            _renew(step, ticket)
        elif token is None:
            _stand_in_line(step, ticket)
        hand_over(step, asking=asking)
        if ticket.wait_ms == 0:
            _withdraw(step, ticket.holder)
    return [_grant_of(step, ticket.holder) for ticket in tickets]


def _what_it_has(step: Step, holder: str) -> tuple[int | None, int, int]:
    """The token and the end of the holder's lease, and whether it has a ticket."""
    held = "FROM lease WHERE holder = ?1 AND job IS NULL"
    found: tuple[int | None, int, int] = sql.row(
        step.db,
        f"SELECT (SELECT token {held}), (SELECT expires_at {held}), EXISTS (SELECT 1 FROM ticket WHERE holder = ?1)",
        (holder,),
    )
    return found


def _grant_of(step: Step, holder: str) -> Grant:
    token, expires_at, is_in_line = _what_it_has(step, holder)
    if token is None:
        return Grant(holder=holder, waiting=bool(is_in_line))
    ends_at = moment(on_the_clock(step, expires_at))
    return Grant(holder=holder, token=str(token), slots=step.groups.held_by(token), expires_at=ends_at)


def _renew(step: Step, ticket: Ticket) -> None:
    step.db.execute(
        "UPDATE ticket SET wait_ms = ?, lease_ms = ?, expires_at = ? WHERE holder = ?",
        (ticket.wait_ms, ticket.lease_ms, counted_now(step) + ticket.wait_ms, ticket.holder),
    )


def _stand_in_line(step: Step, ticket: Ticket) -> None:
    key = order_key(ticket.priority, drawn_place(step.draw_sequence(), 0))
    groups = to_json(ticket.groups)
    entry = step.lanes.enter(TICKETS, groups, ticket.holder, key, lambda: ticket.groups)
    step.db.execute(
        "INSERT INTO ticket (holder, key, groups, first, parked, expires_at, lease_ms, wait_ms, worker, joined_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            ticket.holder,
            key,
            groups,
            entry.first or None,
            entry.parked,
            counted_now(step) + ticket.wait_ms,
            ticket.lease_ms,
            ticket.wait_ms,
            ticket.worker,
            step.now,
        ),
    )


def release(step: Step, holders: Sequence[tuple[str, str | None]]) -> list[bool]:
    answers = [_release(step, holder, token) for holder, token in holders]
    hand_over(step)
    return answers


def _release(step: Step, holder: str, token: str | None) -> bool:
    held: int | None = sql.value(step.db, "SELECT token FROM lease WHERE holder = ? AND job IS NULL", (holder,))
    if held is not None and token in (None, str(held)):
        end_leases(step, [held])
        return True
    return token is None and held is None and _withdraw(step, holder)


def _withdraw(step: Step, holder: str) -> bool:
    ticket = sql.row(step.db, "SELECT groups FROM ticket WHERE holder = ?", (holder,))
    if ticket is None:
        return False
    drop_ticket(step, holder, ticket[0])
    return True
