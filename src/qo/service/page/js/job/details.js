// The facts of a job: what went wrong, payload and result, usage, audit trail.
import { html } from "../../vendor/preact.js";
import { By, What, When } from "../audit/entries.js";
import { Copy } from "../components/copy.js";
import { Ago, Card } from "../components/parts.js";
import { Tree } from "../components/tree.js";
import { counted, number } from "../format.js";
import { link } from "../route.js";
import { isUser } from "../state/session.js";

export function Failure({ job }) {
  const { error } = job;
  if (!error) return null;
  return html`<${Card} title=${job.state === "failed" ? "Error" : "Last error"} id="error" class="error-card"
    note=${error.debug_id && html`<span class="mono">debug_id ${error.debug_id}</span> <${Copy} text=${error.debug_id} name="Copy the debug_id" />`}>
    <p class="sentence">${error.message}</p>
    ${error.detail && html`<details class="fold"><summary>Detail <small>secrets and paths removed</small></summary><pre>${error.detail}</pre></details>`}
    ${error.debug_id && html`<p class="foot muted">The worker's log has the rest under this debug_id.</p>`}
  <//>`;
}

/** The payload or the result. `value` is undefined where the service does not give it. */
export function Value({ title, value, id }) {
  if (value === undefined) return null;
  return html`<${Card} title=${title} id=${id} note=${html`<${Copy} text=${() => JSON.stringify(value, null, 2)} name=${`Copy the ${title.toLowerCase()}`} />`}>
    <div class="value"><${Tree} value=${value} /></div>
  <//>`;
}

export function Usage({ job }) {
  const { usage } = job;
  if (!usage || !job.user) return null;
  const jobs = usage.jobs_remaining === null ? null : usage.jobs_used + usage.jobs_remaining;
  const iterations = usage.iterations_remaining === null ? null : usage.iterations_used + usage.iterations_remaining;
  const of = (used, all, noun) => (all === null ? counted(used, noun) : `${number(used)} of ${number(all)} ${noun}s`);
  return html`<${Card} title="Usage" id="usage">
    <div class="padded"><p>${job.user}: ${of(usage.jobs_used, jobs, "job")} today · ${of(usage.iterations_used, iterations, "iteration")} of this job</p>
      ${jobs !== null && html`<span class="track" aria-hidden="true"><span class="fill" style=${{ width: `${Math.min(usage.jobs_used / Math.max(jobs, 1), 1) * 100}%` }}></span></span>`}
      <small>resets <${Ago} at=${usage.daily_limit_resets_at} /></small></div>
  <//>`;
}

export function Facts({ job }) {
  const facts = [
    ["Submitted", html`<${Ago} at=${job.submitted_at} />`],
    ["Tier", job.tier],
    ["Groups", job.groups.map((group, index) => html`${index > 0 && ", "}${isUser.value ? group : html`<a href=${link("groups", group)}>${group}</a>`}`)],
    ["Parent", job.parent && html`<a href=${link("jobs", null, { parent: job.parent })}>${job.parent}</a>${job.phase !== null && ` · phase ${job.phase}`}`],
    ["Unique key", job.unique],
    ["Iterations", job.iterations > 0 && `${job.iterations} used${job.iterations_granted === null ? "" : ` of ${job.iterations_granted} granted`}${job.iterations_max === null ? "" : `, ${job.iterations_max} at most`}`],
    ["Timeout", job.timeout_seconds && html`${number(job.timeout_seconds)} s`],
    ["Worker", job.worker && html`<span class="mono">${job.worker}</span>`],
    ["Trace", job.trace && html`<span class="mono">${job.trace}</span>`],
    ["Watch link", job.watch_url && html`<a class="link" href=${job.watch_url}>what the owner sees</a> <${Copy} text=${job.watch_url} name="Copy the watch link" />`],
  ].filter(([, value]) => value);
  return html`<${Card} title="Facts" id="facts"><dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl><//>`;
}

export function Trail({ entries }) {
  if (!entries) return null;
  return html`<${Card} title="Who did what" count=${entries.length} id="audit" note="newest first">
    ${entries.length === 0 && html`<p class="empty">No person has changed this job.</p>`}
    <ol class="trail">${entries.map((entry) => html`<li key=${entry.id}><span><${What} entry=${entry} /></span><${By} entry=${entry} /><${When} entry=${entry} /></li>`)}</ol>
  <//>`;
}
