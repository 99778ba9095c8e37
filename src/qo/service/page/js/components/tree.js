// A JSON value as a tree that folds. Only what is open is in the document: a payload may have a mebibyte.
import { html, useState } from "../../vendor/preact.js";
import { counted } from "../format.js";
import { isNumber, written } from "../exact.js";

const MOST_AT_ONCE = 100;
const OPEN_DEPTH = 2;
const FEW = 20;
const LONG_TEXT = 400;

/** `value` comes from `parseExact`, so that its numbers are exact. */
export function Tree({ value }) {
  return html`<div class="tree mono"><${Node} value=${value} depth=${0} /></div>`;
}

function Node({ name, value, depth }) {
  if (value === null || typeof value !== "object" || isNumber(value)) {
    return html`<div class="leaf"><${Name} name=${name} /><${Leaf} value=${value} /></div>`;
  }
  return html`<${Branch} name=${name} value=${value} depth=${depth} />`;
}

function Branch({ name, value, depth }) {
  const inner = Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value);
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && inner.length <= FEW);
  const [most, setMost] = useState(MOST_AT_ONCE);
  const [begin, end] = Array.isArray(value) ? "[]" : "{}";
  if (!inner.length) return html`<div class="leaf"><${Name} name=${name} />${begin}${end}</div>`;
  const size = Array.isArray(value) ? counted(inner.length, "item") : counted(inner.length, "field");
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.target.open)}>
    <summary><${Name} name=${name} />${begin} <small>${size}</small>${!isOpen && ` ${end}`}</summary>
    ${isOpen && html`<div class="inner">
      ${inner.slice(0, most).map(([key, each]) => html`<${Node} key=${key} name=${key} value=${each} depth=${depth + 1} />`)}
      ${inner.length > most && html`<button type="button" class="link" onClick=${() => setMost(most + MOST_AT_ONCE)}>${counted(inner.length - most, "more")}, show ${MOST_AT_ONCE}</button>`}
    </div>${end}`}
  </details>`;
}

function Name({ name }) {
  if (name === undefined) return null;
  return html`<span class="name">${typeof name === "number" ? name : JSON.stringify(name)}</span>: `;
}

function Leaf({ value }) {
  const [isWhole, setWhole] = useState(false);
  if (isNumber(value)) return html`<span class="number">${written(value)}</span>`;
  if (typeof value !== "string") return html`<span class="word">${String(value)}</span>`;
  const isCut = value.length > LONG_TEXT && !isWhole;
  return html`<span class="text">${JSON.stringify(isCut ? value.slice(0, LONG_TEXT) : value)}</span>
    ${isCut && html` <button type="button" class="link" onClick=${() => setWhole(true)}>all ${counted(value.length, "character")}</button>`}`;
}
