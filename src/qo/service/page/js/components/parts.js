// The small parts that every page is made of.
import { html } from "../../vendor/preact.js";
import { absolute, ago, counted, inUnitOf, moment, priority, range, shortId, span } from "../format.js";
import { link } from "../route.js";
import { now } from "../state/clock.js";

/** A white box with a head: `title`, a `count` beside it, a `note` at the right. */
export function Card({ title, count, note, class: kind = "", id, children }) {
  return html`<section class=${`card ${kind}`} aria-labelledby=${id}>
    <header><h2 id=${id}>${title}</h2>${count !== undefined && html`<span class="count">${count}</span>`}
      ${note !== undefined && html`<span class="note">${note}</span>`}</header>
    ${children}
  </section>`;
}

/** "▲▲ urgent": the shape and the word; the colour is only a third sign. */
export function Priority({ value }) {
  const { name, shape, level } = priority(value);
  return html`<span class=${`badge ${level}`}><span aria-hidden="true">${shape}</span> ${name}</span>`;
}

/** ▲n: places it gained by a move, a priority or aging; ▼n: jobs that were placed ahead since it joined. */
export function movementWords(gained, placedAhead) {
  return [gained > 0 && `gained ${counted(gained, "place")}`, placedAhead > 0 && `${counted(placedAhead, "job was", "jobs were")} placed ahead`].filter(Boolean);
}

export function Movement({ gained, placedAhead }) {
  if (!gained && !placedAhead) return null;
  const isTall = `${gained || ""}${placedAhead || ""}`.length > 3; // there is no room for both beside each other
  return html`<small class=${`movement ${isTall ? "tall" : ""}`} title=${movementWords(gained, placedAhead).join(", ")}>${gained > 0 && html`<span class="up">▲${gained}</span>`}${placedAhead > 0 && html`<span class="down">▼${placedAhead}</span>`}</small>`;
}

const STATE_SHAPES = {
  scheduled: "◷", waiting: "◌", queued: "○", starting: "◐", running: "●", confirming: "❚❚",
  succeeded: "✓", failed: "✕", cancelled: "⊘",
};

/** A job's state as shape and word. `status` is what people call it: the stage while it runs. */
export function State({ state, status = state }) {
  return html`<span class=${`state ${state}`}><span aria-hidden="true">${STATE_SHAPES[state] ?? "•"}</span> ${status}</span>`;
}

/** "3 min ago", which keeps counting, with the absolute time as its title. Takes RFC 3339 text. */
export function Ago({ at }) {
  const time = moment(at);
  if (time === null) return null;
  return html`<time datetime=${at} title=${absolute(time)}>${ago(time, now.value)}</time>`;
}

/** How long since then: "3m 12s", which keeps counting. */
export function Since({ at }) {
  const time = moment(at);
  if (time === null) return null;
  return html`<time datetime=${at} title=${absolute(time)}>${span(Math.floor((now.value - time) / 1000))}</time>`;
}

/** A job's id, short, as a link to its page. */
export function JobLink({ id, children }) {
  return html`<a class="id" href=${link("jobs", id)} title=${id}>${children ?? shortId(id)}</a>`;
}

/**
 * When a job will start: the range as text and as a bar on an axis of `axis` seconds, its likeliest point as a tick.
 * Without an estimate it says why there is none.
 */
export function RangeBar({ estimate, axis }) {
  if (!estimate || estimate.upper_bound === null || estimate.upper_bound === undefined) {
    return html`<span class="range none"><span class="range-text" title=${estimate?.message}>${estimate?.message ?? "is being estimated"}</span></span>`;
  }
  const { lower_bound: lower, upper_bound: upper, estimate_seconds: likely } = estimate;
  const at = (seconds) => `${Math.min(seconds / axis, 1) * 100}%`;
  return html`<span class="range">
    <span class="range-text">${range(lower, upper)} <small>· likely ${inUnitOf(likely, upper)}</small></span>
    <span class="track" aria-hidden="true">
      <span class="span" style=${{ left: at(lower), right: `calc(100% - max(${at(upper)}, ${at(lower)} + 3px))` }}></span>
      <span class="tick" style=${{ left: at(likely) }}></span>
    </span>
  </span>`;
}

/** A chip: a filter when it has `onPress` (pressed or not), else only words. */
export function Chip({ pressed, onPress, children, class: kind = "" }) {
  if (!onPress) return html`<span class=${`chip ${kind}`}>${children}</span>`;
  return html`<button type="button" class=${`chip ${kind}`} aria-pressed=${pressed} onClick=${onPress}>${children}</button>`;
}

/** What is shown where there is nothing: the sentence says what to do next. */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}
