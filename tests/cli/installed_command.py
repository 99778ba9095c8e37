"""The path of the installed `qo`, and the environment for its calls."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("qo")


def environment(**more: str) -> dict[str, str]:
    """The present environment without qo's settings and without variables that change the output."""
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("QO_") and key not in dropped}
    return {**kept, "TERM": "xterm", **more}
