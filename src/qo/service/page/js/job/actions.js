// What can be done with one job: only what its state allows, said in place before it is done.
import { html } from "../../vendor/preact.js";
import { path, send } from "../api.js";
import { Ask } from "../components/ask.js";
import { Menu } from "../components/menu.js";
import { Priority } from "../components/parts.js";
import { attempt, toast, toastDone } from "../components/toast.js";
import { PRIORITIES, priority } from "../format.js";
import { link } from "../route.js";
import { canChange, session } from "../state/session.js";
import { ENDED } from "./reading.js";

const BEFORE_IT_RUNS = new Set(["scheduled", "waiting", "queued"]);
const ON_CANCEL = {
  queued: "It leaves the line and does not run.",
  scheduled: "It will not run.",
  waiting: "It will not run.",
  confirming: "It ends here and does not go on.",
};

export const ON_RETRY = "It draws a new place in line and has all its attempts again.";

/** What cancelling a job does, in the state that it is in. */
export function onCancel({ state }) {
  return ON_CANCEL[state] ?? "It stops where it is, and its slots are free.";
}

/** Whether this visitor may cancel, confirm and retry: admins all jobs, users their own. */
export function mayAct() {
  return canChange.value || session.value?.role === "user";
}

export function CancelButton({ job, read }) {
  return html`<${Ask} label="Cancel Job" yes="Cancel job" text=${onCancel(job)}
    act=${() => change(job, "cancel", (after) => (ENDED.has(after.state) ? "The job is cancelled." : "The job is being stopped."), read)} />`;
}

export async function change(job, action, words, read) {
  const after = await attempt(() => send("POST", path("jobs", job.id, action)));
  if (after) toast(words(after));
  await read();
}

async function setPriority(job, value, read) {
  const after = await attempt(() => send("PATCH", path("queue", job.id, "priority"), { priority: value }));
  if (after) {
    const place = after.position ? `, now at place ${after.position}` : "";
    toastDone(`The priority is ${priority(value).name}${place}.`, after.audit_id, read);
  }
  await read();
}

/** The priority, as a menu where it can be changed. */
export function PriorityMenu({ job, read }) {
  if (!canChange.value || !BEFORE_IT_RUNS.has(job.state)) return html`<${Priority} value=${job.priority} />`;
  return html`<${Menu} class="bare" label=${html`<${Priority} value=${job.priority} />`} name=${`Priority ${priority(job.priority).name}, change it`}
    items=${PRIORITIES.map(({ value, name, shape }) => ({
      label: `${shape} ${name}`,
      hint: value === job.priority ? "now" : String(value),
      disabled: value === job.priority,
      act: () => setPriority(job, value, read),
    }))} />`;
}

export function Actions({ job, read }) {
  if (!mayAct()) return null;
  return html`<div class="job-actions">
    ${job.state === "failed" && html`<${Ask} label="Retry" yes="Retry" no="Leave it" text=${ON_RETRY}
      act=${() => change(job, "retry", (after) => (after.position ? `In line again, at place ${after.position}.` : "In line again."), read)} />`}
    ${canChange.value && html`<a class="button" href=${link("submit", null, { like: job.id })}>Submit one like it</a>`}
    ${!ENDED.has(job.state) && job.state !== "confirming" && (job.cancel_wanted
      ? html`<span class="muted">it is being stopped</span>` : html`<${CancelButton} job=${job} read=${read} />`)}
  </div>`;
}
