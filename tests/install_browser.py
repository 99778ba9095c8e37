"""Installs a Chromium where there is none: the system's package where that is allowed, else playwright's own.

python -m tests.install_browser
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser import NoBrowser, find_chromium

OF_THE_SYSTEM = (("apt-get", "update", "--quiet"), ("apt-get", "install", "--quiet", "--yes", "chromium"))
OF_PLAYWRIGHT = ((sys.executable, "-m", "playwright", "install", "chromium"),)


def main() -> int:
    if found() is not None:
        return 0
    say("Installing Chromium for the tests of pages, about a minute")
    may_install = os.geteuid() == 0 and shutil.which("apt-get") is not None
    for way in ((OF_THE_SYSTEM,) if may_install else ()) + (OF_PLAYWRIGHT,):
        if all(succeeds(command) for command in way) and found() is not None:
            return 0
    say("No Chromium could be installed. Put `chromium` on the PATH and run make again.")
    return 1


def found() -> str | None:
    with sync_playwright() as playwright:
        try:
            return find_chromium(Path(playwright.chromium.executable_path))
        except NoBrowser:
            return None


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def succeeds(command: tuple[str, ...]) -> bool:
    """Whether it did; what it printed is shown only if not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
