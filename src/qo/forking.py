"""Processes that are forked, as gunicorn, uWSGI and multiprocessing do it: threads do not come along, and what they did
at that moment is never finished. Objects with threads, locks or calls under way begin anew in the new process.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Owner = TypeVar("Owner")

_owners: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_left_behind: list[object] = []


def when_forked(owner: Owner, begin_anew: Callable[[Owner], None]) -> None:
    """Call `begin_anew(owner)` in every process that is forked while the owner lives, before anything else happens
    there. It must not wait for anything."""
    _owners[owner] = begin_anew


def leave_behind(*things: object) -> None:
    """Keep these alive for ever: the garbage collector would close them, perhaps in the other process too."""
    _left_behind.extend(things)


def let_go_of(descriptor: int) -> None:
    """Leave an open file or connection to the other process: while it is open here too, its end is not noticed. The
    descriptor's number stays taken, because the object left behind still has it."""
    if descriptor < 0:
        return  # it is closed already
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _begin_anew() -> None:
    for owner, begin_anew in tuple(_owners.items()):
        begin_anew(owner)


if hasattr(os, "register_at_fork"):  # which Windows has not, as it forks nothing
    os.register_at_fork(after_in_child=_begin_anew)
