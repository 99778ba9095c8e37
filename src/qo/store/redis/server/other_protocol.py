"""Finds out whether a server that does not answer uses TLS while store.url does not, or the other way round."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress

from qo.errors import StoreUnavailable
from qo.store.redis.server.address import ServerAddress

ANSWER_SECONDS = 2.0


async def refuse_other_protocol(address: ServerAddress) -> None:
    """Raise `StoreUnavailable` if the server answers in the other way.

    For a server that accepted a connection and did not answer. One that is just starting or stopping does the same;
    then nothing is raised.
    """
    if address.path is not None:
        return
    if address.tls is not None and await _answers_without_tls(address):
        raise StoreUnavailable(
            f"Redis at {address} answers without TLS there; write redis:// in store.url, or name its port for TLS."
        )
    if address.tls is None and await _answers_with_tls(address):
        raise StoreUnavailable(
            f"Redis at {address} wants TLS there; write rediss:// in store.url, or name its port without TLS."
        )


async def _answers_without_tls(address: ServerAddress) -> bool:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                writer.write(b"PING\r\n")
                return (await reader.read(1)) in (b"+", b"-")
            finally:
                writer.transport.abort()
    return False


async def _answers_with_tls(address: ServerAddress) -> bool:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE  # nothing is sent over this connection
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=anybody)
            writer.transport.abort()
            return True
    return False
