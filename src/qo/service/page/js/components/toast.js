// Short messages at the lower edge: what was done, with Undo while it is possible; what went wrong, with what to do.
import { html, signal } from "../../vendor/preact.js";
import { Problem, path, send } from "../api.js";
import { say } from "./said.js";

export const UNDO_SECONDS = 10;
const toasts = signal([]);
let lastNumber = 0;

/** Show a message. `actions`: [{label, act}], and `undo`; it goes after `seconds`, and when one of them is pressed. */
export function toast(text, { actions = [], undo = null, kind = "plain", seconds = 6 } = {}) {
  const number = ++lastNumber;
  toasts.value = [...toasts.value.slice(-2), { number, text, actions, undo, kind }];
  say(text);
  setTimeout(() => dismiss(number), seconds * 1000);
  return () => dismiss(number);
}

let cameFrom = null; // what had the focus before it came to the messages

/** The focus goes back to where it was, if it is in the message that goes. */
function dismiss(number) {
  const message = document.getElementById(`message-${number}`);
  if (message?.contains(document.activeElement)) {
    (cameFrom?.isConnected ? cameFrom : document.getElementById("main")).focus({ preventScroll: true });
  }
  toasts.value = toasts.value.filter((each) => each.number !== number);
}

function came({ currentTarget, relatedTarget }) {
  if (!currentTarget.contains(relatedTarget)) cameFrom = relatedTarget;
}

/** Undo what was done last, while that can be undone. */
export function undoLast() {
  const last = toasts.value.findLast(({ undo }) => undo);
  if (!last) return say("There is nothing to undo.");
  dismiss(last.number);
  last.undo();
}

/** Say what was done. With the `audit_id` of the answer, it can be undone for 10 seconds. */
export function toastDone(text, auditId, afterUndo = () => {}) {
  const undo = auditId == null ? null : () => attempt(() => undoIt(auditId, afterUndo));
  toast(text, { undo, seconds: UNDO_SECONDS });
}

async function undoIt(auditId, afterUndo) {
  await send("POST", path("audit", String(auditId), "undo"));
  toast("Undone.");
  await afterUndo();
}

/** Run a change. A refusal becomes a message, and the answer is then undefined. */
export async function attempt(change) {
  try {
    return await change();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    toastProblem(problem);
    return undefined;
  }
}

export function toastProblem(problem) {
  if (problem.isOfReading) return;
  const number = problem.debugId ? ` (debug id ${problem.debugId})` : "";
  toast(`${problem.title}: ${problem.message}${number}`, { kind: "bad", seconds: 10 });
}

export function Toasts() {
  return html`<div class="toasts" role="region" aria-label="Messages" onFocusIn=${came}>
    ${toasts.value.map(({ number, text, actions, undo, kind }) => html`<div key=${number} id=${`message-${number}`} class=${`toast ${kind}`}>
      <span>${text}</span>
      ${actions.map(({ label, act }) => html`<button class="link" onClick=${() => (dismiss(number), act())}>${label}</button>`)}
      ${undo && html`<button class="link" aria-keyshortcuts="u" title="or the key u" onClick=${() => (dismiss(number), undo())}>Undo</button>`}
      <button class="quiet" aria-label="Close" onClick=${() => dismiss(number)}>×</button>
    </div>`)}
  </div>`;
}
