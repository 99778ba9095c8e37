"""Where the installed `qo` is, and the environment it is called in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("qo")


def environment(**more: str) -> dict[str, str]:
    """This one without qo's own settings and without what makes output differ from desk to desk."""
    dropped = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("QO_") and key not in dropped}
    return {**kept, "TERM": "xterm", **more}
