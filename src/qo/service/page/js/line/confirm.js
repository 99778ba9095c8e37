// The banner of the jobs that ask a person whether they shall go on.
import { html } from "../../vendor/preact.js";
import { path, send } from "../api.js";
import { attempt, toast } from "../components/toast.js";
import { counted, shortId } from "../format.js";
import { link } from "../route.js";
import { confirming } from "../state/active.js";
import { canChange } from "../state/session.js";

const NAMED = 3;

export function ConfirmBanner() {
  const jobs = confirming.value ?? [];
  if (!jobs.length) return null;
  const names = jobs.slice(0, NAMED).map((job) => [job.user, job.project].filter(Boolean).join(" · ") || shortId(job.id));
  const more = jobs.length > NAMED ? ` and ${jobs.length - NAMED} more` : "";
  const one = jobs.length === 1 ? jobs[0] : null;
  const countsIterations = jobs.every((job) => job.iterations_granted);
  const used = one ? `has used ${one.iterations} of ${one.iterations_granted} iterations and holds` : "have used their iterations and hold";
  const words = countsIterations ? used : one ? "waits for an answer and holds" : "wait for an answer and hold";
  return html`<section class="banner" aria-label="Jobs that ask for you">
    <span class="pause-sign" aria-hidden="true"></span>
    <span class="grow"><b>${counted(jobs.length, "job")} ${one ? "asks" : "ask"} to go on.</b> ${names.join(", ")}${more} ${words} no slots.</span>
    ${one && canChange.value && html`<button type="button" class="primary" onClick=${() => goOn(one)}>${one.message ?? "Let it go on"}</button>`}
    <a class="button" href=${one ? link("jobs", one.id) : link("jobs", null, { state: "confirming" })}>Look at ${one ? "it" : "them"}</a>
  </section>`;
}

async function goOn(job) {
  if (await attempt(() => send("POST", path("jobs", job.id, "confirm")))) toast(`${job.task} ${shortId(job.id)} goes on.`);
}
