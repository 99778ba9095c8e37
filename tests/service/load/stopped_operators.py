"""Operators' pages of a laptop that was closed: streams that are open and never read. The test stops this process.

stopped_operators.py PORT COUNT     opens the streams, says `open`, and waits
"""

from __future__ import annotations

import socket
import sys

RECEIVED_BYTES = 4096
"""The kernel takes so little for a client that does not read."""


def main(port: int, count: int) -> None:
    streams = []
    for _ in range(count):
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        stream.connect(("127.0.0.1", port))
        stream.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stream.recv(1024).startswith(b"HTTP/1.1 200")
        streams.append(stream)
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
