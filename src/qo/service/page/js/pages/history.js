// Jobs that have ended, as far back as the history goes, and the figures of each day.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { Chart } from "../charts/chart.js";
import { Card, Chip, Empty } from "../components/parts.js";
import { attempt } from "../components/toast.js";
import { counted, number, span } from "../format.js";
import { Rows } from "../jobs/rows.js";
import { onReset } from "../live.js";
import { setQuery } from "../route.js";

const PAGE_ROWS = 50;
const DAY_MS = 86_400_000;
const RANGES = [[7, "7 days"], [30, "30 days"], [90, "90 days"]];
const ENDS = ["succeeded", "failed", "cancelled"];

export function Page({ route }) {
  const { state = "", task = "", user = "", tier = "" } = route.query;
  const days = RANGES.find(([each]) => String(each) === route.query.days)?.[0] ?? 30;
  const set = (name) => (event) => setQuery({ [name]: event.target.value.trim() || null }, { replace: true });
  return html`<h1 class="unseen">History</h1>
    <div class="filters" role="group" aria-label="Time range"><span class="muted">The last</span>
      ${RANGES.map(([each, name]) => html`<${Chip} key=${each} pressed=${each === days} onPress=${() => setQuery({ days: each === 30 ? null : each })}>${name}<//>`)}</div>
    <form class="audit-find" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>Task <input value=${task} placeholder="any" onChange=${set("task")} /></label>
      <label>Tier <input value=${tier} placeholder="any" onChange=${set("tier")} /></label>
      <label>User <input data-find value=${user} placeholder="anybody" onChange=${set("user")} /></label>
      <label>End <select value=${state} onChange=${set("state")}><option value="">any</option>${ENDS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      ${(state || task || user || tier) && html`<button type="button" class="link" onClick=${() => setQuery({ state: null, task: null, user: null, tier: null })}>show all</button>`}
    </form>
    <${Days} query=${{ days, task, tier }} />
    <${Ended} query=${{ status: state, task, user, tier }} />`;
}

/** What an address answers: {found} or {problem}, and neither while it is not known. */
function useAnswer(address, query) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    let hasStopped = false;
    let hasFailed = false;
    const ask = () => get(address, query).then((found) => !hasStopped && setAnswer({ found }), (problem) => {
      if (!(problem instanceof Problem)) throw problem;
      hasFailed = true;
      if (!hasStopped) setAnswer({ problem });
    });
    setAnswer({});
    ask();
    const end = onReset(() => hasFailed && ((hasFailed = false), ask()));
    return () => {
      hasStopped = true;
      end();
    };
  }, [address, JSON.stringify(query)]);
  return [answer, setAnswer];
}

function Days({ query }) {
  const [{ found, problem }] = useAnswer(path("history", "daily"), query);
  if (!found) return html`<${Card} title="By day"><${Empty}>${problem?.message ?? "Reading the days …"}<//><//>`;
  if (!found.items.length) return html`<${Card} title="By day"><${Empty}>Nothing was submitted in these days.<//><//>`;
  const { at, of } = everyDay(found.items, query.days);
  const ended = of((each) => each.succeeded + each.failed + each.cancelled, 0);
  const failed = of((each) => each.failed, 0);
  const total = ended.reduce((sum, each) => sum + each, 0);
  const note = `${counted(total, "job")} ended, ${number(failed.reduce((sum, each) => sum + each, 0))} failed${found.is_complete ? "" : " · only the newest jobs that the store keeps"}`;
  return html`<div class="charts three">
    <${Card} title="Jobs by day" id="ended" note=${note}>
      <${Chart} id="ended" name="Jobs of each day that ended and failed" at=${at} series=${[
        { name: "ended", values: ended, colour: "--accent-mid", kind: "bars" },
        { name: "failed", values: failed, colour: "--red", kind: "bars" },
      ]} /><//>
    <${Spans} id="waited" title="Wait by day" name="How long the jobs of each day waited" at=${at} half=${of((each) => each.wait_p50)} most=${of((each) => each.wait_p95)} />
    <${Spans} id="ran" title="Run by day" name="How long the jobs of each day ran" at=${at} half=${of((each) => each.run_p50)} most=${of((each) => each.run_p95)} /></div>`;
}

/** All days of the range: those without a job are days, too. */
function everyDay(items, days) {
  const byDay = new Map(items.map((each) => [Date.parse(each.day), each]));
  const last = Math.max(...byDay.keys());
  const first = Math.min(last - (days - 1) * DAY_MS, ...byDay.keys());
  const at = Array.from({ length: (last - first) / DAY_MS + 1 }, (_, index) => first + index * DAY_MS);
  return { at, of: (value, none = null) => at.map((day) => (byDay.has(day) ? value(byDay.get(day)) : none)) };
}

function Spans({ id, title, name, at, half, most }) {
  return html`<${Card} title=${title} id=${id} note="by the day of their submit, UTC">
    <${Chart} id=${id} name=${name} at=${at} shown=${span} series=${[
      { name: "half of them up to", values: half, colour: "--accent", kind: "line" },
      { name: "95 % up to", values: most, colour: "--text", kind: "line", dash: [5, 4] },
    ]} /><//>`;
}

function Ended({ query }) {
  const [{ found, problem }, setAnswer] = useAnswer(path("history"), { ...query, limit: PAGE_ROWS });

  async function readMore() {
    const page = await attempt(() => get(path("history"), { ...query, after: found.next, limit: PAGE_ROWS }));
    if (page) setAnswer({ found: { items: [...found.items, ...page.items], next: page.next } });
  }

  return html`<${Card} title=${found ? `${counted(found.items.length, "job")}${found.next ? ", the newest" : ""}` : "Jobs"} id="history" note="that have ended, newest first">
    ${!found ? html`<${Empty}>${problem?.message ?? "Reading the history …"}<//>`
      : found.items.length === 0 ? html`<${Empty}>The history has no such jobs.<//>`
      : html`<${Rows} rows=${found.items} canChoose=${false} isChosen=${() => false} />`}
    ${found?.next && html`<button type="button" class="more" onClick=${readMore}>Show older ones</button>`}<//>`;
}
