"""A store's client: calls to the server from any event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from qo.forking import leave_behind, when_forked
from qo.store.redis.server.address import ServerAddress, prefix_of
from qo.store.redis.server.availability import Availability
from qo.store.redis.server.connection import Argument, ServerRefused
from qo.store.redis.server.functions import Function
from qo.store.redis.server.nodes import Nodes
from qo.store.redis.server.pipeline import Pipeline
from qo.store.redis.server.server_state import ServerState

PATIENCE_SECONDS = 10.0
"""How long a call is retried before it fails, unless the call gives another time."""


class Client:
    """The client of one store. May be used from several event loops at once; each has a connection of its own.

    A call is sent again when its reply was lost or the server was not ready. It may take effect twice, so every
    operation must be safe to repeat.
    """

    def __init__(self, url: str, *, namespace: str = "default", patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Connects at the first call. Raises `SettingsError` for a url or a namespace that cannot be used."""
        self.namespace = namespace
        self.prefix = prefix_of(namespace)
        self.patience_seconds = patience_seconds
        self._server = ServerState(url)
        self._pipelines: dict[asyncio.AbstractEventLoop, Pipeline] = {}
        self._lock = threading.Lock()
        self._closed = False
        when_forked(self, Client._begin_anew)

    def _begin_anew(self) -> None:
        for pipeline in self._pipelines.values():
            pipeline.leave_to_other_process()
        leave_behind(self._pipelines)
        self._pipelines = {}
        self._lock = threading.Lock()
        self._server.availability = Availability()

    @property
    def address(self) -> str:
        """The server's address for people, without user and password."""
        return str(self._server.nodes.current)

    @property
    def nodes(self) -> Nodes:
        return self._server.nodes

    @property
    def availability(self) -> Availability:
        return self._server.availability

    def follow(self, moved: ServerRefused, sent_from: ServerAddress) -> None:
        """Use the node that has the namespace now, as a MOVED from `sent_from` says."""
        self._server.follow(moved, sent_from)

    def run(
        self, function: Function, arguments: Sequence[Argument], *, patience_seconds: float | None = None
    ) -> asyncio.Future[Any]:
        """Call a function with the prefix as keys[1], and return its reply: bytes, integers, lists and None.

        Raises `StoreUnavailable` when the time is over, and `ServerRefused` for an error of the function.
        """
        command = ("FCALL", function.name, 1, self.prefix, *arguments)
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return self._pipeline().call(command, function, patience_seconds)

    def command(self, *arguments: Argument, patience_seconds: float | None = None) -> asyncio.Future[Any]:
        """Send a plain command and return its reply, as `run` does."""
        patience_seconds = self.patience_seconds if patience_seconds is None else patience_seconds
        return self._pipeline().call(arguments, None, patience_seconds)

    async def close(self) -> None:
        """Refuse further calls, wait for the replies to this loop's calls, and close all connections.

        Closing twice is harmless.
        """
        with self._lock:
            self._closed = True
            pipelines, self._pipelines = self._pipelines, {}
        own = pipelines.pop(asyncio.get_running_loop(), None)
        for loop, pipeline in pipelines.items():
            try:
                loop.call_soon_threadsafe(pipeline.close)
            except RuntimeError:
                pass  # that loop is closed, and so is its connection
        if own is not None:
            try:
                if unanswered := own.unanswered():
                    await asyncio.wait([call.answer for call in unanswered])
            finally:
                await own.end()

    def _pipeline(self) -> Pipeline:
        loop = asyncio.get_running_loop()
        pipeline = self._pipelines.get(loop)
        return pipeline if pipeline is not None else self._new_pipeline(loop)

    def _new_pipeline(self, loop: asyncio.AbstractEventLoop) -> Pipeline:
        with self._lock:
            if self._closed:
                raise self._server.closed()
            for ended in [known for known in self._pipelines if known.is_closed()]:
                del self._pipelines[ended]
            pipeline = self._pipelines[loop] = Pipeline(self._server)
            return pipeline
