// Workers: what each takes and runs, and tasks that no worker takes.
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { Ago, Card, Empty, JobLink, Since } from "../components/parts.js";
import { attempt } from "../components/toast.js";
import { absolute, counted, moment, number, span } from "../format.js";
import { WhatIf } from "../groups/what-if.js";
import { connection, overview, workers } from "../live.js";
import { link, setQuery } from "../route.js";
import { readActive, running } from "../state/active.js";
import { now } from "../state/clock.js";

const MOST_JOBS = 8;
const MOST_TASKS = 12;

export function Page({ route }) {
  useEffect(() => void attempt(readActive), []);
  const live = workers.value ?? [];
  const capacity = live.reduce((sum, each) => sum + each.capacity, 0);
  const busy = live.reduce((sum, each) => sum + each.running, 0);
  return html`<h1 class="unseen">Workers</h1>
    <${Unstaffed} />
    <${Card} title="Workers" id="workers" class="workers" count=${number(live.length)} note=${live.length > 0 && `capacity ${number(capacity)}, ${number(busy)} in use`}>
      ${live.length === 0 && html`<${Empty}>${workers.value === null
        ? (connection.value.state === "lost" ? "The workers could not be read." : "Reading the workers …")
        : html`No worker is live, so nothing starts. Start one: <code>qo worker app:worker</code>`}<//>`}
      ${live.length > 0 && html`<table class="stacked"><thead><tr><th scope="col">Worker</th><th scope="col">Tasks</th><th scope="col">Capacity</th><th scope="col">Last sign of life</th><th scope="col">Runs</th></tr></thead>
        <tbody data-steps>${live.map((worker) => html`<${Worker} key=${worker.name} worker=${worker} isNamed=${route.id === worker.name} query=${route.query} />`)}</tbody></table>`}
    <//>`;
}

/** The first line of the page: jobs that nobody will ever start. */
function Unstaffed() {
  const tasks = (overview.value?.waits_for ?? []).filter((each) => each.kind === "no_worker");
  return tasks.map(({ group: task, count }) => html`<section key=${task} class="banner" aria-label=${`Task ${task} without a worker`}>
    <span class="sign" aria-hidden="true">!</span>
    <span class="grow"><b>No worker runs task ${task}.</b> ${counted(count, "job waits", "jobs wait")} for one. Start a worker that has this task: <code>qo worker app:worker</code></span>
    <a class="button" href=${link("line", null, { waits: `no_worker ${task}` })}>Look at ${count === 1 ? "it" : "them"}</a>
  </section>`);
}

function Worker({ worker, isNamed, query }) {
  const element = useRef(null);
  useEffect(() => {
    if (isNamed) element.current.scrollIntoView({ block: "center" });
  }, [isNamed]);
  const jobs = (running.value ?? []).filter((job) => job.worker === worker.name);
  const asks = query.worker === worker.name;
  return html`<tr ref=${element} class=${isNamed ? "named" : ""} data-step tabindex="-1">
      <td data-label="worker"><span><b>${worker.name}</b><small class="block">${[worker.host, worker.pid && `process ${worker.pid}`].filter(Boolean).join(" · ")}</small></span></td>
      <td data-label="tasks"><${Tasks} tasks=${worker.tasks} /></td>
      <td data-label="capacity"><span class="load">${number(worker.running)} of ${number(worker.capacity)}<span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${Math.min(worker.running / worker.capacity, 1) * 100}%` }}></span></span>
        <button type="button" class="link" aria-expanded=${asks} onClick=${() => setQuery({ worker: asks ? null : worker.name, capacity: null })}>What if …</button></span></td>
      <td data-label="last sign of life"><${Life} worker=${worker} /></td>
      <td data-label="runs"><${Jobs} jobs=${jobs} count=${worker.running} /></td>
    </tr>
    ${asks && html`<tr><td colspan="5"><${WhatIf} kind="capacity" name=${worker.name} present=${worker.capacity} wanted=${query.capacity === undefined ? null : Number(query.capacity)} field="capacity" label="What if its capacity were">
      ${() => html`<small>It is set where the worker starts: <code>qo worker --concurrency N</code></small>`}<//></td></tr>`}`;
}

function Tasks({ tasks }) {
  const shown = tasks.slice(0, MOST_TASKS);
  return html`<span class="tasks">${shown.map((task) => html`<span class="badge" key=${task}>${task}</span>`)}${tasks.length > shown.length && html`<small title=${tasks.slice(MOST_TASKS).join("\n")}>and ${tasks.length - shown.length} more</small>`}</span>`;
}

/** A worker that has been silent for more than half of the time that it may be. */
function Life({ worker: { heard_at: heard, expires_at: expires, registered_at: registered } }) {
  const left = (moment(expires) - now.value) / 1000;
  const isLate = left < (moment(expires) - moment(heard)) / 2000;
  return html`<span><span class=${isLate ? "amber" : ""}><${Ago} at=${heard} /></span><small class="block" title=${`counts as gone ${absolute(moment(expires))}`}>${isLate ? (left > 0 ? `counts as gone in ${span(left)}` : "counts as gone") : html`up for <${Since} at=${registered} />`}</small></span>`;
}

function Jobs({ jobs, count }) {
  if (count === 0 && jobs.length === 0) return html`<small>nothing</small>`;
  return html`<ul class="runs">${jobs.slice(0, MOST_JOBS).map((job) => html`<li key=${job.id}><${JobLink} id=${job.id}><b>${job.task}</b>${job.project && ` · ${job.project}`}<//> <small>${job.user} · ${job.cancel_wanted ? "stopping" : job.status} · <${Since} at=${job.started_at} /></small></li>`)}
    ${count > Math.min(jobs.length, MOST_JOBS) && html`<li><small>and ${number(count - Math.min(jobs.length, MOST_JOBS))} more</small></li>`}</ul>`;
}
