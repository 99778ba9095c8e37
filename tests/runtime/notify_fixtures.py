"""A notifier that does not sleep, what it logs, and where it may call.

A test module imports the fixtures it uses, and `pauses_fixture` with `notifier_fixture`. Their functions
are not called like the fixtures, so that an argument of a test does not hide an import.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator

import pytest
from local_servers import PATIENCE_SECS, Receiver, serving
from notifying import NOW, Pauses

from qo.runtime.notifier import Notifier
from qo.settings import NotifySettings


@pytest.fixture(name="pauses")
def pauses_fixture() -> Pauses:
    return Pauses()


@pytest.fixture(name="notifier")
def notifier_fixture(pauses: Pauses) -> Callable[..., Notifier]:
    def make(**settings: object) -> Notifier:
        settings.setdefault("timeout_secs", PATIENCE_SECS)
        return Notifier(NotifySettings(**settings), sleep=pauses, clock=lambda: NOW)

    return make


@pytest.fixture(name="errors")
def errors_fixture(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The sentences logged as errors so far. Whatever happened, no secret is in the log."""
    caplog.set_level(logging.DEBUG, logger="qo.notify")

    def logged() -> list[str]:
        records = [record for record in caplog.records if record.name == "qo.notify"]
        assert all("s3cret" not in record.getMessage() for record in records)
        assert all(record.exc_info is None for record in records)
        return [record.getMessage() for record in records if record.levelno == logging.ERROR]

    return logged


@pytest.fixture(name="receiver")
def receiver_fixture() -> Iterator[Receiver]:
    with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture(name="closed_port")
def closed_port_fixture() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
