// A lane for each slot of a group: what ran, what runs, and behind "now" what the forecast says will run.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { Card, Empty } from "../components/parts.js";
import { absolute, moment, span } from "../format.js";
import { groups } from "../live.js";
import { link, route, setQuery } from "../route.js";
import { serverNow } from "../state/clock.js";
import { holderName, learnNames } from "../state/names.js";
import { byPressure } from "./pressure.js";

const ASK_EVERY_MS = 2500; // the service answers the same until it has read the line again
const MOST_LANES = 12;
const LANE_PX = 30;
const LETTER_PX = 7;
const LONGEST_LABEL = 10; // letters of a group before the number of a lane
const STEPS_SECONDS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400];

/** The timeline of a group and the time it was read `at`, anew every few seconds; null until it is there, false when the
 * service has none. */
export function useTimeline(group) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let isOver = false;
    const ask = async () => {
      if (document.hidden) return;
      try {
        const answer = await get(path("concurrency", group, "timeline"));
        if (!isOver) setFound({ ...answer, at: serverNow() });
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!isOver && problem.status === 404) setFound(false);
      }
    };
    ask();
    const timer = setInterval(ask, ASK_EVERY_MS);
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [group]);
  return found;
}

/** The timeline of the group that the address names, else of one that everybody shares. It does not change by itself. */
export function Timeline() {
  const first = useRef(null);
  const pressed = byPressure(groups.value ?? []).map((group) => group.group);
  first.current ??= pressed.includes("global") ? "global" : (pressed[0] ?? null);
  const group = route.value.query.slots ?? first.current;
  if (group === null) return null;
  return html`<${OfGroup} key=${group} group=${group} others=${pressed} />`;
}

const CHOICES = 12;

function OfGroup({ group, others }) {
  const found = useTimeline(group);
  if (!found) return null;
  const choices = [...new Set([group, ...others.slice(0, CHOICES)])];
  const title = html`Slots of ${choices.length > 1
    ? html`<select aria-label="Group" value=${group} onChange=${(event) => setQuery({ slots: event.target.value })}>${choices.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`
    : html`<a href=${link("groups", group)}>${group}</a>`}`;
  const note = html`<span title=${found.note}>what ran · what runs · what the forecast says will run</span>`;
  return html`<${Card} title=${title} id="timeline" class="timeline" note=${note}><${Lanes} group=${group} found=${found} /><//>`;
}

/** One shape for past, present and forecast. What the forecast expected before now did not come so far. */
function bars({ past, now: present, forecast, at }) {
  const bar = (kind, slot, id, start, end) => ({ kind, slot, id, label: holderName(id), start: moment(start), end: moment(end) });
  return [
    ...past.map((ran) => bar(BAD.has(ran.outcome) ? "failed" : "past", ran.slot, ran.job, ran.started_at, ran.ended_at)),
    ...present.map((holds) => bar("now", holds.slot, holds.holder, holds.since, holds.ends_at)),
    ...forecast.map((run) => bar("next", run.slot, run.job, run.starts_at, run.ends_at))
      .filter((each) => each.end > at).map((each) => ({ ...each, start: Math.max(each.start, at) })),
  ];
}

const BAD = new Set(["failed", "lost", "revoked"]);

/** `minutes` on each side of now; without them, so many that names can be read. */
export function Lanes({ group, found, minutes = null }) {
  const element = useRef(null);
  const [width, setWidth] = useState(1000);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    learnNames(found.past.map((ran) => ran.job));
  }, [found]);
  const all = bars(found);
  const { at } = found;
  const lanes = [...new Set(all.map((each) => each.slot))].sort((one, other) => one - other).slice(0, MOST_LANES);
  const label = width < 500 ? 34 : 104;
  const half = minutes ? minutes * 60_000 : halfSpan(all, at, width - label);
  const x = (time) => label + ((time - (at - half)) / (2 * half)) * (width - label);
  const clip = (time) => Math.min(Math.max(x(time), label), width);
  if (!lanes.length) return html`<div ref=${element}><${Empty}>Nothing ran in this group yet, and nothing is expected.<//></div>`;
  return html`<div class="lanes" ref=${element} style=${{ height: `${34 + lanes.length * LANE_PX + 12}px` }}>
    ${ticks(half, width).filter((seconds) => x(at + seconds * 1000) < width - 24).map((seconds) => html`<span class=${`tick ${seconds === 0 ? "now" : ""}`} key=${seconds} style=${{ left: `${x(at + seconds * 1000)}px` }}><small>${tickText(seconds)}</small></span>`)}
    ${lanes.map((slot, index) => html`<span class="lane" key=${slot} style=${{ top: `${34 + index * LANE_PX}px` }}><small>${width < 500 ? `#${slot}` : `${group.length > LONGEST_LABEL ? "slot" : group} #${slot}`}</small></span>`)}
    ${all.filter((each) => lanes.includes(each.slot)).map((each) => {
      const from = clip(each.start ?? at - half);
      const to = clip(each.kind === "now" ? at : each.end ?? at);
      const style = { top: `${34 + lanes.indexOf(each.slot) * LANE_PX}px`, left: `${from}px`, width: `${Math.max(to - from - 2, 0)}px` };
      const until = each.kind === "now" && each.end > at ? clip(each.end) : null;
      if (to <= label || from >= width) return null;
      return html`${until !== null && html`<span class="bar rest" style=${{ top: style.top, left: `${to - 1}px`, width: `${Math.max(until - to, 0)}px` }}></span>`}
        <a class=${`bar ${each.kind}`} href=${each.id ? link("jobs", each.id) : undefined} style=${style} title=${barTitle(each)}>${to - from > 12 + LETTER_PX * each.label.length ? each.label : ""}</a>`;
    })}
  </div>`;
}

const LEAST_MS = 10_000;
const MOST_MS = 900_000;
const READABLE_PX = 52;

/** So much time on each side of now that a usual bar has room for a name: at most 15 minutes, and no more than there is. */
function halfSpan(all, at, width) {
  const furthest = Math.max(LEAST_MS, ...all.flatMap(({ start, end }) => [at - (start ?? at), (end ?? at) - at]));
  const lengths = all.map(({ start, end }) => (end ?? at) - (start ?? at)).sort((one, other) => one - other);
  const usual = lengths[lengths.length >> 1] ?? 0;
  const readable = (usual * (width / 2)) / READABLE_PX;
  return Math.min(Math.max(Math.min(furthest * 1.02, readable), LEAST_MS), MOST_MS);
}

function ticks(half, width) {
  const wanted = (2 * half) / 1000 / Math.max(width / 100, 2);
  const step = STEPS_SECONDS.find((each) => each >= wanted) ?? STEPS_SECONDS.at(-1);
  const count = Math.floor(half / 1000 / step);
  return Array.from({ length: 2 * count + 1 }, (_, index) => (index - count) * step);
}

function tickText(seconds) {
  if (seconds === 0) return "now";
  const sign = seconds < 0 ? "−" : "+";
  const value = Math.abs(seconds);
  return value % 60 === 0 ? `${sign}${value / 60} min` : value < 60 ? `${sign}${value} s` : `${sign}${span(value)}`;
}

function barTitle({ label, start, end, kind }) {
  const what = { past: "ran", failed: "failed", now: "runs", next: "expected, one possible course" }[kind];
  return `${label} ${what}\n${start ? absolute(start) : "?"} – ${end ? absolute(end) : "now"}`;
}
