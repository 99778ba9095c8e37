"""docs/images/states.svg: every state and every allowed transition. `python -m tools.site.states_picture` writes it."""

from __future__ import annotations

import math
from pathlib import Path

from qo.job import ENDED, HELD, State
from qo.policy.lifecycle import NEXT
from tools.site.source import ROOT

FILE = ROOT / "docs/images/states.svg"
WIDTH, HEIGHT = 900, 400
NODE_WIDTH, NODE_HEIGHT = 108, 36

PLACES = {
    State.SCHEDULED: (80, 110),
    State.WAITING: (80, 270),
    State.QUEUED: (260, 190),
    State.STARTING: (440, 190),
    State.RUNNING: (620, 190),
    State.CONFIRMING: (440, 310),
    State.SUCCEEDED: (820, 100),
    State.FAILED: (820, 190),
    State.CANCELLED: (820, 280),
}
BENDS = {
    (State.QUEUED, State.SCHEDULED): -26,
    (State.SCHEDULED, State.QUEUED): -30,
    (State.STARTING, State.QUEUED): -44,
    (State.RUNNING, State.QUEUED): -70,
    (State.STARTING, State.SCHEDULED): -70,
    (State.RUNNING, State.SCHEDULED): -130,
    (State.FAILED, State.QUEUED): 330,
}
"""How far the middle of an arrow is beside the straight line; to the left of its direction."""
ASIDE = (State.CANCELLED, State.FAILED)
"""Almost every state may lead there, so only the arrows from `running` are drawn, and others are named in its box."""

STYLE = """
text { font: 14px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #1f2933; }
rect { stroke: #52606d; stroke-width: 1.5; rx: 8; }
.waits { fill: #e8f1fb; } .held { fill: #fdf0d5; } .ended { fill: #e9e9ec; }
path.arrow { fill: none; stroke: #52606d; stroke-width: 1.5; marker-end: url(#head); }
.or { font-size: 11px; fill: #52606d; }
path.back { stroke: #b7791f; stroke-dasharray: 5 3; }
.note { font-size: 12px; text-anchor: start; }
"""


def picture() -> str:
    arrows = [
        _arrow(present, wanted)
        for present, row in NEXT.items()
        for wanted in State
        if wanted in row and not _is_aside(present, wanted)
    ]
    nodes = [_node(state) for state in State]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'aria-label="The states of a job and the transitions between them">',
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z" fill="#52606d"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff" style="stroke: none"/>',
            *arrows,
            *nodes,
            _note(HEIGHT - 34, "blue: holds no slot · yellow: held by a worker · grey: has ended"),
            _note(HEIGHT - 16, "dashed: goes back · &#8220;or&#8221;: where it may also end"),
            "</svg>",
            "",
        ]
    )


def _node(state: State) -> str:
    x, y = PLACES[state]
    kind = "held" if state in HELD else "ended" if state in ENDED else "waits"
    return (
        f'<rect class="{kind}" x="{x - NODE_WIDTH // 2}" y="{y - NODE_HEIGHT // 2}" width="{NODE_WIDTH}" '
        f'height="{NODE_HEIGHT}"/><text x="{x}" y="{y}">{state.value}</text>{_or(state)}'
    )


def _note(y: int, text: str) -> str:
    return f'<text class="note" x="20" y="{y}">{text}</text>'


def _is_aside(present: State, wanted: State) -> bool:
    return wanted in ASIDE and present is not State.RUNNING


def _or(state: State) -> str:
    """Where it may also end, below its box."""
    x, y = PLACES[state]
    ends = [wanted for wanted in ASIDE if wanted in NEXT[state] and _is_aside(state, wanted)]
    if not ends:
        return ""
    named = ", ".join(f'<tspan id="{state.value}-{wanted.value}">{wanted.value}</tspan>' for wanted in ends)
    return f'<text class="or" x="{x}" y="{y + NODE_HEIGHT // 2 + 10}">or {named}</text>'


def _arrow(present: State, wanted: State) -> str:
    (x1, y1), (x2, y2) = PLACES[present], PLACES[wanted]
    length = math.hypot(x2 - x1, y2 - y1)
    bend = BENDS.get((present, wanted), 0)
    middle = ((x1 + x2) / 2 + bend * (y2 - y1) / length, (y1 + y2) / 2 - bend * (x2 - x1) / length)
    start, end = _edge((x1, y1), middle), _edge((x2, y2), middle)
    kind = "arrow"
    if x2 < x1:
        kind += " back"
    points = " ".join(f"{value:.0f}" for value in (*middle, *end))
    return f'<path id="{present.value}-{wanted.value}" class="{kind}" d="M{start[0]:.0f} {start[1]:.0f} Q{points}"/>'


def _edge(center: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """The point at which a line from the middle of a node leaves its box."""
    dx, dy = towards[0] - center[0], towards[1] - center[1]
    scale = min(
        (NODE_WIDTH / 2 + 2) / abs(dx) if dx else math.inf,
        (NODE_HEIGHT / 2 + 2) / abs(dy) if dy else math.inf,
    )
    return center[0] + dx * scale, center[1] + dy * scale


def write(file: Path = FILE) -> None:
    file.write_text(picture())


if __name__ == "__main__":
    write()
