// Groups by pressure, each with its numbered slots; a group of its own when the address names one.
import { html, useEffect, useRef } from "../../vendor/preact.js";
import { OneGroup } from "../groups/one.js";
import { Cells, useGroups } from "../groups/slots.js";
import { pausedOrResumed, sourceWords, standing } from "../groups/status.js";
import { Card, Chip, Empty } from "../components/parts.js";
import { attempt } from "../components/toast.js";
import { number } from "../format.js";
import { waiters } from "../line/pressure.js";
import { connection, groups } from "../live.js";
import { go, link, setQuery } from "../route.js";
import { readActive } from "../state/active.js";
import { canChange } from "../state/session.js";

const MOST_SHOWN = 60;
const MOST_READ = 16;

export function Page({ route }) {
  useEffect(() => void attempt(readActive), []);
  return route.id === null ? html`<${All} query=${route.query} />` : html`<${OneGroup} name=${route.id} query=${route.query} />`;
}

/** The most wanted first, then the fullest. */
function byPressure(one, other) {
  const share = (group) => (group.limit === null ? -1 : group.limit === 0 ? 1 : group.active / group.limit);
  return waiters(other) - waiters(one) || Number(other.paused) - Number(one.paused) || share(other) - share(one) || other.active - one.active || (one.group < other.group ? -1 : 1);
}

function All({ query: { find = "", show } }) {
  const limited = (groups.value ?? []).filter((group) => group.limit !== null || group.paused || group.closed_until);
  const inUse = limited.filter((group) => group.active || group.paused || group.closed_until || waiters(group));
  const fitting = (show === "all" || find ? limited : inUse).filter((group) => group.group.toLowerCase().includes(find.toLowerCase())).sort(byPressure);
  const [chosen, hold] = useHeld(fitting, limited);
  const shown = chosen.slice(0, MOST_SHOWN);
  const read = useGroups(shown.slice(0, MOST_READ).filter((group) => group.active).map((group) => group.group));
  return html`<h1 class="unseen">Groups</h1>
    <div class="filters">
      <input type="search" data-find placeholder="Find a group" aria-label="Find a group" value=${find} onInput=${(event) => setQuery({ find: event.target.value || null }, { replace: true })} />
      <${Chip} pressed=${show !== "all"} onPress=${() => setQuery({ show: null })}><b>${number(inUse.length)}</b> in use<//>
      <${Chip} pressed=${show === "all"} onPress=${() => setQuery({ show: "all" })}><b>${number(limited.length)}</b> with a limit or a pause<//>
      ${canChange.value && html`<form onSubmit=${open}><label>Limit another <input name="group" placeholder="provider:ollama" required maxlength="200" /></label> <button>Open</button></form>`}
    </div>
    <${Card} title="Groups" id="groups" class="pressure groups" count=${find || show === "all" ? number(chosen.length) : undefined} note="most wanted first · numbered slots, who holds them">
      ${shown.length === 0 && html`<${Empty}><${Nothing} find=${find} isEmpty=${limited.length === 0} /><//>`}
      <ul data-steps ...${hold}>${shown.map((group) => html`<${Row} key=${group.group} group=${withSlots(group, read[group.group])} />`)}</ul>
      ${chosen.length > MOST_SHOWN && html`<p class="more">The first ${MOST_SHOWN} of ${number(chosen.length)}. Type a part of the name to find another.</p>`}
    <//>`;
}

/** The same order for as long as the pointer or the focus is in the list: nobody shall pause a group that has just come
 * under the pointer. Returns the groups, and the listeners of the list. */
function useHeld(sorted, all) {
  const isHeld = useRef(false);
  const names = useRef([]);
  if (isHeld.current) {
    const byName = new Map(all.map((group) => [group.group, group]));
    names.current = [...new Set([...names.current, ...sorted.map((group) => group.group)])].filter((name) => byName.has(name));
    sorted = names.current.map((name) => byName.get(name));
  } else {
    names.current = sorted.map((group) => group.group);
  }
  const set = (value) => () => (isHeld.current = value);
  return [sorted, { onPointerEnter: set(true), onPointerLeave: set(false), onFocusIn: set(true), onFocusOut: set(false) }];
}

/** The state of the stream, which is newer, with the slots that were read. */
function withSlots(group, read) {
  return { ...group, slots: read && group.active ? read.slots : group.slots };
}

function open(event) {
  event.preventDefault();
  go("groups", new FormData(event.target).get("group"));
}

function Nothing({ find, isEmpty }) {
  if (groups.value === null) return connection.value.state === "lost" ? "The groups could not be read." : "Reading the groups …";
  if (find) return html`No limited group has ${find} in its name.`;
  if (!isEmpty) return html`No group is in use. <a class="link" href=${link("groups", null, { show: "all" })}>Show all with a limit</a>`;
  return html`No group has a limit, so jobs start as soon as a worker is free. Limit one with <code>qo concurrency set global 4</code>, or open it here by its name.`;
}

function Row({ group }) {
  const waiting = waiters(group);
  const { isTight, words } = standing(group);
  return html`<li class=${isTight ? "full" : ""} data-step tabindex="-1" onKeyDown=${(event) => event.key === "Enter" && event.target === event.currentTarget && go("groups", group.group)}>
    <span class="name"><a href=${link("groups", group.group)}><b>${group.group}</b></a>
      <small>${waiting ? `${number(waiting)} ${waiting === 1 ? "waits" : "wait"} for it` : "nobody waits"}</small></span>
    <${Cells} group=${group} />
    <span class="of">${words}<small>${sourceWords(group.source)}</small></span>
    ${canChange.value && html`<span class="act"><a class="button small" href=${link("groups", group.group, { limit: (group.limit ?? 0) + 1 })}>What if …</a>
      <button type="button" class="small" aria-label=${`${group.paused ? "Resume" : "Pause"} ${group.group}`} onClick=${() => pausedOrResumed(group)}>${group.paused ? "Resume" : "Pause"}</button></span>`}
  </li>`;
}
