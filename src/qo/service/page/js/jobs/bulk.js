// Acting on many jobs: first a dry run, shown; then, when it is confirmed, portion by portion, with what was skipped.
import { html, signal, useLayoutEffect, useRef } from "../../vendor/preact.js";
import { path, send } from "../api.js";
import { JobLink } from "../components/parts.js";
import { say } from "../components/said.js";
import { attempt } from "../components/toast.js";
import { PRIORITIES, counted, number } from "../format.js";
import { asQuery } from "./filter.js";

const ENDED = ["succeeded", "failed", "cancelled"];
const BEFORE_IT_RUNS = ["scheduled", "waiting", "queued", "confirming"];
const MOST_COUNTED = 10_000;
const DONE = { cancel: "cancelled", retry: "put in line again", priority: "given the priority" };

/** The actions that at least one of these states allows. */
export function allowed(states) {
  const has = (wanted) => states.some((state) => wanted.includes(state));
  return [
    states.some((state) => !ENDED.includes(state)) && { action: "cancel", label: "Cancel" },
    has(["failed"]) && { action: "retry", label: "Retry" },
    ...(has(BEFORE_IT_RUNS) ? PRIORITIES.map(({ value, name, shape }) => ({ action: "priority", priority: value, label: `${shape} ${name}`, name })) : []),
  ].filter(Boolean);
}

/** What is under way: null, or {phase: "asks" | "runs" | "done", wanted, which, count, done, skipped}. */
export const bulk = signal(null);

/** Ask the service what an action would do. `which`: {ids} or {filter}. */
export async function dryRun(wanted, which) {
  const { action, priority } = wanted;
  const body = { action, priority, ...(which.ids ? { ids: which.ids } : { filter: asQuery(which.filter) }) };
  const answer = await attempt(() => send("POST", path("jobs", "actions"), body));
  if (!answer) return;
  bulk.value = { phase: "asks", wanted, body, count: answer.count, asOf: answer.as_of, done: 0, skipped: answer.skipped };
  say(`${counted(answer.count, "job")} would be ${doneWords(wanted)}, ${number(answer.skipped.length)} skipped.`);
}

export async function run(after = () => {}) {
  const { body, count, asOf, wanted } = bulk.value;
  let next = null;
  const skipped = [];
  let done = 0;
  bulk.value = { ...bulk.value, phase: "runs", skipped: [] };
  do {
    const answer = await attempt(() => send("POST", path("jobs", "actions"), { ...body, confirm: count, as_of: asOf, after: next ?? undefined }));
    if (!answer) {
      bulk.value = { ...bulk.value, phase: "done", isBroken: true };
      break;
    }
    done += answer.count;
    skipped.push(...answer.skipped);
    next = answer.next;
    bulk.value = { ...bulk.value, done, skipped };
  } while (next);
  if (!bulk.value.isBroken) bulk.value = { ...bulk.value, phase: "done" };
  say(`${counted(done, "job")} ${doneWords(wanted)}, ${number(skipped.length)} skipped.`);
  await after();
}

function doneWords({ action, name }) {
  return action === "priority" ? `${DONE.priority} ${name}` : DONE[action];
}

const PROMISES = {
  cancel: "Jobs in line leave it, jobs that run are stopped. This cannot be undone.",
  retry: "Each draws a new place in line and has all its attempts again.",
  priority: "Their places in line change at once.",
};

export function Bulk({ onEnd }) {
  const { phase, wanted, count, done, skipped, isBroken } = bulk.value;
  const close = () => (bulk.value = null);
  const isAsking = phase === "asks";
  const keeps = useRef(null);
  const progress = useRef(null);
  useLayoutEffect(() => (isAsking ? keeps : progress).current.focus(), [isAsking]);
  if (isAsking) {
    const many = count >= MOST_COUNTED ? `${number(count)} or more jobs` : counted(count, "job");
    const verb = wanted.action === "priority" ? `Give ${many} the priority ${wanted.name}` : `${wanted.label} ${many}`;
    return html`<section class="banner bulk" role="group" aria-label="Confirm the action" onKeyDown=${(event) => event.key === "Escape" && close()}>
      <div class="grow">${count > 0 ? html`<b>${verb}?</b> ${PROMISES[wanted.action]}` : html`<b>None of these jobs can be ${doneWords(wanted)}.</b>`}<${Skipped} skipped=${skipped} future=${true} /></div>
      <div class="buttons"><button type="button" ref=${keeps} onClick=${close}>${count > 0 ? "Leave them" : "Close"}</button>
        ${count > 0 && html`<button type="button" class=${wanted.action === "cancel" ? "danger" : "primary"} onClick=${() => run(onEnd)}>${verb}</button>`}</div>
    </section>`;
  }
  return html`<section class="banner bulk" role="group" aria-label="Progress of the action" ref=${progress} tabindex="-1">
    <div class="grow"><b>${number(done)} of ${counted(count, "job")} ${doneWords(wanted)}${phase === "runs" ? " …" : "."}</b>
      ${isBroken && html` <span class="bad">It stopped before the end; those named here are done, the others are as they were.</span>`}
      <span class="track" role="progressbar" aria-label="Progress" aria-valuemin="0" aria-valuemax=${count} aria-valuenow=${done}><span class="fill" style=${{ width: `${(done / Math.max(count, 1)) * 100}%` }}></span></span>
      <${Skipped} skipped=${skipped} /></div>
    ${phase === "done" && html`<button type="button" onClick=${close}>Close</button>`}
  </section>`;
}

/** How many were skipped for each reason, and which. */
function Skipped({ skipped, future }) {
  if (!skipped.length) return null;
  const reasons = Map.groupBy(skipped, ({ reason }) => reason);
  return html`<ul class="skipped">${[...reasons].map(([reason, jobs]) => html`<li key=${reason}><details><summary>${counted(jobs.length, "job")} ${future ? "will be" : jobs.length === 1 ? "was" : "were"} skipped: ${reason}</summary>
    <div class="holders">${jobs.slice(0, 50).map(({ id }) => html`<span class="held-slot" key=${id}><${JobLink} id=${id} /></span>`)}${jobs.length > 50 && html`<small>and ${number(jobs.length - 50)} more</small>`}</div></details></li>`)}</ul>`;
}
