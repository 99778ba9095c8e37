"""Modules by themselves: how numbers are said, and how the line is kept, in the browser that runs them."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from tests.service.conftest import Service

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_ranges_have_one_unit_and_times_say_how_long_ago(page: Page, served: Service) -> None:
    await page.goto("/")
    said = await page.evaluate(
        """async () => {
          const { ago, inUnitOf, priority, range, rangeInWords, shortId, span } = await import("/page/js/format.js");
          return [range(0, 40), range(20, 95), range(840, 1500), range(3300, 6200), range(7300, 9000),
            inUnitOf(300, 480), rangeInWords(240, 500), rangeInWords(60, 60), span(0.35), span(192), span(7500),
            ago(0, 1000), ago(0, 180_000), ago(180_000, 0), shortId("01M7QM3M9QMTCMXKMS7WHPBP9Y"), shortId("order-7"),
            priority(30), priority(95)];
        }"""
    )

    assert said == [
        *("0–40 s", "20–95 s", "14–25 min", "55–104 min", "2–3 h", "5"),
        *("4 to 9 minutes", "60 seconds", "0.3 s", "3m 12s", "2h 05m"),
        *("just now", "3 min ago", "in 3 min", "01M7…BP9Y", "order-7"),
        {"name": "30", "shape": "•", "level": "normal"},
        {"name": "95", "shape": "▽▽", "level": "background"},
    ]


async def test_exact_numbers_stay_as_they_were_written(page: Page, served: Service) -> None:
    await page.goto("/")
    written = await page.evaluate(
        """async () => {
          const { parseExact, written } = await import("/page/js/exact.js");
          const value = parseExact('[1152921504606846977, 1.50, 7, 1e400]');
          return [...value.map(written), JSON.stringify(value)];
        }"""
    )

    assert written == ["1152921504606846977", "1.50", "7", "1e400", "[1152921504606846977,1.50,7,1e400]"]


LINE = """
    const { createLine } = await import("/page/js/state/line.js");
    const line = createLine();
    await line.readTo(10);
    const job = (id, key, more = {}) =>
      ({ id, key, task: "build", state: "queued", priority: 50, sequence: Number(id), ...more });
    const shown = () => line.rows.map((row) => `${row.id} +${row.gained} -${line.placedAhead(row)}`).join(", ");
    const frame = (changed, gone = [], more = {}) => line.take({ at: "now", changed, gone, ...more });
    frame([job("1", 100), job("2", 200), job("3", 300), job("4", 400)]);
"""


MOVEMENTS = {
    "": "1 +0 -0, 2 +0 -0, 3 +0 -0, 4 +0 -0",
    "frame([], [['1', 100]])": "2 +0 -0, 3 +0 -0, 4 +0 -0",
    "frame([job('5', 50)])": "5 +0 -0, 1 +0 -1, 2 +0 -1, 3 +0 -1, 4 +0 -1",
    "frame([job('5', 50)]); frame([], [['5', 50]])": "1 +0 -0, 2 +0 -0, 3 +0 -0, 4 +0 -0",
    "frame([job('3', 50)])": "3 +2 -0, 1 +0 -1, 2 +0 -1, 4 +0 -0",
    "frame([job('3', 50)]); frame([job('3', 300)])": "1 +0 -0, 2 +0 -0, 3 +0 -0, 4 +0 -0",
    # A row without a task has only what changed.
    "frame([{ id: '1', state: 'queued', key: 350, priority: 70 }])": "2 +0 -0, 3 +0 -0, 1 +0 -2, 4 +0 -0",
    # One job gets the key that another had.
    "frame([job('1', 200), job('2', 100)])": "2 +1 -0, 1 +0 -1, 3 +0 -0, 4 +0 -0",
    "frame([], [], { front: [['2', null, 'why', 7]] })": "1 +0 -0, 2 +7 -0, 3 +0 -0, 4 +0 -0",
    # An older reading of the front comes with a job that has joined since.
    "frame([job('5', 50)], [], { front: [['1', null, 'why', 0]] })": "5 +0 -0, 1 +0 -1, 2 +0 -1, 3 +0 -1, 4 +0 -1",
}


async def test_the_line_counts_movement_as_frames_come(page: Page, served: Service) -> None:
    await page.goto("/")

    for happens, expected in MOVEMENTS.items():
        assert await page.evaluate(f"async () => {{ {LINE} {happens}; return shown(); }}") == expected, happens
