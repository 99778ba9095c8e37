// One job: where it is, why it waits, what happened, what it was given and what it gave.
import { html, useEffect } from "../../vendor/preact.js";
import { Copy } from "../components/copy.js";
import { Card, Empty, State } from "../components/parts.js";
import { title } from "../format.js";
import { Actions, PriorityMenu } from "../job/actions.js";
import { Confirmation } from "../job/confirm.js";
import { Facts, Failure, Trail, Usage, Value } from "../job/details.js";
import { Attempts, History } from "../job/history.js";
import { useJob } from "../job/reading.js";
import { Stages } from "../job/stages.js";
import { Place, Reasons } from "../job/waiting.js";
import { link } from "../route.js";

export function Page({ route }) {
  const { job, why, neighbours, audit, problem, read } = useJob(route.id);
  const name = job && title(job);
  useEffect(() => void (name && (document.title = `${name} · qo`)), [name]);
  if (!job) return html`<h1 class="unseen">Job ${route.id}</h1><${Card} title="Job" id="missing"><${Missing} id=${route.id} problem=${problem} /><//>`;
  return html`<header class="job-head">
      <div><h1>${title(job)}</h1> <${State} state=${job.state} status=${job.status} /> <${PriorityMenu} job=${job} read=${read} />
        <span class="muted">${job.user ? html`<a href=${link("jobs", null, { user: job.user })}>${job.user}</a>` : "no user"}${job.tier && ` · ${job.tier}`}</span></div>
      <div class="whole-id"><span class="mono">${job.id}</span> <${Copy} text=${job.id} name="Copy the id" /></div>
      <${Actions} job=${job} read=${read} />
    </header>
    ${problem?.status === 404 && html`<p class="muted">The server no longer keeps this job; this is what it was.</p>`}
    ${job.state === "confirming" && html`<${Confirmation} job=${job} read=${read} />`}
    <div class="job-columns">
      <div>
        <${Place} job=${job} neighbours=${neighbours} />
        <${Stages} job=${job} />
        <${History} job=${job} />
        <${Attempts} job=${job} />
        <${Trail} entries=${audit} />
      </div>
      <div>
        <${Failure} job=${job} />
        <${Reasons} job=${job} why=${why} />
        ${job.state === "succeeded" && html`<${Value} title="Result" id="result" value=${job.result} />`}
        <${Value} title="Payload" id="payload" value=${job.data} />
        <${Usage} job=${job} />
        <${Facts} job=${job} />
      </div>
    </div>`;
}

function Missing({ id, problem }) {
  if (!problem) return html`<${Empty}>Reading the job …<//>`;
  if (problem.status !== 404) return html`<${Empty}>${problem.message}<//>`;
  return html`<${Empty}>There is no job <span class="mono">${id}</span>. It may have been removed after its time, or the id is not complete: <a class="link" href=${link("jobs", null, { id })}>find jobs whose id begins so</a>.<//>`;
}
