// Find jobs, see how many there are, select and act on many.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { useFocusBack } from "../components/ask.js";
import { Menu } from "../components/menu.js";
import { Card, Chip, Empty, State } from "../components/parts.js";
import { number } from "../format.js";
import { Bulk, allowed, bulk, dryRun } from "../jobs/bulk.js";
import { FIELDS, STATES, filterOf, inWords } from "../jobs/filter.js";
import { Find } from "../jobs/find.js";
import { useMatching } from "../jobs/reading.js";
import { Rows } from "../jobs/rows.js";
import { workers } from "../live.js";
import { link, setQuery } from "../route.js";
import { canChange } from "../state/session.js";

export function Page({ route }) {
  const filter = filterOf(route.query);
  const { after } = route.query;
  const name = JSON.stringify(filter);
  const { rows, next, counts, newer, problem, read } = useMatching(filter, after);
  const box = useFocusBack(bulk.value !== null);
  const [chosen, setChosen] = useState(new Set());
  const [isAll, setAll] = useState(false); // all that match, not only the page
  useEffect(() => {
    setChosen(new Set());
    setAll(false);
    if (bulk.value?.phase !== "runs") bulk.value = null;
  }, [name, after]);

  const shown = rows.value ?? [];
  const change = (fields) => setQuery({ after: null, find: null, ...Object.fromEntries(FIELDS.map((field) => [field, fields[field] ?? null])) });
  const total = totalOf(counts.value, filter.state);
  const choose = (id, on) => {
    const after = new Set(chosen);
    if (on) after.add(id);
    else after.delete(id);
    setChosen(after);
    setAll(false);
  };
  const chooseAll = (on) => (setChosen(new Set(on ? shown.map((job) => job.id) : [])), setAll(false));
  const isWhole = shown.length > 0 && shown.every((job) => chosen.has(job.id));

  return html`<h1 class="unseen">Jobs</h1>
    <${Find} filter=${filter} known=${knownOf(shown)} onChange=${change} isWanted=${route.query.find === "1"} />
    <${States} counts=${counts.value} filter=${filter} change=${change} />
    <${Card} title=${heading(total, filter, shown, next.value)} id="found" note=${html`those in line first, then the newest`}>
      ${bulk.value ? html`<${Bulk} onEnd=${() => (chooseAll(false), read())} />`
        : canChange.value && shown.length > 0 && html`<${Selection} box=${box} chosen=${chosen} isAll=${isAll} isWhole=${isWhole} chooseAll=${chooseAll} setAll=${setAll}
            shown=${shown} total=${total} counts=${counts.value} filter=${filter} hasMore=${next.value !== null || after} />`}
      ${newer.value > 0 && html`<button type="button" class="more" onClick=${read}>${newer.value === 1 ? "Something new matches" : `${number(newer.value)} new ones match`}, show them</button>`}
      ${problem.value ? html`<${Empty}>${problem.value.message}<//>` : rows.value === null ? html`<${Empty}>Reading the jobs …<//>`
        : shown.length === 0 ? html`<${Empty}><${Nothing} filter=${filter} after=${after} /><//>`
        : html`<${Rows} rows=${shown} canChoose=${canChange.value} isChosen=${(id) => isAll || chosen.has(id)} choose=${choose} />`}
      ${(next.value || after) && html`<nav class="pages" aria-label="Pages of jobs">
        ${after && html`<a class="button small" href=${link("jobs", null, filter)}>First page</a>`}
        ${next.value && html`<a class="button small" href=${link("jobs", null, { ...filter, after: next.value })}>Next page</a>`}</nav>`}
    <//>`;
}

/** {count, isMore} of what matches; null while it is not known. */
function totalOf(counts, state) {
  if (!counts) return null;
  const count = state && state in counts.states ? counts.states[state] : Object.values(counts.states).reduce((sum, each) => sum + each, 0);
  const isNone = state && STATES.includes(state) && !(state in counts.states);
  return { count: isNone ? 0 : count, isMore: !counts.is_complete };
}

function shownCount({ count, isMore }) {
  return `${number(count)}${isMore ? "+" : ""}`;
}

function heading(total, filter, shown, next) {
  if (total) return html`${shownCount(total)} ${inWords(filter, total.count)}`;
  return html`${shown.length ? `${number(shown.length)}${next ? " first" : ""} ` : ""}${inWords(filter, shown.length)}`;
}

/** All states with how many of them match the rest of the filter. */
function States({ counts, filter, change }) {
  const states = counts?.states ?? {};
  const known = STATES.filter((state) => states[state] || filter.state === state);
  if (!known.length) return null;
  return html`<section class="waits" aria-label="By state"><span class="muted">By state</span>${known.map((state) => html`<${Chip} key=${state}
    pressed=${filter.state === state} onPress=${() => change({ ...filter, state: filter.state === state ? undefined : state })}><${State} state=${state} /> <b>${states[state] === undefined ? "" : number(states[state])}</b><//>`)}
    ${counts && !counts.is_complete && html`<small>counted up to 10,000</small>`}</section>`;
}

function Selection({ box, chosen, isAll, isWhole, chooseAll, setAll, shown, total, counts, filter, hasMore }) {
  const states = isAll ? (filter.state ? [filter.state] : Object.keys(counts?.states ?? {})) : shown.filter((job) => chosen.has(job.id)).map((job) => job.state);
  const which = isAll ? { filter } : { ids: [...chosen] };
  const actions = allowed(states);
  const priorities = actions.filter(({ action }) => action === "priority");
  const count = isAll ? (total ? `All ${shownCount(total)} that match` : "All that match") : chosen.size ? `${number(chosen.size)} selected` : "Select this page";
  return html`<div class="selection" role="group" aria-label="Selection">
    <label><input ref=${box} type="checkbox" checked=${isWhole || isAll} onChange=${(event) => chooseAll(event.target.checked)} aria-label="Select this page" /> <span>${count}</span></label>
    ${isWhole && hasMore && !isAll && html`<button type="button" class="link" onClick=${() => setAll(true)}>Select all ${total ? shownCount(total) : ""} that match</button>`}
    ${(chosen.size > 0 || isAll) && html`<span class="buttons">
      ${actions.filter(({ action }) => action !== "priority").map((each) => html`<button type="button" class="small" key=${each.label} onClick=${() => dryRun(each, which)}>${each.label} …</button>`)}
      ${priorities.length > 0 && html`<${Menu} label="Priority …" name="Give another priority" items=${priorities.map((each) => ({ label: each.label, hint: String(each.priority), act: () => dryRun(each, which) }))} />`}
      ${actions.length === 0 && html`<small>Nothing can be done with jobs that have succeeded or were cancelled.</small>`}</span>`}
  </div>`;
}

function Nothing({ filter, after }) {
  if (after) return html`No more jobs. <a class="link" href=${link("jobs", null, filter)}>First page</a>`;
  if (!Object.keys(filter).length) return html`There are no jobs yet. Submit one: <code>qo submit build '{"app": 7}'</code>`;
  return html`No ${inWords(filter, 0)}. Ended jobs are kept for a while only; <a class="link" href=${link("jobs")}>look at all jobs</a>.`;
}

/** The values that can be suggested: those of the rows, and the tasks of live workers. */
function knownOf(rows) {
  const known = Object.fromEntries(["task", "user", "project", "tier", "parent"].map((field) => [field, new Set(rows.map((job) => job[field]).filter(Boolean))]));
  for (const worker of workers.value ?? []) for (const task of worker.tasks) known.task.add(task);
  return known;
}
