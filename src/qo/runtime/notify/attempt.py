"""One attempt to deliver: a blocking client in a thread, for a limited time."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from qo.threads import in_thread

BACKSTOP_SECS = 1.0


class DeliveryFailed(Exception):
    """An attempt failed. `reason` is the end of a sentence and holds nothing secret; `again`: another may succeed."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class HasSocket(Protocol):
    """A client of the standard library; None while it is not connected."""

    @property
    def sock(self) -> socket.socket | None: ...


class Attempt:
    """What the event loop and the thread of one attempt know of each other.

    A socket's timeout is for one read, so a server that sends a byte now and then could hold the thread
    for ever. The event loop measures the whole attempt instead and, when it gives up, shuts the socket,
    which ends the thread's read at once.
    """

    def __init__(self, timeout_secs: float) -> None:
        # Later than the event loop's: it only ends what no socket can be shut for, such as connecting.
        self.socket_timeout_secs = timeout_secs + BACKSTOP_SECS
        self._client: HasSocket | None = None
        self._given_up = False

    def uses(self, client: HasSocket) -> None:
        """Called in the thread, before the client connects."""
        self._client = client

    def go_on(self) -> None:
        """Called in the thread with a new socket, which a `give_up` a moment ago could not yet see."""
        if self._given_up:
            raise TimeoutError

    def give_up(self) -> None:
        """Called in the event loop."""
        self._given_up = True
        open_socket = self._client.sock if self._client else None
        if open_socket is not None:
            try:
                # Not SSLSocket's own: that drops the encryption first, and the thread may be about to write.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already


async def attempt_in_thread(deliver: Callable[[Attempt], None], *, timeout_secs: float) -> None:
    """Run `deliver` in a thread. When the time is over, or on cancellation, its connection is cut."""
    attempt = Attempt(timeout_secs)
    try:
        async with asyncio.timeout(timeout_secs):
            await in_thread(deliver, attempt)
    except TimeoutError:
        attempt.give_up()
        raise DeliveryFailed(f"there was no answer within {timeout_secs:g} seconds", again=True) from None
    except asyncio.CancelledError:
        attempt.give_up()
        raise


def network_failure(error: OSError) -> DeliveryFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryFailed(
            f"its certificate is not trusted ({error.verify_message}); "
            "for an authority of your own, name its certificate in the environment as SSL_CERT_FILE",
            again=False,
        )
    return DeliveryFailed(f"the connection failed ({error.strerror or type(error).__name__})", again=True)
