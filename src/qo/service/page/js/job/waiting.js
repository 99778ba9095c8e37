// Why a job does not run yet: its place with the neighbours, and every reason that holds it up.
import { html } from "../../vendor/preact.js";
import { Ago, Card, JobLink, Movement, Priority, RangeBar, Since } from "../components/parts.js";
import { counted, title } from "../format.js";
import { link } from "../route.js";
import { isUser } from "../state/session.js";

/** The jobs around it, with itself in the middle. */
export function Place({ job, neighbours }) {
  if (job.state !== "queued" || !job.position) return null;
  const rows = neighbours ?? [job];
  const axis = Math.max(1, ...rows.map((row) => row.estimate?.upper_bound ?? 0));
  const own = rows.find((row) => row.id === job.id) ?? job;
  return html`<${Card} title="Place in line" id="place" class="place-card" note=${html`<a class="link" href=${link("line")}>${isUser.value ? "all my jobs" : "the whole line"}</a>`}>
    <div class="hero"><b>#${job.position}</b>
      <span>${job.position_message} <${Movement} gained=${own.gained} placedAhead=${own.placed_ahead} />
        ${job.upgrade && html`<br /><a class="link" href=${job.upgrade.url}>${job.upgrade.message}</a>`}</span></div>
    <ol>${rows.map((row) => html`<li key=${row.id} class=${row.id === job.id ? "this" : ""} aria-current=${row.id === job.id ? "true" : undefined}>
      <b class="nr">${row.position}</b><${Priority} value=${row.priority} />
      <span class="what">${row.id === job.id ? html`<b>this job</b>` : html`<${JobLink} id=${row.id}>${title(row)}<//>`} <small>${row.user ?? "no user"} · <${Since} at=${row.joined_at} /></small></span>
      <${RangeBar} estimate=${row.estimate} axis=${axis} />
    </li>`)}</ol>
  <//>`;
}

/** Every reason, strongest first; `why` is the answer of the service. */
export function Reasons({ job, why }) {
  if (!why || job.state === "confirming") return null;
  const { blocked_by: blocked, holders } = why;
  const isHeld = job.state === "starting" || job.state === "running";
  return html`<${Card} title=${isHeld ? "Where it runs" : "Why it waits"} id="why" class="why-card">
    <p class="sentence">${why.sentence}</p>
    <ul>
      ${why.no_worker && html`<li><b class="amber">No worker runs ${job.task}.</b> <small>Start one: <code>qo worker app:worker</code></small></li>`}
      ${why.ahead > 0 && html`<li><b>${counted(why.ahead, "job")}</b> ahead of it in line</li>`}
      ${blocked.map((group) => html`<li key=${group.group}>${isUser.value ? html`<b>${group.group}</b>` : html`<a href=${link("groups", group.group)}><b>${group.group}</b></a>`} ${stateOf(group)}
        ${holders.some((each) => each.group === group.group) && html`<div class="holders">${holders.filter((each) => each.group === group.group).map((each) => html`<span class="held-slot"><small>${each.slot_id}</small> ${each.holder ? html`<${JobLink} id=${each.holder} />` : "somebody else"} <small><${Since} at=${each.since} /></small></span>`)}</div>`}</li>`)}
      ${why.turn.length > 0 && html`<li>It is its turn: a slot of <b>${why.turn.join(", ")}</b> is kept for it.</li>`}
      ${why.scheduled_until && html`<li>It joins the line <${Ago} at=${why.scheduled_until} />.</li>`}
      ${why.waits_for_phase !== null && html`<li>Phase <b>${why.waits_for_phase}</b> of <a href=${link("jobs", null, { parent: job.parent })}>${job.parent}</a> has to succeed first.</li>`}
      ${why.start_by && html`<li>It fails unless it starts <${Ago} at=${why.start_by} />.</li>`}
    </ul>
  <//>`;
}

function stateOf({ limit, active, paused, closed_until: closedUntil, is_kept: isKept, kept_for: keptFor }) {
  if (paused) return "is paused";
  if (isKept) return html`has a free slot, kept for ${keptFor ? html`<${JobLink} id=${keptFor} />` : "a job before it"}`;
  if (limit === 0) return "has a limit of 0";
  if (closedUntil) return html`was found full elsewhere, tried again <${Ago} at=${closedUntil} />`;
  return html`is full: ${active} of ${limit}`;
}
