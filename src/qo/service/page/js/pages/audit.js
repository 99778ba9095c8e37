// Who changed what, newest first.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";
import { ACTIONS, By, Target, What } from "../audit/entries.js";
import { Card, Empty } from "../components/parts.js";
import { UNDO_SECONDS, attempt, toast } from "../components/toast.js";
import { absolute, ago, counted, moment, timeOfDay } from "../format.js";
import { onFrame, onReset } from "../live.js";
import { setQuery } from "../route.js";
import { now } from "../state/clock.js";
import { whenSeen } from "../state/seen.js";
import { canChange } from "../state/session.js";

const PAGE_ROWS = 100;
const READ_AGAIN_MS = 3000;
const day = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });

export function Page({ route }) {
  const { target = "", action = "", by = "" } = route.query;
  const [known, setKnown] = useState({ entries: null, next: null });
  useEffect(() => {
    let hasStopped = false;
    let soon = 0;
    async function read() {
      try {
        const page = await get(path("audit"), { target, limit: PAGE_ROWS });
        // What was read further down stays.
        if (!hasStopped) setKnown((before) => before.isLonger ? { ...before, entries: merged(page.items, before.entries) } : { entries: page.items, next: page.next });
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!hasStopped) setKnown((before) => ({ ...before, problem }));
      }
    }
    const later = () => (soon ||= setTimeout(() => whenSeen("audit", () => ((soon = 0), !hasStopped && read())), READ_AGAIN_MS));
    setKnown({ entries: null, next: null });
    read();
    const ends = [onFrame(later), onReset(later)];
    return () => {
      hasStopped = true;
      clearTimeout(soon);
      ends.forEach((end) => end());
    };
  }, [target]);

  async function readMore() {
    const page = await attempt(() => get(path("audit"), { target, after: known.next, limit: PAGE_ROWS }));
    if (page) setKnown({ entries: [...known.entries, ...page.items], next: page.next, isLonger: true });
  }

  const set = (name) => (event) => setQuery({ [name]: event.target.value.trim() || null }, { replace: true });
  const all = known.entries ?? [];
  const shown = all.filter((entry) => (!action || (action === "changes" ? entry.action !== "submit" : entry.action === action)) && (!by || (entry.by ?? "").includes(by)));
  const byBatch = Map.groupBy(all, (entry) => entry.batch);
  const isNarrowed = Boolean(action || by);
  return html`<h1>Audit</h1>
    <form class="audit-find" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>What <select value=${action} onChange=${set("action")}><option value="">everything</option><option value="changes">everything but submits</option>${ACTIONS.map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
      <label>Of <input data-find value=${target} placeholder="job, group or user" onChange=${set("target")} /></label>
      <label>By <input value=${by} placeholder="anybody" onInput=${set("by")} /></label>
      ${(isNarrowed || target) && html`<button type="button" class="link" onClick=${() => setQuery({ action: null, by: null, target: null })}>show all</button>`}
    </form>
    <${Card} title=${`${counted(shown.length, "change")}${isNarrowed ? ` of the newest ${all.length}` : known.next ? ", the newest" : ""}`} id="changes" note="newest first">
      ${known.entries === null ? html`<${Empty}>${known.problem?.message ?? "Reading the trail …"}<//>`
        : shown.length === 0 ? html`<${Empty}>${isNarrowed || target ? "Nobody did this, as far as the trail goes back." : "Nobody has changed anything yet. Submits, moves, priorities, limits, pauses and cancels are written down here, with who did them."}<//>`
        : html`<ol class="audit-list" data-steps>${shown.map((entry, index) => html`<${Entry} key=${entry.id} entry=${entry} before=${shown[index - 1]} alike=${byBatch.get(entry.batch)} />`)}</ol>`}
      ${known.next && html`<button type="button" class="more" onClick=${readMore}>Show older ones</button>`}
    <//>`;
}

const UNDOABLE = new Set(["move", "priority", "limit", "pause", "resume"]);

async function undo(entry) {
  if (await attempt(() => send("POST", path("audit", String(entry.id), "undo")))) toast("Undone.");
}

function merged(newest, known) {
  const ids = new Set(known.map((entry) => entry.id));
  return [...newest.filter((entry) => !ids.has(entry.id)), ...known];
}

/** `alike`: the entries of the same request, and of its undo; newest first. */
function Entry({ entry, before, alike }) {
  const at = moment(entry.at);
  const isNewDay = !before || day.format(moment(before.at)) !== day.format(at);
  const isOfMany = entry.batch?.startsWith("actions-");
  const part = isOfMany ? "one of many" : entry.batch && alike.length > 1 && (alike[0] === entry ? "undo" : "undone");
  const canUndo = canChange.value && UNDOABLE.has(entry.action) && alike.length === 1 && now.value - at < UNDO_SECONDS * 1000;
  return html`${isNewDay && html`<li class="day">${day.format(at)}</li>`}
    <li data-step tabindex="-1"><span><${By} entry=${entry} /></span><span><${What} entry=${entry} />${part && html` <small class="chip" title=${`batch ${entry.batch}`}>${part}</small>`}${canUndo && html` <button type="button" class="link" onClick=${() => undo(entry)}>Undo</button>`}</span>
      <span><${Target} entry=${entry} /></span><time class="at" datetime=${entry.at} title=${`${absolute(at)}, ${ago(at, now.value)}`}>${timeOfDay(at)}</time></li>`;
}
