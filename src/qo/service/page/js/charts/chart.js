// A chart on one time axis with its numbers as a table. uPlot draws it; what it shows is also there in words.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import uPlot from "../../vendor/uplot.js";
import { absolute, hourAndMinute, number, timeOfDay } from "../format.js";
import { route, setQuery } from "../route.js";

const HEIGHT = 190;
const MOST_ROWS = 200;
const DAY_MS = 86_400_000;
const SHORT_MS = 480_000;
const date = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const day = new Intl.DateTimeFormat("en-GB", { weekday: "short", hour: "2-digit", minute: "2-digit" });

const sheet = document.createElement("link");
sheet.rel = "stylesheet";
sheet.href = "page/vendor/uplot.css";
document.head.append(sheet);

const probe = document.createElement("i");
probe.hidden = true;
document.body.append(probe);

/** The colour that a custom property stands for now: a canvas does not know light from dark. */
function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/** "14:32", with the day where the axis is longer than one, with seconds where it is short; "18 Nov" of whole days. */
export function timeOnAxis(at, all) {
  if (all.every((each) => each % DAY_MS === 0)) return date.format(at);
  const length = all.at(-1) - all[0];
  if (length > DAY_MS) return day.format(at);
  return length < SHORT_MS ? timeOfDay(at) : hourAndMinute(at);
}

/**
 * `at`: milliseconds; `series`: [{name, values, colour: "--accent", kind: "line" | "area" | "bars" | "dots" | "rings", dash?}].
 * `shown(value)` gives a value as text. `table`: {head, rows} in place of the table of the series.
 * `drawBelow(plot)` draws behind the series; `scale`: {range, splits, names} of the upright axis.
 */
export function Chart({ id, name, at, series, shown = number, table, drawBelow, scale }) {
  const element = useRef(null);
  const plot = useRef(null);
  const [here, setHere] = useState(null);
  const shape = series.map((each) => each.name + each.kind).join();
  const data = [at.map((each) => each / 1000), ...series.map((each) => each.values)];

  useEffect(() => {
    const made = new uPlot(options({ series, shown, drawBelow, scale, setHere, width: element.current.clientWidth }), data, element.current);
    plot.current = made;
    const size = new ResizeObserver(([entry]) => made.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT }));
    size.observe(element.current);
    const redraw = () => made.redraw(false, true);
    const theme = new MutationObserver(redraw);
    theme.observe(document.documentElement, { attributes: true });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => {
      size.disconnect();
      theme.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [at, ...series.map((each) => each.values)]);

  const open = route.value.query.numbers === id;
  return html`<figure class="chart">
    <figcaption class="legend">${series.map((each) => html`<span key=${each.name}><i class=${each.kind} style=${{ color: `var(${each.colour})`, borderStyle: !each.dash ? "solid" : each.dash[0] > 3 ? "dashed" : "dotted" }}></i>${each.name}${here !== null && each.values[here] != null && html` <b>${shown(each.values[here])}</b>`}</span>`)}
      ${here !== null && html`<small class="at">${timeOnAxis(at[here], at)}</small>`}</figcaption>
    <div class="plot" ref=${element} role="img" aria-label=${`${name}. The numbers are in the table below.`}></div>
    <details open=${open} onToggle=${(event) => event.target.open !== open && setQuery({ numbers: event.target.open ? id : null }, { replace: true })}>
      <summary>Numbers</summary>
      ${open && html`<div class="numbers" tabindex="0" role="region" aria-label=${`Numbers: ${name}`}><${Numbers} table=${table ?? tableOf(at, series, shown)} /></div>`}
    </details>
  </figure>`;
}

function Numbers({ table: { head, rows } }) {
  return html`<table><thead><tr>${head.map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, MOST_ROWS).map((cells) => html`<tr>${cells.map((each) => html`<td>${each}</td>`)}</tr>`)}</tbody></table>`;
}

/** The newest first. */
function tableOf(at, series, shown) {
  const row = (time, index) => [
    html`<time datetime=${new Date(time).toISOString()} title=${absolute(time)}>${timeOnAxis(time, at)}</time>`,
    ...series.map((each) => (each.values[index] == null ? "–" : shown(each.values[index]))),
  ];
  return { head: ["time", ...series.map((each) => each.name)], rows: at.map(row).reverse() };
}

const KINDS = {
  // One value alone makes no line.
  line: () => ({ width: 2, points: { size: 6, show: (plot, index) => plot.data[index].filter((each) => each != null).length < 2 } }),
  area: (each) => ({ width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }), fill: () => alpha(colour(each.colour)) }),
  bars: (each) => ({ width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.7, 60], align: 1 }), fill: () => colour(each.colour) }),
  dots: (each) => ({ paths: () => null, points: { show: true, size: 6, fill: () => colour(each.colour) } }),
  rings: () => ({ paths: () => null, points: { show: true, size: 8, width: 2, fill: () => colour("--card") } }),
};

function alpha(text) {
  return text.replace(/^rgb\((.*)\)$/, "rgba($1, 0.15)");
}

function options({ series, shown, drawBelow, scale, setHere, width }) {
  const axis = {
    stroke: () => colour("--muted"),
    font: '12px Inter, "Helvetica Neue", Arial, sans-serif',
    grid: { stroke: () => colour("--line"), width: 1 },
    ticks: { show: false },
  };
  const hasBars = series.some((each) => each.kind === "bars"); // the last one begins where the data ends
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { x: { time: true, range: (plot, from, to) => [from, to + (hasBars ? stepOf(plot.data[0]) : 0)] }, y: { range: scale?.range ?? ((plot, low, high) => [0, niceTop(high)]) } },
    axes: [
      { ...axis, grid: { show: false }, size: 28, space: 70, values: (plot, splits) => splits.map((each) => timeOnAxis(each * 1000, plot.data[0].map((at) => at * 1000))) },
      { ...axis, size: 58, space: 34, splits: scale && (() => scale.splits), values: (plot, splits) => (scale ? scale.names : splits.map((each) => (each === null ? "" : shown(each)))) },
    ],
    series: [{}, ...series.map((each) => ({ label: each.name, stroke: () => colour(each.colour), dash: each.dash, spanGaps: each.kind === "line", ...KINDS[each.kind](each) }))],
    hooks: {
      setCursor: [(plot) => setHere(plot.cursor.idx ?? null)],
      drawClear: drawBelow ? [(plot) => drawBelow(plot, colour)] : [],
    },
  };
}

function stepOf(at) {
  return at.length > 1 ? at[1] - at[0] : 60;
}

function niceTop(high) {
  return !high || high <= 0 ? 1 : high * 1.08;
}
