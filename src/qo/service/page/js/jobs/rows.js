// Rows of jobs in any state, each with what matters for its state.
import { html } from "../../vendor/preact.js";
import { Ago, Priority, Since, State } from "../components/parts.js";
import { moment, range, span } from "../format.js";
import { go, link } from "../route.js";

export function Rows({ rows, isChosen, choose, canChoose }) {
  /** Of a row that has the focus itself: Enter opens its job, Space selects it. */
  function onKeyDown(event) {
    const { id } = event.target.dataset;
    if (id === undefined) return;
    if (event.key === "Enter") go("jobs", id);
    else if (event.key === " " && canChoose) choose(id, !isChosen(id));
    else return;
    event.preventDefault();
  }

  return html`<ol class=${`found ${canChoose ? "choosable" : ""}`} data-steps onKeyDown=${onKeyDown}>${rows.map((job) => html`<li key=${job.id} data-id=${job.id} data-step tabindex="-1">
    ${canChoose && html`<label class="pick"><input type="checkbox" checked=${isChosen(job.id)} aria-label=${`Select ${job.task} ${job.id}`} onChange=${(event) => choose(job.id, event.target.checked)} /></label>`}
    <span class="cell-state"><${State} state=${job.state} status=${job.status} /></span>
    <a class="what" href=${link("jobs", job.id)} title=${job.id}><b>${job.task}</b>${job.project && html` <small>· ${job.project}</small>`}</a>
    <span class="who">${job.user ?? html`<span class="muted">no user</span>`}${job.tier && html` <small>${job.tier}</small>`}</span>
    <${Priority} value=${job.priority} />
    <span class="news"><${News} job=${job} /></span>
    <span class="since"><${Ago} at=${job.finished_at ?? job.started_at ?? job.submitted_at} /></span>
  </li>`)}</ol>`;
}

function News({ job }) {
  switch (job.state) {
    case "queued":
      return html`${job.position ? `#${job.position} in line` : "in line"}${job.estimate?.upper_bound != null ? ` · ${range(job.estimate.lower_bound, job.estimate.upper_bound)}` : ""}${job.waits_for?.[0] && html` <small>${job.waits_for[0].text}</small>`}`;
    case "scheduled":
      return html`joins the line <${Ago} at=${job.run_at} />`;
    case "starting":
    case "running":
      return html`for <${Since} at=${job.started_at} />${job.attempts > 1 && `, attempt ${job.attempts}`} <small>${job.progress?.text ?? job.message}</small>`;
    case "failed":
      return html`<span class="bad">${job.error?.message}</span>`;
    case "succeeded":
      return `ran ${span((moment(job.finished_at) - moment(job.started_at)) / 1000)}`;
    default:
      return job.message;
  }
}
