// The page of one group: its slots, its limit and what another one would do, its timeline, its failures.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { attempt } from "../components/toast.js";
import { steps, useAnalytics } from "../charts/analytics.js";
import { Chart } from "../charts/chart.js";
import { Ago, Card, Chip, Empty } from "../components/parts.js";
import { counted, number, span } from "../format.js";
import { waiters } from "../line/pressure.js";
import { Lanes, useTimeline } from "../line/timeline.js";
import { link, setQuery } from "../route.js";
import { remember } from "../state/names.js";
import { canChange } from "../state/session.js";
import { Cells, Holders, useGroups } from "./slots.js";
import { pausedOrResumed, removeLimit, setLimit, sourceWords, standing } from "./status.js";
import { WhatIf } from "./what-if.js";

export function OneGroup({ name, query }) {
  const group = useGroups([name])[name];
  if (!group) return html`<${Head} name=${name} /><${Card} title="Slots"><${Empty}>Reading ${name} …<//><//>`;
  const waiting = waiters(group);
  const { words, isTight } = standing(group);
  return html`<${Head} name=${name}>
      <span class=${`badge ${isTight ? "tight" : ""}`}>${words}</span>
      ${waiting > 0 && html`<a class="link" href=${link("line", null, { waits: `${reasonKind(group)} ${name}` })}>${counted(waiting, "job waits", "jobs wait")} for it</a>`}
      ${canChange.value && html`<button type="button" onClick=${() => pausedOrResumed(group)}>${group.paused ? "Resume" : "Pause"}</button>`}<//>
    <div class="columns">
      <${Card} title="Slots" id="slots" class=${`group-slots ${isTight ? "full" : ""}`} note="a held slot goes back when its run ends or its lease runs out">
        <div class="pad"><${Cells} group=${group} /></div>
        ${group.slots.length ? html`<${Holders} group=${group} />` : html`<${Empty}>${group.active ? "Reading who holds them …" : group.limit === 0 ? "A limit of 0 lets nothing start." : group.limit === null ? "Nobody holds it, and without a limit nobody waits for it." : "All slots are free: the next job in line with this group takes the lowest."}<//>`}
      <//>
      <${Limit} group=${group} query=${query} />
    </div>
    <${GroupTimeline} name=${name} minutes=${SPANS.find(([each]) => String(each) === query.minutes)?.[0] ?? null} /><${Failures} name=${name} />`;
}

/** Why jobs wait for a group, as the line's filter names it. */
function reasonKind({ paused, closed_until: closed, limit }) {
  return paused ? "paused" : closed ? "closed" : limit === 0 ? "shut" : "full";
}

function Head({ name, children }) {
  return html`<div class="group-head"><a class="link" href=${link("groups")}>‹ Groups</a><h1>${name}</h1>${children}</div>`;
}

function Limit({ group, query }) {
  const wanted = query.limit === undefined ? null : Number(query.limit);
  const { limit, source } = group;
  return html`<${Card} title="Limit" id="limit" count=${limit === null ? "none" : number(limit)}>
    <p class="pad"><small>${limit === null ? "Any number of jobs may run in it." : `${sourceWords(source)[0].toUpperCase()}${sourceWords(source).slice(1)}`}<${SetBy} group=${group} /></small>
      ${canChange.value && limit !== null && html`<button type="button" class="link small" onClick=${() => removeLimit(group.group)}>Leave unlimited</button>`}</p>
    <${WhatIf} kind="limits" name=${group.group} present=${limit} wanted=${wanted} field="limit" label=${canChange.value ? "Another limit" : "What if it were"}>
      ${(chosen) => canChange.value && html`<button type="button" class="primary" aria-disabled=${chosen === null} onClick=${() => chosen !== null && setLimit(group.group, chosen).then(() => setQuery({ limit: null }, { replace: true }))}>${chosen === null ? "Set limit" : `Set limit to ${number(chosen)}`}</button>`}
    <//>
  <//>`;
}

/** Who set the limit, and when: the newest entry of the audit trail that says so. */
function SetBy({ group: { group, limit, source } }) {
  const [entry, setEntry] = useState(null);
  useEffect(() => {
    get(path("audit"), { target: group, limit: 50 }).then((page) => {
      setEntry((page.items ?? page).find((each) => each.action === "limit") ?? null);
    }, (problem) => {
      if (!(problem instanceof Problem)) throw problem; // the limit itself is known
    });
  }, [group, limit, source]);
  if (entry === null) return limit === null ? "" : ". Who set it is no longer in the audit trail.";
  return html`${limit === null ? " Its limit was removed" : ","} by <b>${entry.by ?? "nobody known"}</b> <${Ago} at=${entry.at} />. <a class="link" href=${link("audit", null, { target: group })}>Audit</a>`;
}

const NAMED = 100;
const OF_A_KIND = /^(user|project|tier|priority|parent|provider):/;

function Failures({ name }) {
  const figures = useAnalytics({ minutes: 60, group: name });
  const kind = name.match(OF_A_KIND)?.[1];
  const found = figures?.groups.find((each) => each.group === (kind ?? name));
  const { at, sum } = figures ? steps(figures) : {};
  const note = kind ? `all ${kind}: groups together, last hour` : "last hour";
  return html`<${Card} title="Slot acquisition failures" id="failures" count=${found && number(found.rejected)} note=${note}>
    ${!found || found.rejected + found.acquired === 0
      ? html`<${Empty}>${found ? "Nobody asked for a slot in the last hour." : "Reading …"}<//>`
      : html`<p class="pad"><small>A job or caller was looked at and found no free slot. ${counted(found.acquired, "slot was", "slots were")} taken${found.median_wait_seconds !== null && `, half of them within ${span(found.median_wait_seconds)}`}${kind && ` (${kind}: groups are counted together)`}.</small></p>
        <${Chart} id="failures" name=${`Slot acquisition failures of ${kind ?? name}`} at=${at} series=${[
          { name: "failures", values: sum(found.rejected_by_minute), colour: "--amber", kind: "bars" },
          { name: "slots taken", values: sum(found.acquired_by_minute), colour: "--accent", kind: "line" },
        ]} />`}
  <//>`;
}

const SPANS = [[null, "readable"], [1, "1 min"], [5, "5 min"], [15, "15 min"]];

function GroupTimeline({ name, minutes }) {
  const found = useTimeline(name);
  useEffect(() => {
    attempt(async () => {
      remember((await get(path("queue"), { limit: NAMED })).items); // those that the forecast expects
    });
  }, []);
  return html`<${Card} title="Timeline" id="timeline" class="timeline" note=${html`<span title=${found?.note}>what ran · what runs · dashed: what the forecast expects</span>`}>
    ${found ? html`<p class="pad filters" role="group" aria-label="Time on each side of now">${SPANS.map(([each, label]) => html`<${Chip} key=${label} pressed=${each === minutes} onPress=${() => setQuery({ minutes: each })}>${label}<//>`)}</p>
      <${Lanes} group="slot" found=${found} minutes=${minutes} />` : html`<${Empty}>${found === null ? "Reading what ran …" : "This server keeps no timeline of groups."}<//>`}
  <//>`;
}
