"""What a job keeps of its past: its last states and stages, its last attempts, and the first promise.

Each is kept as lines of text in the job's row, so that a step adds one without reading the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from qo.job import Attempt, JobHistory, Promise, Reached, moment

KEPT_STATES = 32
KEPT_ATTEMPTS = 10

_encode = msgspec.json.Encoder().encode
_decode_attempt = msgspec.json.Decoder(tuple[int, str, dict[str, int], int, int, str, str]).decode


def with_line(lines: str, line: str, *, keep: int) -> str:
    """The lines and one more. The oldest is dropped when there would be more than `keep`."""
    if not lines:
        return line
    if lines.count("\n") + 1 >= keep:
        lines = lines.partition("\n")[2]
    return f"{lines}\n{line}"


def with_state(lines: str, status: str, at_ms: int) -> str:
    """No name of a state or stage has a line break."""
    return with_line(lines, f"{at_ms} {status}", keep=KEPT_STATES)


def with_attempt(
    lines: str,
    *,
    number: int,
    worker: str,
    slots: Mapping[str, int],
    started_ms: int,
    ended_ms: int,
    outcome: str,
    debug_id: str | None,
) -> str:
    attempt = _encode([number, worker, slots, started_ms, ended_ms, outcome, debug_id or ""]).decode()
    return with_line(lines, attempt, keep=KEPT_ATTEMPTS)


def promise_line(made_ms: int, lower_ms: int, upper_ms: int) -> str:
    return f"{made_ms} {lower_ms} {upper_ms}"


def made_at(promise: str) -> int:
    return int(promise.partition(" ")[0])


def is_kept(promise: str, now_ms: int) -> bool:
    """Whether a job that starts now starts within the range that was promised."""
    made, lower, upper = map(int, promise.split())
    return lower <= now_ms - made <= upper


def history_of(states: str, attempts: str, promise: str | None) -> JobHistory:
    return JobHistory(
        states=tuple(_reached(line) for line in _lines(states)),
        attempts=tuple(_attempt(line) for line in _lines(attempts)),
        promise=None if promise is None else _promise(promise),
    )


def _lines(text: str) -> list[str]:
    # Not `splitlines`, which also ends lines at characters that a name may have.
    return text.split("\n") if text else []


def _reached(line: str) -> Reached:
    at, _, status = line.partition(" ")
    return Reached(status=status, at=moment(int(at)))


def _attempt(line: str) -> Attempt:
    number, worker, slots, started, ended, outcome, debug_id = _decode_attempt(line)
    return Attempt(
        number=number,
        worker=worker,
        slots=slots,
        started_at=moment(started),
        ended_at=moment(ended),
        outcome=outcome,
        debug_id=debug_id or None,
    )


def _promise(line: str) -> Promise:
    made, lower, upper = map(int, line.split())
    return Promise(made_at=moment(made), lower_bound=lower / 1000, upper_bound=upper / 1000)
