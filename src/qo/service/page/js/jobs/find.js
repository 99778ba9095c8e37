// The box that finds jobs: chips of what is looked for, a word being typed, and what it may become.
import { html, useEffect, useId, useRef, useState } from "../../vendor/preact.js";
import { go } from "../route.js";
import { FIELDS, parse, shownAs, suggestions } from "./filter.js";

/** `filter` is what is looked for; `onChange` gets the whole of it. */
export function Find({ filter, known, onChange, isWanted }) {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const box = useRef(null);
  const id = useId();
  useEffect(() => void (isWanted && box.current.focus()), [isWanted]);
  const word = /(?:\S*"[^"]*"?|\S*)$/.exec(text)[0];
  const offered = isOpen ? suggestions(word, known) : [];

  function add(fields) {
    onChange({ ...filter, ...fields });
    setText("");
    setAt(-1);
    setOpen(false); // what was looked for is shown below
  }

  function choose(offer) {
    const before = text.slice(0, text.length - word.length);
    if (offer.open) go("jobs", offer.open);
    else if (offer.value === undefined) {
      setText(`${before}${offer.text}`);
      setAt(-1);
    } else add({ ...parse(before), [offer.field]: offer.value });
    box.current.focus();
  }

  function onKeyDown(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setAt((at + step + offered.length + 1) % (offered.length + 1) === offered.length ? -1 : (at + step + offered.length + 1) % (offered.length + 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (offered[at]) choose(offered[at]);
      else if (text.trim() && !text.trim().endsWith(":")) add(parse(text));
    } else if (event.key === "Escape") {
      setOpen(false);
      setAt(-1);
    } else if (event.key === "Backspace" && !text) {
      const last = FIELDS.filter((field) => filter[field]).at(-1);
      if (last) onChange({ ...filter, [last]: undefined });
    }
  }

  return html`<div class="find" role="search">
    ${FIELDS.filter((field) => filter[field]).map((field) => html`<span class="chip on" key=${field}>${shownAs(field, filter[field])}
      <button type="button" class="drop" aria-label=${`Remove ${shownAs(field, filter[field])}`} onClick=${() => onChange({ ...filter, [field]: undefined })}>×</button></span>`)}
    <input ref=${box} data-find role="combobox" aria-label="Find jobs" aria-expanded=${offered.length > 0} aria-controls=${id} aria-autocomplete="list"
      aria-activedescendant=${offered[at] ? `${id}-${at}` : undefined} autocomplete="off" spellcheck=${false}
      placeholder="task:build user:u1 state:failed id:01J…" value=${text}
      onInput=${(event) => (setText(event.target.value), setOpen(true), setAt(-1))} onFocus=${() => setOpen(true)} onClick=${() => setOpen(true)} onBlur=${() => setOpen(false)} onKeyDown=${onKeyDown} />
    <ul id=${id} role="listbox" aria-label="Suggestions" hidden=${offered.length === 0}>${offered.map((offer, index) => html`<li key=${offer.text} id=${`${id}-${index}`} role="option" aria-selected=${index === at}
      onMouseDown=${(event) => (event.preventDefault(), choose(offer))}>${offer.value === undefined ? offer.text : html`<span class="muted">${offer.field}:</span>${offer.value}`}</li>`)}</ul>
  </div>`;
}
