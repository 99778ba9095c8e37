// What another limit or capacity would change, said before anything is set.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, path, send } from "../api.js";
import { hourAndMinute, inUnitOf, number, range, span, timeOfDay } from "../format.js";
import { setQuery } from "../route.js";
import { serverNow } from "../state/clock.js";

const MOST = 2 ** 31 - 1;
const PAUSE_MS = 250;

/**
 * A stepper from `present` to `wanted`, and what that would do. `kind`: "limits" of a group or "capacity" of a worker.
 * `field` is the name of the wanted number in the address; `children(wanted)` are the buttons beside the stepper.
 */
export function WhatIf({ kind, name, present, wanted, field, label, children }) {
  const given = wanted !== null && wanted >= 0 && Number.isInteger(wanted);
  const value = given ? wanted : (present ?? 0);
  const isOther = given && wanted !== present;
  const answer = useAnswer(kind, name, isOther ? wanted : null);
  const step = (to) => setQuery({ [field]: to === present ? null : Math.min(Math.max(to, 0), MOST) }, { replace: true });
  return html`<div class="what-if">
    <div class="stepper"><label>${label}
      <span><button type="button" aria-label="One less" disabled=${value <= 0} onClick=${() => step(value - 1)}>−</button><input type="number" min="0" max=${MOST} inputmode="numeric" value=${value}
        onInput=${(event) => event.target.value !== "" && step(Math.floor(Number(event.target.value)))} /><button type="button" aria-label="One more" onClick=${() => step(value + 1)}>+</button></span></label>
      ${children(isOther ? wanted : null)}</div>
    <p class="outcome" aria-live="polite">${isOther ? html`<${Outcome} answer=${answer} kind=${kind} present=${present} wanted=${wanted} />` : html`<small>Step it up or down to see what that would do to everybody in line. Nothing is set yet.</small>`}</p>
  </div>`;
}

/** The answer for a number; null while it is asked for, a Problem when it was refused. */
function useAnswer(kind, name, wanted) {
  const [answer, setAnswer] = useState(null);
  useEffect(() => {
    setAnswer(null);
    if (wanted === null) return undefined;
    let isOver = false;
    const timer = setTimeout(async () => {
      try {
        const found = await send("POST", path("queue", "what-if"), { variants: [{ [kind]: { [name]: wanted } }] });
        if (!isOver) setAnswer(found);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!isOver) setAnswer(problem);
      }
    }, PAUSE_MS);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [kind, name, wanted]);
  return answer;
}

function Outcome({ answer, kind, present, wanted }) {
  const change = html`<b>${kind === "limits" ? "limit" : "capacity"} ${present ?? "none"} → ${number(wanted)}</b>`;
  if (answer === null) return html`${change}: playing the line forward …`;
  if (answer instanceof Problem) {
    return html`${change}: what it would change is not known. <small>${[404, 405].includes(answer.status) ? "This server cannot play the line forward." : answer.message}</small>`;
  }
  const { before, variants: [after], jobs, basis } = answer;
  if (jobs === 0) return html`${change}: nothing is in line, so nobody would notice.`;
  if (after.last_seconds === null) return html`${change}: none of these ${number(jobs)} ${before.last_seconds === null ? "can start, as now" : "could start any more"}.`;
  return html`${change}: ${medianWords(before, after)}, ${lastWords(before, after, jobs)}${strandedWords(before, after)}, if nothing new comes.${basis === "first_guess" && html` <small>A first guess: no run of these tasks was measured yet.</small>`}`;
}

function medianWords({ median_seconds: before }, { median_seconds: after }) {
  if (before === null && after === null) return "fewer than half can start, as now";
  if (before === null) return `median wait ${span(after)}, while now fewer than half can start`;
  if (after === null) return `fewer than half could start, while the median wait is ${span(before)} now`;
  return `median wait ${fromTo(before, after)}`;
}

/** "17 → 9 min": in one unit; with more digits where that would hide the difference. */
export function fromTo(before, after) {
  const most = Math.max(before, after);
  const [from, to] = [inUnitOf(before, most), inUnitOf(after, most)];
  if (from === to) return Math.abs(before - after) < 1 ? `${span(before)}, as now` : `${span(before)} → ${span(after)}`;
  return `${from} → ${to} ${range(most, most).split(" ").at(-1)}`;
}

function lastWords({ last_seconds: before }, { last_seconds: after }, jobs) {
  const these = jobs === 1 ? "the one in line" : `the last of these ${number(jobs)}`;
  const at = (seconds, clock) => clock(serverNow() + seconds * 1000);
  if (before === null) return `${these} starts ${at(after, hourAndMinute)} instead of not at all`;
  if (Math.abs(before - after) < 1) return `${these} starts ${at(after, hourAndMinute)}, as now`;
  const clock = at(before, hourAndMinute) === at(after, hourAndMinute) ? timeOfDay : hourAndMinute;
  return `${these} starts ${at(after, clock)} instead of ${at(before, clock)}`;
}

function strandedWords({ cannot_start: before = 0 }, { cannot_start: after = 0 }) {
  if (before === after) return after ? `, ${number(after)} cannot start at all, as now` : "";
  return `, ${number(after)} cannot start at all (now ${number(before)})`;
}
