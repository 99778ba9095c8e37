// The groups that others wait for, and who holds their slots.
import { html } from "../../vendor/preact.js";
import { Card, Empty } from "../components/parts.js";
import { counted, number } from "../format.js";
import { groups, overview, slots } from "../live.js";
import { link } from "../route.js";
import { holderName } from "../state/names.js";

const SHOWN = 5;
const CELLS = 16;

/** How many jobs wait for a group before all else. The store counts only those that it has put aside for it. */
export function waiters(group) {
  const counted = overview.value?.waits_for?.filter((each) => each.group === group.group && each.kind !== "no_worker" && each.kind !== "busy");
  return Math.max(group.waiting, ...(counted ?? []).map((each) => each.count));
}

/** The most wanted first: by waiters, then by how full they are. Groups that nobody holds or waits for are left out. */
export function byPressure(all) {
  const share = (group) => (group.limit ? group.active / group.limit : 0);
  return all
    .filter((group) => group.paused || (group.limit !== null && (group.active > 0 || group.waiting > 0)))
    .sort((one, other) => waiters(other) - waiters(one) || share(other) - share(one) || (other.limit ?? 0) - (one.limit ?? 0));
}

/** "global#0 provider:ollama#1": the slots that a job is known to hold. */
export function slotsOf(id) {
  const found = Object.entries(slots.value).flatMap(([group, each]) => Object.values(each).filter((slot) => slot.holder === id).map((slot) => `${group}#${slot.slot_id}`));
  return found.join(" ");
}

export function Pressure() {
  const all = byPressure(groups.value ?? []);
  return html`<${Card} title="Groups under pressure" note="numbered slots, who holds them" id="pressure" class="pressure">
    ${all.length === 0 && html`<${Empty}>No group with a limit is in use. A limit is set with <code>qo concurrency set GROUP N</code>.<//>`}
    <ul>${all.slice(0, SHOWN).map((group) => html`<${Group} key=${group.group} group=${group} />`)}</ul>
    ${all.length > SHOWN && html`<a class="more" href=${link("groups")}>All ${all.length} groups in use</a>`}
  <//>`;
}

function Group({ group }) {
  const waiting = waiters(group);
  const isFull = group.limit !== null && group.active >= group.limit;
  return html`<li class=${isFull || group.paused ? "full" : ""}>
    <span class="name"><a href=${link("groups", group.group)}>${group.group}</a>
      <small>${group.paused ? "paused" : waiting ? `${counted(waiting, "waits", "wait")} for it` : "nobody waits"}</small></span>
    <${Slots} group=${{ ...group, slots: held(group) }} />
    <span class="of">${group.paused ? "paused" : `${number(group.active)} of ${number(group.limit)}`}</span>
  </li>`;
}

function held(group) {
  return Object.values(slots.value[group.group] ?? {});
}

/** Numbered cells, as far as there is room; a bar above that. */
export function Slots({ group, most = CELLS }) {
  const { limit, active, slots: taken } = group;
  if (limit === null) return html`<span class="slots"><small>${counted(active, "holder")}, no limit</small></span>`;
  if (limit > most) {
    return html`<span class="slots"><span class="track"><span class="fill" style=${{ width: `${Math.min(active / limit, 1) * 100}%` }}></span></span></span>`;
  }
  const held = new Map(taken.map((slot) => [slot.slot_id, slot]));
  const numbers = [...Array(limit).keys(), ...[...held.keys()].filter((number) => number >= limit)];
  // The server may say only how many are held, not which.
  const count = taken.length ? 0 : active;
  return html`<span class="slots">${numbers.map((number) => html`<${Cell} key=${number} number=${number} slot=${held.get(number)} isHeld=${number < count} isExtra=${number >= limit} />`)}</span>`;
}

function Cell({ number, slot, isHeld, isExtra }) {
  if (!slot && !isHeld) return html`<span class="cell free" title=${`slot ${number} is free`}>${number}</span>`;
  const who = slot ? holderName(slot.holder) : "";
  return html`<span class=${`cell ${isExtra ? "extra" : ""}`} title=${slot ? `slot ${number}: ${slot.holder}${isExtra ? ", goes when released" : ""}` : `slot ${number}`}><b>${number}</b> ${who}</span>`;
}
