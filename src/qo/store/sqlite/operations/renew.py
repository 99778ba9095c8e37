"""renew: keep leases, tickets and a worker's registration alive.

Writes   ends of leases and tickets, the worker's; the time noted
Answers  for each lease, and then for the registration, its new end, or that it is lost; whether a cancel is wanted
Events   none

A lost lease is reported and never added back: that would make two owners.
"""

from __future__ import annotations

from collections.abc import Sequence

from qo.job import moment
from qo.store.sqlite.shared import sql
from qo.store.sqlite.shared.counted_time import counted_now, note_renewal, note_time, on_the_clock
from qo.store.sqlite.shared.step import Step
from qo.values import Held, Renewal, Renewed

LONGEST_TOKEN = 18
"""digits: what SQLite can surely hold, and microseconds for the next thirty thousand years"""


def renew(
    step: Step,
    renewals: Sequence[Renewal],
    *,
    worker: str | None = None,
    instance: str = "",
    tickets: Sequence[str] = (),
) -> Renewed:
    ends_gap = note_time(step)
    for holder in tickets:
        step.db.execute("UPDATE ticket SET expires_at = ? + wait_ms WHERE holder = ?", (counted_now(step), holder))
    return Renewed(
        held=tuple(_renew(step, renewal, ends_gap=ends_gap) for renewal in renewals),
        registration=None if worker is None else _renew_registration(step, worker, instance),
        now_ms=step.now,
    )


def _renew(step: Step, renewal: Renewal, *, ends_gap: bool) -> Held:
    lease = _find_lease(step, renewal.holder, renewal.token)
    if lease is None:
        return Held(holder=renewal.holder, token=renewal.token, lost=True)
    token, number, expires_at = lease
    if renewal.lease_ms:
        expires_at = max(expires_at, counted_now(step) + renewal.lease_ms)
    expires_at += renewal.extend_ms
    note_renewal(step, renewal.lease_ms, ends_gap=ends_gap)
    step.db.execute("UPDATE lease SET expires_at = ? WHERE token = ?", (expires_at, token))
    cancel_wanted = sql.value(step.db, "SELECT cancel_wanted FROM job WHERE number = ?", (number,))
    return Held(
        holder=renewal.holder,
        token=renewal.token,
        cancel_wanted=bool(cancel_wanted),
        expires_at=moment(on_the_clock(step, expires_at)),
    )


def _renew_registration(step: Step, worker: str, instance: str) -> Held:
    expires_at = sql.value(
        step.db,
        "UPDATE worker SET expires_at = ?1 + lifetime_ms, heard_at = ?1 WHERE name = ?2 AND instance = ?3"
        " RETURNING expires_at",
        (step.now, worker, instance),
    )
    if expires_at is None:
        return Held(holder=worker, token=instance, lost=True)
    return Held(holder=worker, token=instance, expires_at=moment(expires_at))


def _find_lease(step: Step, holder: str, token: str) -> tuple[int, int | None, int] | None:
    """Token, job number and end of a lease that this holder owns under this token."""
    if not (token.isascii() and token.isdigit() and len(token) <= LONGEST_TOKEN):
        return None  # never given by this store
    found: tuple[int, int | None, int] | None = sql.row(
        step.db, "SELECT token, job, expires_at FROM lease WHERE holder = ? AND token = ?", (holder, int(token))
    )
    return found
