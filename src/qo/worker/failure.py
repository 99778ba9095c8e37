"""Reporting a failure: users see a friendly sentence and a redacted detail, the log has everything."""

from __future__ import annotations

import logging
import os
import traceback

import msgspec

from qo.ids import new_debug_id
from qo.job import Job, JobError
from qo.policy.redact.redact import redact, secret_values

log = logging.getLogger("qo.worker")

DETAIL_CHARACTERS = 2_000
MESSAGE_CHARACTERS = 500
LOGGED_CHARACTERS = 64_000
REDACTED_CHARACTERS = 20_000
CAUSES_SHOWN = 5


def report_failure(error: BaseException, job: Job, payload: bytes, *, message: str | None = None) -> JobError:
    """Log everything under a new debug id, and return the error that a user may see.

    `message` is a sentence meant for the user; without one they read that something went wrong.
    """
    debug_id = new_debug_id()
    log.error("%s %s failed (debug_id %s)\n%s", job.task, job.id, debug_id, _cut(_full_text(error), LOGGED_CHARACTERS))
    return _shown(error, job, payload, message=message, debug_id=debug_id)


def report_request(
    error: BaseException, job: Job, payload: bytes, *, request: str, level: int, message: str | None = None
) -> JobError:
    """The same for an error that a handler raised on purpose: one line in the log, and a traceback at level DEBUG."""
    debug_id = new_debug_id()
    _, *causes = _chain(error)
    because = f" (because of {'; '.join(causes)})" if causes else ""
    line = " ".join(f"{_text(error)}{because}".split())
    log.log(level, "%s %s %s (debug_id %s): %s", job.task, job.id, request, debug_id, _cut(line, DETAIL_CHARACTERS))
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s %s (debug_id %s)\n%s", job.task, job.id, debug_id, _cut(_full_text(error), LOGGED_CHARACTERS))
    return _shown(error, job, payload, message=message, debug_id=debug_id)


def _shown(error: BaseException, job: Job, payload: bytes, *, message: str | None, debug_id: str) -> JobError:
    secrets = _secrets_of_environment() | _secrets_of_payload(payload)
    return JobError(
        message=_visible(message or f"Something went wrong while {job.task} was running.", MESSAGE_CHARACTERS, secrets),
        detail=_visible("\n".join(_chain(error)), DETAIL_CHARACTERS, secrets),
        debug_id=debug_id,
    )


def _visible(text: str, characters: int, secrets: frozenset[str]) -> str:
    # Redacted before it is cut: the halves of a secret that is cut in two would not be recognised. The first cut only
    # bounds the work, and the text around it is never shown.
    return _cut(redact(_storable(_cut(text, REDACTED_CHARACTERS)), secrets=secrets), characters)


def _chain(error: BaseException) -> list[str]:
    """Return the error and its causes, each as type and text: no frames, no locals, no source."""
    lines: list[str] = []
    pending = [error]
    while pending and len(lines) < CAUSES_SHOWN:
        current = pending.pop(0)
        lines.append(f"{type(current).__name__}: {_cut(_text(current), REDACTED_CHARACTERS)}")
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions[:CAUSES_SHOWN]
        cause = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
        if cause is not None:
            pending.append(cause)
    return lines


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # The handler's own class failed to describe itself; only its type is known.
        return "(its text cannot be read)"


def _full_text(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return f"{type(error).__name__}: {_text(error)} (its traceback cannot be read)"


def _cut(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]} … ({len(text) - characters} characters left out) … {text[-half:]}"


def _storable(text: str) -> str:
    return text.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


_seen: tuple[dict[str, str], frozenset[str]] = ({}, frozenset())
"""The last environment, and all secrets found so far. Replaced together, because several threads report failures."""


def _secrets_of_environment() -> frozenset[str]:
    """Return the secrets of the present environment, and of earlier ones in which a failure was reported.

    Searching for secrets takes ten times as long as comparing environments, so it is done only after a change.
    """
    global _seen
    seen, secrets = _seen
    environment = dict(os.environ)
    if environment != seen:
        secrets |= secret_values(environment)
        _seen = (environment, secrets)
    return secrets


def _secrets_of_payload(payload: bytes) -> frozenset[str]:
    try:
        data = msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return frozenset()  # not JSON, which may be why the job failed
    return secret_values(data) if isinstance(data, dict) else secret_values({"data": data})
