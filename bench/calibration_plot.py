"""Promised waits against actual ones, drawn as an SVG."""

from __future__ import annotations

import math

from bench.scoring import Result, is_inside

PANEL, GAP, POINTS = 260, 56, 400
MARKS = ((0, "0"), (10, "10 s"), (60, "1 min"), (300, "5 min"), (1800, "30 min"), (7200, "2 h"))
DOT, CROSS = "h0", "m-2 -2l4 4m0 -4l-4 4"
"""Points differ by form, too, for readers who cannot distinguish the colours."""


def draw_plot(results: list[Result]) -> str:
    """Promised against actual wait, one panel a day, both axes logarithmic; on the diagonal a promise came true."""
    width = len(results) * (PANEL + GAP) + GAP // 2
    panels = "".join(_panel(result, GAP + number * (PANEL + GAP)) for number, result in enumerate(results))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {PANEL + 116}" font-family="sans-serif" font-size="12">
<title>Promised wait against actual wait on three simulated days</title>
<style>
svg {{ --ink: #222; --faint: #d5d5d5; --inside: #1f6fb4; --outside: #d9660a; --paper: #fff }}
@media (prefers-color-scheme: dark) {{ svg {{ --ink: #ddd; --faint: #444; --inside: #6db3f2; --outside: #ffa657; --paper: #16181c }} }}
text {{ fill: var(--ink); stroke: var(--paper); stroke-width: 4; paint-order: stroke }}
.faint {{ stroke: var(--faint); fill: none }} .line {{ stroke: var(--ink); fill: none }}
.inside, .outside {{ stroke-linecap: round; fill: none; opacity: .65 }}
.inside {{ stroke: var(--inside); stroke-width: 3 }} .outside {{ stroke: var(--outside); stroke-width: 1.2 }}
</style>
<rect width="100%" height="100%" fill="var(--paper)"/>
{panels}{_legend(GAP, PANEL + 102)}
</svg>
"""  # noqa: E501 - an SVG reads worse with its attributes wrapped


def _legend(left: int, middle: int) -> str:
    return f"""<path class="inside" style="stroke-width: 7" d="M{left + 4} {middle}h0"/>
<text x="{left + 14}" y="{middle + 4}">started inside its range</text>
<path class="outside" style="stroke-width: 2.5" d="M{left + 254} {middle}m-3 -3l6 6m0 -6l-6 6"/>
<text x="{left + 264}" y="{middle + 4}">started outside of it</text>
<path class="line" d="M{left + 410} {middle + 5}l12 -10"/>
<text x="{left + 428}" y="{middle + 4}">exactly as promised</text>
<text x="{left + 576}" y="{middle + 4}">at most {POINTS} jobs of each day are drawn</text>"""


def _panel(result: Result, left: int) -> str:
    top = 42
    longest = max(max(promise.waited, promise.learnt.estimate_seconds) for promise in result.promises)

    def along(seconds: float) -> float:
        return PANEL * math.log1p(seconds) / math.log1p(longest)

    def points(form: str, *, inside: bool) -> str:
        chosen = result.promises[:: math.ceil(len(result.promises) / POINTS)]
        return "".join(
            f"M{left + along(promise.learnt.estimate_seconds):.0f} {top + PANEL - along(promise.waited):.0f}{form}"
            for promise in chosen
            if is_inside(promise.learnt, promise.waited) == inside
        )

    marks = [(seconds, text) for seconds, text in MARKS if seconds <= longest]
    grid = "".join(
        f"M{left + along(seconds):.0f} {top}v{PANEL}M{left} {top + PANEL - along(seconds):.0f}h{PANEL}"
        for seconds, _ in marks
    )
    labels = "".join(
        f'<text x="{left + along(seconds):.0f}" y="{top + PANEL + 16}" text-anchor="middle">{text}</text>'
        f'<text x="{left - 6}" y="{top + PANEL + 4 - along(seconds):.0f}" text-anchor="end">{text}</text>'
        for seconds, text in marks
    )
    return f"""<text x="{left}" y="16" font-weight="bold">{result.day.name}</text>
<text x="{left}" y="32">{result.coverage():.0%} of {len(result.promises):,} jobs started inside</text>
<path class="faint" d="{grid}"/><path class="line" d="M{left} {top + PANEL}L{left + PANEL} {top}"/>
<path class="inside" d="{points(DOT, inside=True)}"/><path class="outside" d="{points(CROSS, inside=False)}"/>{labels}
<text x="{left + PANEL // 2}" y="{top + PANEL + 34}" text-anchor="middle">promised wait</text>
<text x="{left + 8}" y="{top + 14}">actual wait</text>
"""
