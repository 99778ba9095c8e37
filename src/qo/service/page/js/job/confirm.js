// The banner of a job that asks a person whether it shall go on.
import { html } from "../../vendor/preact.js";
import { Ago } from "../components/parts.js";
import { counted } from "../format.js";
import { CancelButton, change, mayAct } from "./actions.js";

const FAILING_TESTS = /\btests?\b.*\b(fail|do(es)? not pass|broken|red\b)/i;

/** How many more iterations a confirmation grants; null for a question that is not about iterations. */
function more({ iterations_granted: granted, iterations_batch: batch, iterations_max: most }) {
  if (granted === null || batch === null) return null;
  return Math.min(granted + batch, most ?? Infinity) - granted;
}

export function Confirmation({ job, read }) {
  const count = more(job);
  const isFailing = [job.message, job.progress?.text].some((text) => FAILING_TESTS.test(text ?? ""));
  const goesOn = count === null ? "Continue" : `Continue for ${count} More ${count === 1 ? "Iteration" : "Iterations"}`;
  return html`<section class="banner asks-you" aria-label="This job asks for you">
    <span class="pause-sign" aria-hidden="true"></span>
    <div class="grow">
      ${count === null ? html`<b>Confirmation Needed</b>` : html`<b>Iteration Limit Reached</b> · ${job.iterations}/${job.iterations_granted} iterations used`}
      <p>${count === null || count <= 0 ? `${job.message ?? "The job asks whether it shall go on"}.`
        : `Your job has completed ${counted(job.iterations, "build cycle")}${isFailing ? " but tests are still failing" : ""}. Continue for ${count} more ${count === 1 ? "cycle" : "cycles"}?`}
        <span class="muted"> It has asked since <${Ago} at=${job.confirmation_required_at} />, holds no slot while it waits, and fails when nobody answers in time.</span></p>
    </div>
    ${mayAct() && html`<div class="buttons"><${CancelButton} job=${job} read=${read} />
      ${(count === null || count > 0) && html`<button type="button" class="primary"
        onClick=${() => change(job, "confirm", (after) => (after.position ? `It goes on: at place ${after.position} in line.` : "It goes on."), read)}>${goesOn}</button>`}</div>`}
  </section>`;
}
