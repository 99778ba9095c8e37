// A user's page: their jobs, the place and the range of each, what they have used today, and the offer of more.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, getList, path, send } from "../api.js";
import { Ask } from "../components/ask.js";
import { Ago, Card, Empty, JobLink, Priority, RangeBar, State } from "../components/parts.js";
import { attempt, toast } from "../components/toast.js";
import { absolute, moment, shortId, span } from "../format.js";
import { ON_RETRY, onCancel } from "../job/actions.js";
import { ENDED } from "../job/reading.js";
import { heardFromServer } from "../live.js";
import { now } from "../state/clock.js";
import { session } from "../state/session.js";

const ASK_EVERY_MS = 2000;
const SHOWN = 100;

export function Page() {
  const [jobs, setJobs] = useState(null);
  const [usage, setUsage] = useState(null);
  const { user } = session.value;

  /** Answers how long that took: in a long line it is several requests. */
  async function ask() {
    const began = Date.now();
    if (document.hidden) return 0;
    try {
      const [page, used] = await Promise.all([getList(path("jobs"), { limit: SHOWN }), get(path("usage", user))]);
      heardFromServer();
      setJobs(page.items);
      setUsage(used);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem; // the header says since when nothing came
    }
    return Date.now() - began;
  }
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const askAgain = async () => {
      const took = await ask();
      if (!isOver) timer = setTimeout(askAgain, Math.max(ASK_EVERY_MS, 10 * took));
    };
    askAgain();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [user]);

  const axis = Math.max(60, ...(jobs ?? []).map((job) => job.estimate?.upper_bound ?? 0));
  return html`<h1>Jobs of ${user}</h1>
    <div class="columns"><${Card} title="Your jobs" count=${jobs?.length} id="mine" class="mine">
      ${jobs?.length === 0 && html`<${Empty}>You have no jobs yet. What you submit is shown here with its place in line.<//>`}
      <ul data-steps>${(jobs ?? []).map((job) => html`<${Mine} key=${job.id} job=${job} axis=${axis} changed=${ask} />`)}</ul>
    <//>
    <div class="side">${usage && html`<${Used} usage=${usage} />`}</div></div>`;
}

function Mine({ job, axis, changed }) {
  return html`<li data-step tabindex="-1" aria-label=${`${job.task}, ${job.status}${job.position ? `, position #${job.position} in queue` : ""}`}>
    <span class="place"><b>${job.position ?? ""}</b></span>
    <span class="what"><${JobLink} id=${job.id}><b>${job.task}</b>${job.project && ` · ${job.project}`}<//> <small><${State} state=${job.state} status=${job.status} /> · <${Ago} at=${job.finished_at ?? job.started_at ?? job.submitted_at} /></small>
      ${job.state === "scheduled" && html`<small>joins the line <${Ago} at=${job.run_at} /></small>`}
      ${job.position_message && html`<small>${job.position_message}</small>`}
      ${job.upgrade && html`<small><a class="link" href=${job.upgrade.url}>${job.upgrade.message}</a></small>`}
      ${job.error && html`<small class="bad">${job.error.message}</small>`}</span>
    <span class="when">${job.position ? html`<${RangeBar} estimate=${job.estimate} axis=${axis} />` : html`<${Priority} value=${job.priority} />`}</span>
    <span class="act"><${Actions} job=${job} changed=${changed} /></span>
  </li>`;
}

function Actions({ job, changed }) {
  const name = `${job.task} ${shortId(job.id)}`;
  async function act(what, words) {
    if (await attempt(() => send("POST", path("jobs", job.id, what)))) toast(`${name} ${words}`);
    await changed();
  }
  return html`${job.state === "confirming" && html`<button type="button" class="small primary" onClick=${() => act("confirm", "goes on.")}>${job.message ?? "Let it go on"}</button>`}
    ${job.state === "failed" && html`<${Ask} label="Try again" name=${`Try ${name} again`} text=${ON_RETRY} yes="Try again" no="Leave it" kind="small" act=${() => act("retry", "is in line again.")} />`}
    ${!ENDED.has(job.state) && html`<${Ask} label="Cancel" name=${`Cancel ${name}`} text=${onCancel(job)} yes="Cancel job" kind="quiet" size="small" act=${() => act("cancel", "is cancelled.")} />`}`;
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
