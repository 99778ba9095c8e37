// What happened: each state and stage of a job, how long it took, all on one axis of time.
import { html } from "../../vendor/preact.js";
import { Card } from "../components/parts.js";
import { absolute, moment, range, span, timeOfDay } from "../format.js";
import { now } from "../state/clock.js";
import { ENDED } from "./reading.js";

const STATES = new Set(["scheduled", "waiting", "queued", "starting", "running", "confirming", "succeeded", "ready", "failed", "cancelled"]);
const MOST_KEPT = 32;

/** The states with begin, end and a note. A stage that comes again begins the next iteration. */
function steps(job, time) {
  const states = job.history?.states ?? [];
  const isWhole = states.length < MOST_KEPT;
  let seen = new Set();
  let iteration = 1;
  let starts = 0;
  return states.map(({ status, at }, index) => {
    const begin = moment(at);
    const isLast = index === states.length - 1;
    const end = isLast ? (ENDED.has(job.state) ? begin : Math.max(time, begin)) : moment(states[index + 1].at);
    const isStage = !STATES.has(status);
    let hasBegun = false;
    if (isStage && seen.has(status)) {
      iteration += 1;
      seen = new Set();
      hasBegun = isWhole && iteration <= job.iterations;
    }
    if (isStage) seen.add(status);
    if (status === "starting") starts += 1;
    const isFirst = index === states.findIndex((each) => each.status === status);
    return { status, begin, end, isStage, isNow: isLast && !ENDED.has(job.state),
      note: noteOf({ job, status, isFirst, isLast, isWhole, starts, isFirstOfAll: index === 0 }) ?? (hasBegun ? `iteration ${iteration}` : null) };
  });
}

function noteOf({ job, status, isFirst, isLast, isWhole, starts, isFirstOfAll }) {
  if (status === "queued" && isFirst && isWhole && job.position_original) return `#${job.position_original} in line`;
  if (status === "starting" && isWhole && starts > 1) return "started again";
  if (status === "confirming") return isLast ? `${job.iterations}/${job.iterations_granted ?? job.iterations} iterations used` : "asked for a confirmation";
  if (status === "scheduled" && isLast && job.run_at) return `until ${absolute(moment(job.run_at))}`;
  if (status === "failed" && isLast) return job.error?.message;
  if (status === "scheduled" && !isLast && !isFirstOfAll) return "tried again after a while";
  if (isLast && !ENDED.has(job.state)) return job.message ?? job.progress?.text;
  return null;
}

/** When the job first started, in milliseconds; null while it waits. */
export function firstStart({ history, started_at: startedAt }) {
  return moment(history?.states.find(({ status }) => status === "starting")?.at ?? startedAt);
}

export function History({ job }) {
  const all = steps(job, now.value);
  if (!all.length) return null;
  const begin = all[0].begin;
  const whole = Math.max(all.at(-1).end - begin, 1);
  const at = (time) => `${((time - begin) / whole) * 100}%`;
  const total = span(whole / 1000);
  return html`<${Card} title="What happened" id="history" class="history" note=${ENDED.has(job.state) ? `${total} in all` : `${total} so far`}>
    <${Promised} job=${job} />
    <ol>${all.map((step, index) => html`<li key=${index} class=${`${step.status} ${step.isStage ? "stage" : ""} ${step.isNow ? "now" : ""}`}>
      <i class="dot" aria-hidden="true"></i><b>${step.status}</b><span class="step-note">${step.note}</span>
      <span class="track" aria-hidden="true"><span class="fill" style=${{ left: `min(${at(step.begin)}, 100% - 3px)`, width: `max(3px, ${((step.end - step.begin) / whole) * 100}%)` }}></span></span>
      <span class="took">${index < all.length - 1 || step.isNow ? span((step.end - step.begin) / 1000) : ""}</span>
      <time datetime=${new Date(step.begin).toISOString()} title=${absolute(step.begin)}>${timeOfDay(step.begin)}</time>
    </li>`)}</ol>
    ${job.history.states.length >= MOST_KEPT && html`<p class="muted foot">The last ${MOST_KEPT} are kept; the job was submitted <time title=${absolute(moment(job.submitted_at))}>${timeOfDay(moment(job.submitted_at))}</time>.</p>`}
  <//>`;
}

/** What its user was first told about the wait, and how it was. */
function Promised({ job }) {
  const promise = job.history?.promise;
  if (!promise) return null;
  const { lower_bound: lower, upper_bound: upper } = promise;
  const made = moment(promise.made_at);
  const started = firstStart(job);
  const waited = ((started ?? (ENDED.has(job.state) ? moment(job.finished_at) : now.value)) - made) / 1000;
  const axis = Math.max(upper, waited, 1) * 1.1;
  const at = (seconds) => `${(seconds / axis) * 100}%`;
  const label = started !== null ? "started after" : ENDED.has(job.state) ? "waited" : "waits since then";
  const verdict = started !== null
    ? waited < lower ? "earlier than promised" : waited <= upper ? "inside the range" : "later than promised"
    : ENDED.has(job.state) ? "it never started" : waited > upper ? "it is late" : "so far";
  return html`<div class=${`promised ${waited > upper ? "late" : ""}`}>
    <span><small>promised at <time title=${absolute(made)}>${timeOfDay(made)}</time></small> <b>${range(lower, upper)}</b></span>
    <span class="track" aria-hidden="true"><span class="span" style=${{ left: at(lower), right: `calc(100% - ${at(upper)})` }}></span><span class="tick" style=${{ left: at(waited) }}></span></span>
    <span><small>${label}</small> <b>${span(waited)}</b>${started === null ? " " : ", "}<small>${verdict}</small></span>
  </div>`;
}

const OUTCOMES = { scheduled: "failed, tried again", confirming: "asked to go on", queued: "handed back", lost: "lost its worker", revoked: "slot released" };

/** Each run of the job: worker, slots, how long, how it ended. */
export function Attempts({ job }) {
  const ended = job.history?.attempts ?? [];
  const isHeld = job.state === "starting" || job.state === "running";
  if (!ended.length && !isHeld) return null;
  const all = isHeld ? [...ended, { number: job.attempts, worker: job.worker, slots: null, started_at: job.started_at, ended_at: null, outcome: job.status }] : ended;
  return html`<${Card} title="Attempts" count=${job.max_attempts ? `${job.attempts} of ${job.max_attempts}` : job.attempts} id="attempts" class="attempts">
    <ol>${[...all].reverse().map((each) => html`<li key=${`${each.number} ${each.started_at}`}>
      <b class="nr">${each.number}</b>
      <span><b class=${`outcome ${each.outcome}`}>${OUTCOMES[each.outcome] ?? each.outcome}</b> <small>after <${Run} attempt=${each} /> on</small> <span class="mono">${each.worker}</span>
        ${each.debug_id && html` <small>debug_id</small> <span class="mono">${each.debug_id}</span>`}
        <small class="slots mono">${each.slots && Object.entries(each.slots).map(([group, slot]) => `${group}#${slot}`).join("  ")}</small></span>
      <time title=${absolute(moment(each.started_at))}>${timeOfDay(moment(each.started_at))}</time>
    </li>`)}</ol>
  <//>`;
}

function Run({ attempt }) {
  const end = attempt.ended_at ? moment(attempt.ended_at) : now.value;
  return span((end - moment(attempt.started_at)) / 1000);
}
