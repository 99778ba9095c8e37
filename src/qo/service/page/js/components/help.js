// What the keys do, and the switch for them. A panel beside the page, not a window in front of it.
import { html } from "../../vendor/preact.js";
import { PAGES, helpOpen, keysOn, switchKeys } from "../keys.js";

const KEYS = [
  ["/", "find a job"],
  ["?", "this help"],
  ["u", "undo what was just done"],
  ...PAGES.map(([, title, letter]) => [`g ${letter}`, `open ${title}`]),
  ["g s", "submit a job"],
  ["j k", "next and previous row, as arrows do"],
  ["Enter", "open the job of a row"],
  ["Space", "pick a row up; arrows, Page, Home and End move it, Space drops it, Escape puts it back"],
];

export function Help() {
  if (!helpOpen.value) return null;
  return html`<aside class="help card" aria-label="Keys">
    <header><h2>Keys</h2><button class="quiet" aria-label="Close" onClick=${() => (helpOpen.value = false)}>×</button></header>
    <dl>${KEYS.map(([key, text]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}</dl>
    <label class="switch"><input type="checkbox" checked=${keysOn.value} onChange=${(event) => switchKeys(event.target.checked)} />
      Single keys are on</label>
  </aside>`;
}
