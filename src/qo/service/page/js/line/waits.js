// What everybody waits for, biggest first, each a filter of the line; beside it the flow of the last minute.
import { html } from "../../vendor/preact.js";
import { Chip } from "../components/parts.js";
import { number } from "../format.js";
import { groups, overview } from "../live.js";
import { link, route, setQuery } from "../route.js";

/** The name of a reason in the address: "full provider:ollama", "no_worker export", "suspect". */
export function reasonName({ kind, group }) {
  return group ? `${kind} ${group}` : kind;
}

/** Whether a row waits for the reason that the address names. */
export function waitsFor(row, wanted) {
  return row.waits_for.length > 0 && reasonName(row.waits_for[0]) === wanted;
}

/** The reasons with their counts: those of the server, else those of the rows that were read. */
function reasons(rows) {
  const counted = overview.value?.waits_for;
  if (counted) return [...counted].sort((one, other) => other.count - one.count);
  const found = new Map();
  for (const row of rows) {
    const [main] = row.waits_for;
    if (!main) continue;
    const known = found.get(reasonName(main));
    if (known) known.count += 1;
    else found.set(reasonName(main), { ...main, count: 1 });
  }
  return [...found.values()].sort((one, other) => other.count - one.count);
}

export function Waits({ rows }) {
  const wanted = route.value.query.waits;
  const all = reasons(rows);
  return html`<section class="waits" aria-label="Everybody waits for">
    <span class="muted">${all.length ? "Everybody waits for" : "Nobody waits"}</span>
    ${all.map((reason) => html`<${Reason} key=${reasonName(reason)} reason=${reason} wanted=${wanted} />`)}
    ${wanted && !all.some((each) => reasonName(each) === wanted) && html`<${Chip} pressed=${true} onPress=${() => setQuery({ waits: null })}><b>0</b> ${wanted}<//>`}
    <${Flow} />
  </section>`;
}

/** Reasons with the name of a state: these jobs are on the page Jobs. */
const OUTSIDE_THE_LINE = new Set(["scheduled", "waiting", "confirming"]);

function Reason({ reason, wanted }) {
  const name = reasonName(reason);
  const [text, detail] = words(reason);
  if (OUTSIDE_THE_LINE.has(reason.kind)) {
    return html`<a class="chip" href=${link("jobs", null, { state: reason.kind })}><b>${number(reason.count)}</b> ${text}</a>`;
  }
  return html`<${Chip} pressed=${wanted === name} onPress=${() => setQuery({ waits: wanted === name ? null : name })}><b>${number(reason.count)}</b> ${text}${detail && html` <small>${detail}</small>`}<//>`;
}

/** "34 for provider:ollama (4 of 4)" as the number before it, "provider:ollama" and "4 of 4". */
function words({ kind, group, text }) {
  const status = groups.value?.find((each) => each.group === group);
  if (kind === "full") return [group, status?.limit != null ? `${number(status.active)} of ${number(status.limit)}` : "full"];
  return [text.replace(/^[\d,]+ (for )?/, ""), null];
}

function Flow() {
  const flow = overview.value?.flow;
  if (!flow) return null;
  const { joined, started, ended, failed } = flow;
  return html`<span class="flow muted">last minute: ${number(joined)} joined · ${number(started)} started · ${number(ended)} ended · <span class=${failed ? "bad" : ""}>${number(failed)} failed</span></span>`;
}
