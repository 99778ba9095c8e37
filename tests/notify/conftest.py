"""A notifier that does not sleep, the errors it logs, and servers for it to call."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qo.notify.notifier import Notifier
from qo.settings import NotifySettings
from tests.notify.local_servers import PATIENCE_SECS, Receiver, serving
from tests.notify.notifying import NOW, Pauses


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def notifier(pauses: Pauses) -> Callable[..., Notifier]:
    def make(**settings: Any) -> Notifier:
        settings.setdefault("timeout_secs", PATIENCE_SECS)
        return Notifier(NotifySettings(**settings), sleep=pauses, clock=lambda: NOW)

    return make


@pytest.fixture
def errors(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns the sentences logged as errors so far, and checks that no secret is in the log."""
    caplog.set_level(logging.DEBUG, logger="qo.notify")

    def logged() -> list[str]:
        records = [record for record in caplog.records if record.name == "qo.notify"]
        assert all("s3cret" not in record.getMessage() for record in records)
        assert all(record.exc_info is None for record in records)
        return [record.getMessage() for record in records if record.levelno == logging.ERROR]

    return logged


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serving(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
