// A user's page: their jobs, the place and the range of each, what they have used today, and the offer of more.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";
import { Ago, Card, Empty, JobLink, Priority, RangeBar, State } from "../components/parts.js";
import { attempt, toast } from "../components/toast.js";
import { absolute, moment, shortId, span } from "../format.js";
import { heardFromServer } from "../live.js";
import { now } from "../state/clock.js";
import { session } from "../state/session.js";

const ASK_EVERY_MS = 2000;
const SHOWN = 100;

export function Page() {
  const [jobs, setJobs] = useState(null);
  const [usage, setUsage] = useState(null);
  const { user } = session.value;

  async function ask() {
    if (document.hidden) return;
    try {
      const [page, used] = await Promise.all([get(path("jobs"), { limit: SHOWN }), get(path("usage", user))]);
      heardFromServer();
      setJobs(page.items);
      setUsage(used);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem; // the header says since when nothing came
    }
  }
  useEffect(() => {
    ask();
    const timer = setInterval(ask, ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, [user]);

  const axis = Math.max(60, ...(jobs ?? []).map((job) => job.estimate?.upper_bound ?? 0));
  return html`<h1>Jobs of ${user}</h1>
    <div class="columns"><${Card} title="Your jobs" count=${jobs?.length} id="mine" class="mine">
      ${jobs?.length === 0 && html`<${Empty}>You have no jobs yet. What you submit is shown here with its place in line.<//>`}
      <ul>${(jobs ?? []).map((job) => html`<${Mine} key=${job.id} job=${job} axis=${axis} changed=${ask} />`)}</ul>
    <//>
    <div class="side">${usage && html`<${Used} usage=${usage} />`}</div></div>`;
}

function Mine({ job, axis, changed }) {
  return html`<li data-step tabindex="-1" aria-label=${`${job.task}, ${job.status}${job.position ? `, position #${job.position} in queue` : ""}`}>
    <span class="place"><b>${job.position ?? ""}</b></span>
    <span class="what"><${JobLink} id=${job.id}><b>${job.task}</b>${job.project && ` · ${job.project}`}<//> <small><${State} state=${job.state} status=${job.status} /> · <${Ago} at=${job.finished_at ?? job.started_at ?? job.submitted_at} /></small>
      ${job.position_message && html`<small>${job.position_message}</small>`}
      ${job.upgrade && html`<small><a class="link" href=${job.upgrade.url}>${job.upgrade.message}</a></small>`}
      ${job.error && html`<small class="bad">${job.error.message}</small>`}</span>
    <span class="when">${job.position ? html`<${RangeBar} estimate=${job.estimate} axis=${axis} />` : html`<${Priority} value=${job.priority} />`}</span>
    <span class="act"><${Actions} job=${job} changed=${changed} /></span>
  </li>`;
}

const ENDED = new Set(["succeeded", "failed", "cancelled"]);

function Actions({ job, changed }) {
  const [asks, setAsks] = useState(false);
  async function act(what, words) {
    setAsks(false);
    if (await attempt(() => send("POST", path("jobs", job.id, what)))) toast(`${job.task} ${shortId(job.id)} ${words}`);
    await changed();
  }
  if (asks) {
    return html`<button type="button" class="small danger" onClick=${() => act("cancel", "is cancelled.")}>Cancel job</button>
      <button type="button" class="small" onClick=${() => setAsks(false)}>Keep it</button>`;
  }
  return html`${job.state === "confirming" && html`<button type="button" class="small primary" onClick=${() => act("confirm", "goes on.")}>${job.message ?? "Let it go on"}</button>`}
    ${job.state === "failed" && html`<button type="button" class="small" onClick=${() => act("retry", "is in line again.")}>Try again</button>`}
    ${!ENDED.has(job.state) && html`<button type="button" class="quiet" onClick=${() => setAsks(true)}>Cancel</button>`}`;
}

function Used({ usage }) {
  const { jobs_used: used, jobs_remaining: left, iterations_used: iterations, iterations_remaining: more, daily_limit_resets_at: resets } = usage;
  const at = moment(resets);
  const of = (count, remaining) => (remaining === null ? count : `${count} of ${count + remaining}`);
  return html`<${Card} title="Usage today" id="usage"><div class="usage">
    <p>${of(used, left)} jobs · ${of(iterations, more)} iterations</p>
    ${left !== null && html`<span class="track"><span class="fill" style=${{ width: `${(used / Math.max(used + left, 1)) * 100}%` }}></span></span>`}
    <small title=${absolute(at)}>resets in ${span((at - now.value) / 1000)}</small>
  </div><//>`;
}
