"""What an operation that only reads is given."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from qo.values import Bounds


class View(NamedTuple):
    """One consistent state of the store, the time at which it is read, and the bounds."""

    db: apsw.Connection
    now: int
    bounds: Bounds
