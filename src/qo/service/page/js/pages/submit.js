// Submit a job: what it would wait before it is sent, the place that it got after.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";
import { Copy } from "../components/copy.js";
import { Card, JobLink } from "../components/parts.js";
import { say } from "../components/said.js";
import { attempt } from "../components/toast.js";
import { parseExact } from "../exact.js";
import { workers } from "../live.js";
import { link, setQuery } from "../route.js";
import { canChange, session } from "../state/session.js";
import { Expected } from "../submit/expected.js";
import { checkPayload } from "../submit/payload.js";

const PRIORITIES = [
  [50, "Normal Priority", "•"],
  [20, "High Priority", "▲"],
  [10, "Urgent (Jump Queue)", "▲▲"],
  [70, "Low Priority", "▽"],
  [90, "Background", "▽▽"],
];
const NAMES = ["task", "user", "project", "tier"];

export function Page({ route }) {
  const [payload, setPayload] = useState("");
  const [refused, setRefused] = useState(null);
  const [made, setMade] = useState([]);
  const [isSending, setSending] = useState(false);
  const form = useRef(null);
  const { like } = route.query;
  useEffect(() => void (like && attempt(() => fillFrom(like, setPayload))), [like]);

  // The fields are in the address: a form that is half filled in can be sent to a colleague.
  const fields = { ...Object.fromEntries(NAMES.map((name) => [name, route.query[name] ?? ""])), priority: Number(route.query.priority ?? 50) };
  const change = (name, value) => (setRefused(null), setQuery({ [name]: value === "" ? null : String(value), like: null }, { replace: true }));
  const checked = checkPayload(payload);
  const isAdmin = canChange.value;
  const asked = isAdmin ? fields : { task: fields.task, priority: fields.priority };

  async function submit(event) {
    event.preventDefault();
    if (checked.wrong || isSending) return form.current.elements.data.focus();
    setSending(true);
    setRefused(null);
    const given = Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== ""));
    try {
      const job = await send("POST", path("jobs"), checked.value === undefined ? given : { ...given, data: checked.value });
      setMade([job, ...made].slice(0, 10));
      say(`${job.task} submitted. ${job.message ?? job.status}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      setRefused(problem);
      form.current.elements[problem.field]?.focus?.();
    } finally {
      setSending(false);
    }
  }

  if (session.value.role === "viewer") return html`<h1>Submit a job</h1><${Card} title="Not with this key" id="viewer"><p class="empty">The key of a viewer sees everything and changes nothing. Sign in with the key of an admin or of a user.</p><//>`;
  const tasks = [...new Set((workers.value ?? []).flatMap((worker) => worker.tasks))].sort();
  const isUnknown = isAdmin && fields.task && workers.value && !tasks.includes(fields.task);
  return html`<h1>Submit a job</h1>
    <div class="submit-columns">
      <section class="card"><form ref=${form} class="form" onSubmit=${submit}>
        <div class="field"><label>Task <input name="task" required list="tasks" autocomplete="off" value=${fields.task} onInput=${(event) => change("task", event.target.value.trim())}
          aria-invalid=${refused?.field === "task"} aria-describedby="task-note" /></label>
          <small id="task-note">${isUnknown ? html`<span class="amber">No live worker runs ${fields.task}: the job would wait until one comes.</span>` : tasks.length ? `Live workers run ${tasks.join(", ")}.` : "The name under which a worker has the function."}</small></div>
        <datalist id="tasks">${tasks.map((task) => html`<option value=${task} />`)}</datalist>
        <div class="field"><label>Payload, as JSON <textarea name="data" spellcheck=${false} placeholder='{"app": 7}' value=${payload} onInput=${(event) => (setRefused(null), setPayload(event.target.value))}
          aria-invalid=${Boolean(checked.wrong)} aria-describedby="payload-note"></textarea></label>
          <small id="payload-note" class=${checked.wrong ? "bad" : ""} aria-live="polite">${checked.wrong ?? checked.words}</small></div>
        <fieldset class="field"><legend>Priority</legend><div class="radios">${PRIORITIES.map(([value, name, shape]) => html`<label key=${value}>
          <input type="radio" name="priority" value=${value} checked=${fields.priority === value} onChange=${() => change("priority", value)} /><span aria-hidden="true">${shape}</span>${name}</label>`)}</div></fieldset>
        ${isAdmin && html`<div class="three">${[["user", "User"], ["project", "Project"], ["tier", "Tier"]].map(([name, title]) => html`<label key=${name}>${title}
          <input name=${name} value=${fields[name]} autocomplete="off" aria-invalid=${refused?.field === name} onInput=${(event) => change(name, event.target.value.trim())} /></label>`)}</div>`}
        ${refused && html`<p class="bad" role="alert"><b>${refused.title}.</b> ${refused.message}</p>`}
        <div class="buttons"><button class="primary" aria-disabled=${isSending}>${isSending ? "Sending …" : "Submit"}</button></div>
      </form></section>
      <div class="job-columns one">
        <${Card} title="Wait to expect" id="expected" note="before it is sent"><${Expected} fields=${asked} /><//>
        ${made.map((job) => html`<${Made} key=${job.id} job=${job} />`)}
        <${Card} title="The same from elsewhere" id="elsewhere"><div class="padded"><code class="command">${command(asked, checked)}</code></div><//>
      </div>
    </div>`;
}

async function fillFrom(id, setPayload) {
  const job = await get(path("jobs", id), {}, function exactData(text) {
    return { ...JSON.parse(text), data: parseExact(text).data };
  });
  setPayload(job.data === null ? "" : JSON.stringify(job.data, null, 2));
  setQuery({ like: null, task: job.task, user: job.user, project: job.project, tier: job.tier, priority: job.priority === 50 ? null : String(job.priority) }, { replace: true });
}

function Made({ job }) {
  return html`<${Card} title="Submitted" id=${`made-${job.id}`} class="made" note=${html`<${JobLink} id=${job.id} />`}>
    <div class="wait"><b>${job.message ?? job.status}</b>
      <small>${job.position_message ?? (job.run_at ? "It joins the line at its time." : "")}</small>
      <span class="buttons"><a class="button small" href=${link("jobs", job.id)}>Look at it</a>
        ${job.watch_url && html`<a class="link" href=${job.watch_url}>watch link</a> <${Copy} text=${job.watch_url} label="copy" name="Copy the watch link" />`}</span></div>
  <//>`;
}

/** The command that does the same, for a shell. */
function command(fields, checked) {
  const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const options = Object.entries(fields).filter(([name, value]) => name !== "task" && value !== "" && !(name === "priority" && value === 50))
    .map(([name, value]) => ` --${name} ${quoted(String(value))}`).join("");
  const data = checked.value === undefined ? "" : ` ${quoted(JSON.stringify(checked.value))}`;
  return `qo submit ${quoted(fields.task || "TASK")}${data}${options}`;
}
