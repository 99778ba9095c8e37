"""Build the site, and fail where a link of it is broken."""

from __future__ import annotations

import sys

from tools.site.building import build
from tools.site.source import ROOT

if __name__ == "__main__":
    if wrong := build(ROOT / ".site"):
        sys.exit("\n".join(wrong))
    sys.stdout.write("The site is in .site/html; open .site/html/index.html\n")
