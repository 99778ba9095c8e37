"""The messages between a worker and one of its processes. Each is sent with its length before it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from qo.job import Job
from qo.values import Advance
from qo.worker.processes.failures import Failure
from qo.worker.processes.reference import Reference

LENGTH_BYTES = 4


class Run(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To the process: run this job. It is answered by `Returned` or `Raised`."""

    handler: Reference
    task: str
    stages: tuple[str, ...]
    job: Job
    token: str
    slots: dict[str, int]
    payload: bytes
    checkpoint: bytes | None


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """To the process: the answer to `Report` or `Extend`."""

    expires_at: datetime | None = None
    failure: Failure | None = None


class Report(msgspec.Struct, frozen=True, tag=True):
    """From the process: the handler reports a stage, progress, a checkpoint or an iteration."""

    advance: Advance


class Extend(msgspec.Struct, frozen=True, tag=True):
    """From the process: the handler wants its lease to end later."""

    milliseconds: int


class Returned(msgspec.Struct, frozen=True, tag=True):
    """From the process: the handler has returned this, as JSON."""

    result: bytes | None


class Raised(msgspec.Struct, frozen=True, tag=True):
    """From the process: the handler has raised this."""

    failure: Failure


ToProcess = Run | Answer
FromProcess = Report | Extend | Returned | Raised

decode_in_process = msgspec.msgpack.Decoder(ToProcess).decode
decode_in_worker = msgspec.msgpack.Decoder(FromProcess).decode
_encode = msgspec.msgpack.Encoder().encode


def packed(message: Any) -> bytes:
    encoded = _encode(message)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded
