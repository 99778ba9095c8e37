// The wait that a job would have if it were submitted now: asked for while the form is filled in.
import { html, useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { RangeBar } from "../components/parts.js";
import { range } from "../format.js";

const AFTER_TYPING_MS = 350;
const AGAIN_MS = 5000;

/** The answer of the service for these fields: {position, estimate}, {problem}, or null while it is not known. */
function useEstimate(fields) {
  const [known, setKnown] = useState(null);
  const name = JSON.stringify(fields);
  useEffect(() => {
    if (!fields.task) return void setKnown(null);
    let hasStopped = false;
    async function ask() {
      try {
        const answer = await get(path("estimate"), fields);
        if (!hasStopped) setKnown(answer);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!hasStopped) setKnown({ problem });
      }
    }
    const first = setTimeout(ask, AFTER_TYPING_MS);
    const again = setInterval(() => !document.hidden && ask(), AGAIN_MS);
    return () => {
      hasStopped = true;
      clearTimeout(first);
      clearInterval(again);
    };
  }, [name]);
  return known;
}

export function Expected({ fields }) {
  const known = useEstimate(fields);
  if (!fields.task) return html`<p class="empty">Name a task to see how long it would wait.</p>`;
  if (known === null) return html`<p class="empty">Asking …</p>`;
  if (known.problem) return html`<p class="empty">${known.problem.message}</p>`;
  const { position, estimate } = known;
  const hasRange = estimate?.upper_bound != null;
  return html`<div class="wait" aria-live="polite">
    <b>${hasRange ? `starts in ${range(estimate.lower_bound, estimate.upper_bound)}` : estimate?.message ?? "not known yet"}</b>
    ${hasRange && html`<${RangeBar} estimate=${estimate} axis=${Math.max(estimate.upper_bound * 1.2, 1)} />`}
    <small>${position ? `It would be #${position} in line` : "It would not join the line now"}, if nothing else comes.</small>
  </div>`;
}
