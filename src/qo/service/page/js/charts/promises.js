// Promised against kept: the share of starts inside their range, for each task, and every start as a point.
import { html } from "../../vendor/preact.js";
import { Card, Empty, JobLink } from "../components/parts.js";
import { absolute, moment, number, range, span, timeOfDay } from "../format.js";
import { Chart } from "./chart.js";

const MEANT = 0.8;
const FEW = 20;
const [LOWEST, HIGHEST] = [-1, 2];

export function Promises({ figures: { starts, promise } }) {
  const total = promise.kept + promise.missed;
  const note = total ? `${Math.round((promise.kept / total) * 100)} % of ${number(total)} starts inside their range, 80 % meant` : undefined;
  return html`<${Card} title="Promised against kept" id="promises" class="wide" note=${note}>
    ${starts.length === 0
      ? html`<${Empty}>${total ? "The jobs of these starts have not ended yet." : "No start was measured yet. Each job is promised a range when it joins the line; here is whether it started inside."}<//>`
      : html`<div class="promises"><${Tasks} starts=${starts} /><${Points} starts=${starts} /></div>`}<//>`;
}

function Tasks({ starts }) {
  const byTask = new Map();
  for (const { task, kept } of starts) {
    const counts = byTask.get(task) ?? { kept: 0, all: 0 };
    byTask.set(task, { kept: counts.kept + kept, all: counts.all + 1 });
  }
  const tasks = [...byTask].sort(([, one], [, other]) => other.all - one.all).slice(0, 12);
  return html`<table class="kept"><caption><small>Of the newest ${number(starts.length)} starts whose jobs have ended</small></caption><thead><tr><th scope="col">Task</th><th scope="col">Inside</th><th scope="col">Starts</th></tr></thead>
    <tbody>${tasks.map(([task, { kept, all }]) => html`<tr key=${task}><td><b>${task}</b>
      <span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${(kept / all) * 100}%` }}></span><span class="tick" style=${{ left: `${MEANT * 100}%` }}></span></span></td>
      <td>${Math.round((kept / all) * 100)} %<small class="block">${all < FEW ? "few starts" : kept / all < MEANT ? "below 80 %" : "80 % reached"}</small></td><td>${number(all)}</td></tr>`)}</tbody></table>`;
}

/** Where a start lies in its range: 0 at the earliest time promised, 1 at the latest. */
function place({ waited_seconds: waited, lower_bound: lower, upper_bound: upper }) {
  return Math.min(Math.max((waited - lower) / Math.max(upper - lower, 1), LOWEST), HIGHEST);
}

function Points({ starts }) {
  const sorted = [...starts].sort((one, other) => (one.started_at < other.started_at ? -1 : 1));
  const values = (kept) => sorted.map((each) => (each.kept === kept ? place(each) : null));
  return html`<${Chart} id="promises" name="Every start against the range that was promised" at=${sorted.map((each) => moment(each.started_at))}
    shown=${() => ""} drawBelow=${band} scale=${{ range: [LOWEST - 0.2, HIGHEST + 0.2], splits: [LOWEST, 0, 1, HIGHEST], names: ["sooner", "earliest", "latest", "later"] }}
    series=${[{ name: "inside its range", values: values(true), colour: "--accent", kind: "dots" }, { name: "outside", values: values(false), colour: "--red", kind: "rings" }]}
    table=${{ head: ["started", "job", "promised", "waited", "outcome"], rows: sorted.reverse().map(row) }} />`;
}

function band(plot, colour) {
  const [top, bottom] = [plot.valToPos(1, "y", true), plot.valToPos(0, "y", true)];
  plot.ctx.fillStyle = colour("--accent-soft");
  plot.ctx.fillRect(plot.bbox.left, top, plot.bbox.width, bottom - top);
}

function row({ job, task, started_at: started, waited_seconds: waited, lower_bound: lower, upper_bound: upper, kept }) {
  const off = waited > upper ? `${span(waited - upper)} later` : `${span(lower - waited)} sooner`;
  return [
    html`<time datetime=${started} title=${absolute(moment(started))}>${timeOfDay(moment(started))}</time>`,
    html`${task} <${JobLink} id=${job} />`,
    range(lower, upper),
    span(waited),
    kept ? "inside" : off,
  ];
}
