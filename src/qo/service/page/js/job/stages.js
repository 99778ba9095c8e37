// Where a running job is: its stage among those of its task, its progress, its iterations.
import { html, useEffect } from "../../vendor/preact.js";
import { Card, Since } from "../components/parts.js";
import { moment, number, span } from "../format.js";
import { Steps, known, learnTask } from "../line/running.js";
import { now } from "../state/clock.js";

export function Stages({ job }) {
  const isHeld = job.state === "starting" || job.state === "running";
  useEffect(() => void (isHeld && learnTask(job.task)), [job.task, isHeld]);
  if (!isHeld) return null;
  const { progress } = job;
  const { stages, usual } = known.value[job.task] ?? { stages: [], usual: null };
  const words = [
    progress && `${number(progress.done)}${progress.total === null ? "" : ` of ${number(progress.total)}`}${progress.text && progress.text !== job.stage ? ` · ${progress.text}` : ""}`,
    job.iterations > 0 && `iteration ${job.iterations}${job.iterations_granted === null ? "" : ` of ${job.iterations_granted} granted`}`,
    job.attempts > 1 && `attempt ${job.attempts} of ${job.max_attempts}`,
    usual !== null && `usually ${span(usual)}`,
  ].filter(Boolean);
  const seconds = (now.value - moment(job.started_at)) / 1000;
  return html`<${Card} title="Now" id="now" note=${html`running for <${Since} at=${job.started_at} />`}>
    <div class="padded"><p><b>${job.status}</b>${job.message && job.message !== job.status && html` · ${job.message}`}</p>
      <${Steps} job=${job} stages=${stages} share=${usual ? Math.min(seconds / usual, 1) : null} />
      <small>${words.join(" · ")}</small></div>
  <//>`;
}
