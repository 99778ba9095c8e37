// The slots of a group: numbered cells, and who holds them.
import { html, signal, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";
import { Question, useFocusBack } from "../components/ask.js";
import { JobLink, Since } from "../components/parts.js";
import { attempt, toast } from "../components/toast.js";
import { absolute, counted, moment, number, shortId, span } from "../format.js";
import { link } from "../route.js";
import { groups, slots as live } from "../live.js";
import { running } from "../state/active.js";
import { now } from "../state/clock.js";
import { holderName } from "../state/names.js";
import { canChange } from "../state/session.js";

const MOST_CELLS = 64;
const ASK_EVERY_MS = 2000;

/** Groups by name, as they were last read. The stream has the slots of the most wanted ones, others are asked for. */
const read = signal({});

export function keep(...found) {
  read.value = { ...read.value, ...Object.fromEntries(found.map((group) => [group.group, group])) };
}

/** Answer what is known of these groups by name. Those whose slots the stream does not have are asked for, every two
 * seconds. */
export function useGroups(names) {
  const wanted = useRef(names);
  wanted.current = names;
  useEffect(() => {
    refresh(names);
    const timer = setInterval(() => !document.hidden && refresh(wanted.current.filter((name) => !live.value[name])), ASK_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => {
    const unread = names.filter((name) => !read.value[name]);
    if (unread.length) refresh(unread);
  }, [names.join("\n")]);
  const all = { ...read.value };
  for (const status of groups.value ?? []) {
    const held = live.value[status.group];
    if (held && all[status.group]) all[status.group] = { ...all[status.group], ...status, slots: Object.values(held) };
  }
  return all;
}

export async function refresh(names) {
  try {
    keep(...(await Promise.all(names.map((name) => get(path("concurrency", name))))));
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // what was read before stays; the header says when all is old
  }
}

/** When a slot was given: the stream says it; a token is the microsecond at which it was made. */
function givenAt({ since, token }) {
  const at = since ?? Number(token) / 1000;
  return at > 1e12 && at < now.value + 60_000 ? new Date(at).toISOString() : null;
}

function holderOf({ holder }) {
  return { job: running.value?.find((each) => each.id === holder), name: holderName(holder), isSeen: holderName(holder) !== shortId(holder) };
}

/** All slots as cells: held ones filled with number and holder, free ones an outline, those above a lowered limit
 * marked; a bar where there are too many to tell apart. */
export function Cells({ group }) {
  const { limit, active, slots, kept } = group;
  if (limit === null) return html`<span class="slots"><small>${counted(active, "holder")}, no limit</small></span>`;
  if (Math.max(limit, active) > MOST_CELLS) {
    const share = limit ? Math.min(active / limit, 1) * 100 : 100;
    return html`<span class="slots"><span class="track" role="img" aria-label=${`${number(active)} of ${number(limit)} slots are held`}><span class="fill" style=${{ width: `${share}%` }}></span></span></span>`;
  }
  const held = new Map(slots.map((slot) => [slot.slot_id, slot]));
  // Until the slots were read, only their number is known.
  const unnamed = slots.length ? 0 : active;
  const numbers = [...Array(limit).keys(), ...[...held.keys()].filter((each) => each >= limit)];
  const keptNumber = kept ? numbers.find((each) => !held.has(each) && each >= unnamed) : undefined;
  return html`<span class="slots">${numbers.map((each) => html`<${Cell} key=${each} number=${each} slot=${held.get(each)} isHeld=${each < unnamed} limit=${limit}
    kept=${each === keptNumber ? kept : null} />`)}</span>`;
}

function Cell({ number: slotNumber, slot, isHeld, limit, kept }) {
  if (kept) return html`<span class="cell kept" title=${`slot ${slotNumber} is kept for ${kept}: it is its turn`}><b>${slotNumber}</b> kept for ${shortId(kept)}</span>`;
  if (!slot) return html`<span class=${`cell ${isHeld ? "" : "free"}`} title=${`slot ${slotNumber} is ${isHeld ? "held" : "free"}`}>${slotNumber}</span>`;
  const isExtra = slotNumber >= limit;
  const { job, name } = holderOf(slot);
  const since = givenAt(slot);
  const lines = [
    `slot ${slotNumber}: ${job ? `${job.task} ` : ""}${slot.holder}`,
    slot.worker_id && `on ${slot.worker_id}`,
    since && `since ${absolute(moment(since))}`,
    leaseWords(slot),
    isExtra && "goes when released",
  ];
  return html`<span class=${`cell ${isExtra ? "extra" : ""}`} title=${lines.filter(Boolean).join("\n")}><b>${slotNumber}</b> ${name}${isExtra && " · goes"}</span>`;
}

function leaseWords({ expires_at: expires }) {
  const left = (moment(expires) - now.value) / 1000;
  return left > 0 ? `lease ${span(left)} left` : "lease ran out";
}

/** Who holds each slot, where, since when, for how long; and the way to take it back. */
export function Holders({ group }) {
  const { slots, limit } = group;
  return html`<table class="holders stacked"><thead><tr><th scope="col">Slot</th><th scope="col">Holder</th><th scope="col">Worker</th><th scope="col">Held for</th><th scope="col">Lease left</th>${canChange.value && html`<th><span class="unseen">Release</span></th>`}</tr></thead>
    <tbody data-steps>${slots.map((slot) => html`<${Holder} key=${`${slot.slot_id} ${slot.holder}`} group=${group.group} slot=${slot} isExtra=${limit !== null && slot.slot_id >= limit} />`)}</tbody></table>`;
}

function Holder({ group, slot, isExtra }) {
  const [asks, setAsks] = useState(false);
  const row = useFocusBack(asks);
  const { job, name, isSeen } = holderOf(slot);
  const left = (moment(slot.expires_at) - now.value) / 1000;
  const who = job
    ? html`<${JobLink} id=${job.id}><b>${job.task}</b>${job.project && ` · ${job.project}`}<//> <small>${job.user}</small>`
    : isSeen
      ? html`<${JobLink} id=${slot.holder}>${name}<//>`
      : html`<span class="mono" title=${slot.holder}>${name}</span>`;
  if (asks) {
    const what = isSeen ? "The job stops and goes back to its place in line, with an attempt spent." : "The holder loses this slot and all others of the same lease.";
    return html`<tr><td data-label="slot"><b class="mono">#${slot.slot_id}</b></td><td colspan="5"><${Question} name=${`Release slot ${slot.slot_id}?`}
      text=${what} yes=${`Release slot ${slot.slot_id}`} act=${() => release(group, slot)} keep=${() => setAsks(false)} /></td></tr>`;
  }
  return html`<tr ref=${row} data-step tabindex="-1">
    <td data-label="slot"><span><b class="mono">#${slot.slot_id}</b>${isExtra && html` <small class="amber">goes when released</small>`}</span></td>
    <td data-label="holder"><span>${who}</span></td>
    <td data-label="on" class="worker">${slot.worker_id ? html`<a href=${link("workers", slot.worker_id)} title=${slot.worker_id}>${slot.worker_id}</a>` : html`<small>a caller</small>`}</td>
    <td data-label="held for"><${Since} at=${givenAt(slot)} /></td>
    <td data-label="lease left"><time datetime=${slot.expires_at} title=${absolute(moment(slot.expires_at))} class=${left <= 0 ? "amber" : ""}>${left > 0 ? span(left) : "ran out"}</time></td>
    ${canChange.value && html`<td class="act"><button type="button" class="small" aria-label=${`Release slot ${slot.slot_id} …`} onClick=${() => setAsks(true)}>Release …</button></td>`}
  </tr>`;
}

async function release(group, slot) {
  const address = `${path("concurrency", group, "slots", String(slot.slot_id))}?force=true`;
  if (await attempt(() => send("DELETE", address))) toast(`Slot ${slot.slot_id} of ${group} was taken from ${shortId(slot.holder)}.`);
  await refresh([group]);
}
