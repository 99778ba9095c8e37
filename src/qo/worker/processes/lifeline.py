"""A process ends with its worker, whatever it is doing.

The worker holds the other end of a socket to which it never writes. When it closes, because the worker ended or was
killed, the kernel kills the whole group of the process. A thread that watches the socket could not do that while the
handler holds the interpreter lock.
"""

from __future__ import annotations

import fcntl
import os
import signal


def end_with(descriptor: int) -> None:
    """Let the kernel kill this process and those that it starts, when the other end of the socket is closed."""
    os.set_inheritable(descriptor, False)
    if hasattr(fcntl, "F_SETSIG"):  # Linux; elsewhere SIGIO ends a process that does not handle it
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    if _is_closed(descriptor):  # before the line above
        os._exit(1)


def _is_closed(descriptor: int) -> bool:
    os.set_blocking(descriptor, False)
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False
