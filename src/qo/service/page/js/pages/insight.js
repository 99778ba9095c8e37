// Charts of the last hours, each with its numbers: waits, throughput, depth, groups, promises.
import { html } from "../../vendor/preact.js";
import { steps, useAnalytics } from "../charts/analytics.js";
import { Chart } from "../charts/chart.js";
import { Promises } from "../charts/promises.js";
import { Card, Chip, Empty } from "../components/parts.js";
import { counted, number, priority, span } from "../format.js";
import { link, setQuery } from "../route.js";

const RANGES = [[60, "1 hour"], [360, "6 hours"], [1440, "1 day"], [10_080, "7 days"]];
const STARTS = 500;

export function Page({ route }) {
  const minutes = RANGES.find(([each]) => String(each) === route.query.minutes)?.[0] ?? 60;
  const figures = useAnalytics({ minutes, starts: STARTS });
  return html`<h1 class="unseen">Insight</h1>
    <div class="filters" role="group" aria-label="Time range"><span class="muted">The last</span>
      ${RANGES.map(([each, name]) => html`<${Chip} key=${each} pressed=${each === minutes} onPress=${() => setQuery({ minutes: each === 60 ? null : each })}>${name}<//>`)}</div>
    ${figures === null ? html`<${Card} title="Insight"><${Empty}>Reading the figures …<//><//>` : html`<${Charts} figures=${figures} />`}`;
}

function Charts({ figures }) {
  const bins = steps(figures);
  return html`<div class="charts">
    <${Waits} figures=${figures} bins=${bins} /><${Throughput} figures=${figures} bins=${bins} />
    <${Depth} figures=${figures} bins=${bins} /><${Busiest} groups=${figures.groups} />
    <${Promises} figures=${figures} /></div>`;
}

/** Told apart by dashes first, by colour last. */
const LOOKS = {
  urgent: { colour: "--red" },
  high: { colour: "--accent" },
  normal: { colour: "--text" },
  low: { colour: "--muted", dash: [8, 5] },
  background: { colour: "--faint", dash: [2, 4] },
};

function Waits({ figures, bins }) {
  const { waits } = figures.series;
  const series = Object.entries(waits).map(([value, { started, waited_seconds: waited }]) => {
    const { name, shape, level } = priority(Number(value));
    const [counts, totals] = [bins.sum(started), bins.sum(waited)];
    return { name: `${shape} ${name}`, values: counts.map((count, index) => (count ? totals[index] / count : null)), kind: "line", ...LOOKS[level] };
  });
  const averages = Object.entries(figures.average_wait_seconds).map(([value, seconds]) => `${priority(Number(value)).name} ${span(seconds)}`);
  return html`<${Card} title="Wait by priority" id="waits" note=${averages.join(" · ")}>
    ${series.length ? html`<${Chart} id="waits" name="Average wait of the jobs that started, by priority" at=${bins.at} series=${series} shown=${span} />` : html`<${Empty}>Nothing started in this time.<//>`}<//>`;
}

function Throughput({ figures: { series, submitted, ended }, bins }) {
  const perMinute = (values) => bins.sum(values).map((value) => Math.round((value / bins.minutes) * 10) / 10);
  const all = series.succeeded.map((each, index) => each + series.failed[index] + series.cancelled[index]);
  const total = all.reduce((sum, each) => sum + each, 0);
  const failed = ended.failed ?? 0;
  const note = `${counted(total, "job")} ended, ${number(failed)} failed${total ? ` (${Math.round((failed / total) * 100)} %)` : ""}${ended.scheduled ? ` · ${counted(ended.scheduled, "try", "tries")} repeated` : ""}`;
  return html`<${Card} title="Throughput and failures" id="throughput" note=${note}>
    ${submitted + total ? html`<${Chart} id="throughput" name="Jobs a minute that were submitted, ended and failed" at=${bins.at} series=${[
      { name: "ended a minute", values: perMinute(all), colour: "--accent-mid", kind: "bars" },
      { name: "failed", values: perMinute(series.failed), colour: "--red", kind: "bars" },
      { name: "submitted", values: perMinute(series.submitted), colour: "--text", kind: "line", dash: [5, 4] },
    ]} />` : html`<${Empty}>Nothing was submitted in this time. Try it: <code>qo submit build</code><//>`}<//>`;
}

function Depth({ figures: { series, waiting }, bins }) {
  return html`<${Card} title="Depth over time" id="depth" note=${`${number(waiting)} in line now`}>
    <${Chart} id="depth" name="Jobs in line over time" at=${[...bins.at, bins.end]} series=${[{ name: "in line", values: [...bins.last(series.depth), waiting], colour: "--accent", kind: "area" }]} /><//>`;
}

const KINDS = new Set(["user", "project", "tier", "priority", "parent", "provider"]);

function Busiest({ groups }) {
  const most = Math.max(...groups.map((group) => group.acquired + group.rejected), 1);
  const share = (value) => ({ width: `${(value / most) * 100}%` });
  return html`<${Card} title="Busiest groups" id="busiest" note="slots taken, and failures to get one">
    ${groups.length === 0 ? html`<${Empty}>No limited group was used in this time.<//>` : html`<table class="busiest"><thead><tr><th scope="col">Group</th><th scope="col">Slots taken</th><th scope="col">Failures</th><th scope="col">Median wait</th></tr></thead>
      <tbody>${groups.slice(0, 10).map(({ group, acquired, rejected, median_wait_seconds: median }) => html`<tr key=${group}>
        <td>${KINDS.has(group) ? html`<a href=${link("groups", null, { find: `${group}:` })}>${group}:…</a>` : html`<a href=${link("groups", group)}>${group}</a>`}
          <span class="track two" aria-hidden="true"><span class="fill" style=${share(acquired)}></span><span class="fill amber" style=${share(rejected)}></span></span></td>
        <td>${number(acquired)}</td><td>${number(rejected)}</td><td>${median === null ? "–" : median === 0 ? "none" : `up to ${span(median)}`}</td></tr>`)}</tbody></table>`}<//>`;
}
