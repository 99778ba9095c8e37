// The row of figures at the top: how much waits, runs, starts and fails.
import { html } from "../../vendor/preact.js";
import { counted, number, priority, span } from "../format.js";
import { groups, overview, waiting, workers } from "../live.js";
import { link } from "../route.js";
import { now } from "../state/clock.js";
import { running } from "../state/active.js";

export function Figures({ oldest }) {
  const figures = overview.value?.last_hour;
  return html`<section class="figures card" aria-label="Figures">
    <${InLine} oldest=${oldest} /><${Running} /><${Started} figures=${figures} /><${Wait} figures=${figures} />
    <${Promise_} figures=${figures} /><${Failed} figures=${figures} />
  </section>`;
}

function Figure({ title, value, unit, note, href, children }) {
  return html`<div class="figure"><span class="name">${title}</span>
    <span class="value">${href ? html`<a href=${href}>${value}</a>` : value} ${unit && html`<small>${unit}</small>`}</span>
    <span class="below">${children ?? note}</span></div>`;
}

function InLine({ oldest }) {
  const count = waiting.value;
  const note = oldest ? `oldest ${span((now.value - Date.parse(oldest)) / 1000)}` : count === 0 ? "nobody waits" : "in one order";
  return html`<${Figure} title="In line" value=${count === null ? "–" : number(count)} note=${note} />`;
}

function Running() {
  const all = groups.value?.find((each) => each.group === "global");
  const count = overview.value?.counts ? (overview.value.counts.running ?? 0) + (overview.value.counts.starting ?? 0) : running.value?.length;
  const live = workers.value ?? [];
  const capacity = live.reduce((sum, each) => sum + each.capacity, 0);
  return html`<${Figure} title="Running" value=${count === undefined ? "–" : number(count)}
    unit=${all?.limit != null ? `of ${counted(all.limit, "slot")}` : ""} note=${workers.value && `${counted(live.length, "worker")}, capacity ${number(capacity)}`} />`;
}

function Started({ figures }) {
  const flow = overview.value?.flow;
  return html`<${Figure} title="Started" value=${flow ? number(flow.started) : "–"} unit="a minute">
    ${figures && html`<${Bars} values=${figures.started} />`}<//>`;
}

/** A small chart for the shape of it; the numbers are on the page Insight. */
function Bars({ values }) {
  const most = Math.max(...values, 1);
  return html`<svg class="bars" viewBox=${`0 0 ${values.length * 8} 16`} aria-hidden="true">${values.map((value, index) => html`<rect
    x=${index * 8} width="7" y=${16 - Math.max(1, (value / most) * 16)} height=${Math.max(1, (value / most) * 16)} />`)}</svg>`;
}

function Wait({ figures }) {
  const byPriority = Object.entries(figures?.average_wait_seconds ?? {}).map(([value, seconds]) => [Number(value), seconds]);
  const normal = byPriority.find(([value]) => value === 50) ?? byPriority[0];
  const named = byPriority.filter(([value]) => [10, 70].includes(value));
  return html`<${Figure} title="Wait, average" value=${normal ? span(normal[1]) : "–"}
    note=${named.map(([value, seconds]) => `${priority(value).name} ${span(seconds)}`).join(" · ") || "of the last hour"} />`;
}

function Promise_({ figures }) {
  const kept = figures?.promise;
  const share = kept && kept.kept + kept.missed > 0 ? Math.round((100 * kept.kept) / (kept.kept + kept.missed)) : null;
  return html`<${Figure} title="Promise kept" value=${share === null ? "–" : `${share} %`}
    note=${share === null ? "no start was measured yet" : "of 80 % meant, last hour"} href=${link("insight")} />`;
}

function Failed({ figures }) {
  const ended = figures?.ended ?? {};
  const total = Object.entries(ended).reduce((sum, [state, count]) => (state === "scheduled" ? sum : sum + count), 0);
  const again = ended.scheduled ?? 0;
  return html`<${Figure} title="Failed" value=${figures ? number(ended.failed ?? 0) : "–"} unit=${figures && `of ${number(total)}`}
    href=${link("jobs", null, { state: "failed" })} note=${again ? `${counted(again, "try", "tries")} repeated, last hour` : "last hour"} />`;
}
