// What runs: stages as steps, how long against the usual time, attempt, worker, slots.
import { html, signal, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";
import { Ask } from "../components/ask.js";
import { Card, Empty, JobLink, Since } from "../components/parts.js";
import { attempt, toast } from "../components/toast.js";
import { ago, moment, number, shortId, span } from "../format.js";
import { overview } from "../live.js";
import { slotsOf } from "./pressure.js";
import { hasAllRunning, lastEnded, running } from "../state/active.js";
import { now } from "../state/clock.js";
import { canChange } from "../state/session.js";

const SHOWN = 6;

/** The stages of each task, in their order, and its usual run in seconds: learnt from a job that has succeeded. */
export const known = signal({});
const STATES = new Set(["scheduled", "waiting", "queued", "starting", "running", "confirming", "succeeded", "failed", "cancelled", "ready"]);

export async function learnTask(task) {
  if (task in known.value) return;
  known.value = { ...known.value, [task]: { stages: [], usual: null } };
  try {
    const { items } = await get(path("history"), { task, status: "succeeded", limit: 20 });
    const runs = items.map((job) => moment(job.finished_at) - moment(job.started_at)).sort((one, other) => one - other);
    const whole = items.length ? await get(path("jobs", items[0].id)) : null;
    const steps = whole?.history?.states?.map((reached) => reached.status).filter((status) => !STATES.has(status)) ?? [];
    const usual = runs.length ? runs[runs.length >> 1] / 1000 : null;
    known.value = { ...known.value, [task]: { stages: [...new Set(steps)], usual } };
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // the steps are an extra; the row shows its stage without them
  }
}

export function Running() {
  const [all, setAll] = useState(false);
  const jobs = running.value ?? [];
  useEffect(() => {
    for (const job of jobs) learnTask(job.task);
  }, [running.value]);
  const { running: runs = 0, starting: starts = 0 } = overview.value?.counts ?? {};
  // The server's count is seconds old, so it is shown only where not all of them could be read.
  const count = hasAllRunning.value ? jobs.length : Math.max(jobs.length, runs + starts);
  const shown = all ? jobs : jobs.slice(0, SHOWN);
  return html`<${Card} title="Running" count=${number(count)} id="running" class="running">
    ${jobs.length === 0 && html`<${Empty}>${lastEnded.value ? html`Nothing runs. The last job ended ${ago(moment(lastEnded.value), now.value)}.` : html`Nothing runs. A worker takes the first job that has room: <code>qo worker app:worker</code>`}<//>`}
    <ul>${shown.map((job) => html`<${Run} key=${job.id} job=${job} />`)}</ul>
    ${jobs.length > SHOWN && html`<button type="button" class="more" onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show ${jobs.length === count ? "all" : "the first"} ${jobs.length}`}</button>`}
  <//>`;
}

function Run({ job }) {
  const { stages, usual } = known.value[job.task] ?? { stages: [], usual: null };
  const seconds = (now.value - moment(job.started_at)) / 1000;
  return html`<li class="run" data-step tabindex="-1">
    <span class="title"><${JobLink} id=${job.id}><b>${job.task}</b>${job.project && html` · ${job.project}`}<//> <small>${[job.user, job.attempts > 1 && `attempt ${job.attempts} of ${job.max_attempts}`].filter(Boolean).join(" · ")}</small></span>
    <span class="time"><${Since} at=${job.started_at} />${usual !== null && html` <small title="median of the last runs">usually ${span(usual)}</small>`}</span>
    <${Steps} job=${job} stages=${stages} share=${usual ? Math.min(seconds / usual, 1) : null} />
    <span class="held mono" title=${`${slotsOf(job.id)}\nworker ${job.worker ?? "unknown"}`}>${slotsOf(job.id) || job.worker}</span>
    ${canChange.value && html`<${Ask} label="Cancel" name=${`Cancel ${job.task} ${shortId(job.id)}`} kind="quiet cancel" size="small"
      text="It stops where it is, and its slots are free." yes="Cancel job" act=${() => stop(job)} />`}
  </li>`;
}

/** scaffold › code › deps › checks; without stages one bar of the progress, or of the time against the usual. */
export function Steps({ job, stages, share }) {
  const done = job.progress?.total ? job.progress.done / job.progress.total : null;
  if (!stages.length || !job.stage) {
    const width = done ?? share;
    return html`<span class="steps one"><span class="step"><span class="track">${width !== null && html`<span class="fill" style=${{ width: `${width * 100}%` }}></span>`}</span>
      <small>${job.cancel_wanted ? "stopping" : job.message ?? job.progress?.text ?? job.status}</small></span></span>`;
  }
  const here = stages.indexOf(job.stage);
  return html`<span class="steps" role="img" aria-label=${`Stage ${job.stage}, ${here + 1} of ${stages.length}`}>${stages.map((stage, index) => html`<span
    key=${stage} class=${`step ${index < here ? "done" : index === here ? "now" : ""}`}><span class="track"><span class="fill"></span></span><small>${stage}</small></span>`)}</span>`;
}

async function stop(job) {
  if (await attempt(() => send("POST", path("jobs", job.id, "cancel")))) toast(`${job.task} ${shortId(job.id)} is being cancelled.`);
}
