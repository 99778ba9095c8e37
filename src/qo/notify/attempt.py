"""One attempt to deliver a notice: a blocking client in a thread, for a limited time."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

from qo.notify.address import Address
from qo.threads import in_thread

BACKSTOP_SECS = 1.0
ENCRYPTED_SCHEMES = frozenset({"https", "smtps"})


class DeliveryFailed(Exception):
    """An attempt failed. `reason` is the end of a sentence and holds nothing secret; `again`: another may succeed."""

    def __init__(self, reason: str, *, again: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class Attempt:
    """The connection of one attempt, which the event loop can cut while a thread is using it.

    A socket's timeout is for one read, so a server that sends a byte now and then could hold the thread for ever.
    The event loop therefore measures the whole attempt. When it cuts the connection, the thread's read ends at once.
    """

    def __init__(self, timeout_secs: float) -> None:
        # Later than the event loop's timeout: it only ends the connecting, which cannot be cut.
        self._socket_timeout_secs = timeout_secs + BACKSTOP_SECS
        self._lock = threading.Lock()
        self._is_cut = False
        self._handle: socket.socket | None = None
        """A second handle on the connection. Clients replace theirs when they begin to encrypt."""

    def connect(self, address: Address) -> socket.socket:
        """Called in the thread. Raises `OSError`; that is `TimeoutError` where the attempt was cut meanwhile."""
        connection = socket.create_connection((address.host, address.port), self._socket_timeout_secs)
        with self._lock:
            if self._is_cut:
                connection.close()
                raise TimeoutError
            self._handle = connection.dup()
        if address.scheme in ENCRYPTED_SCHEMES:
            return ssl.create_default_context().wrap_socket(connection, server_hostname=address.host)
        return connection

    def cut(self) -> None:
        """Called in the event loop, also when the attempt has ended."""
        with self._lock:
            self._is_cut = True
            if self._handle is not None:
                with self._handle, suppress(OSError):  # the server may have hung up already
                    self._handle.shutdown(socket.SHUT_RDWR)


async def attempt_in_thread(deliver: Callable[[Attempt], None], *, timeout_secs: float) -> None:
    """Run `deliver` in a thread. When the time is over, or on cancellation, its connection is cut.

    Raises `DeliveryFailed`, also for each `OSError` of `deliver`.
    """
    attempt = Attempt(timeout_secs)
    try:
        async with asyncio.timeout(timeout_secs):
            await in_thread(deliver, attempt)
    except TimeoutError:
        raise DeliveryFailed(f"there was no answer within {timeout_secs:g} seconds", again=True) from None
    except OSError as error:
        raise _network_failure(error) from None
    finally:
        attempt.cut()


def _network_failure(error: OSError) -> DeliveryFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryFailed(
            f"its certificate is not trusted ({error.verify_message}); "
            "for an authority of your own, name its certificate in the environment as SSL_CERT_FILE",
            again=False,
        )
    return DeliveryFailed(f"the connection failed ({error.strerror or type(error).__name__})", again=True)
