// A question in place of a button: it says what will happen, and asks once.
import { html, useLayoutEffect, useRef, useState } from "../../vendor/preact.js";

/**
 * `text` is what will happen, `yes` and `no` what can be chosen. `act` is called for yes; `keep` for no, for Escape,
 * and before `act`. The focus is on no at once, so that an Escape right after the press is heard.
 */
export function Question({ name, text, yes, no = "Keep it", size = "small", act, keep }) {
  const keeps = useRef(null);
  useLayoutEffect(() => keeps.current.focus(), []);
  const onKeyDown = (event) => event.key === "Escape" && (event.stopPropagation(), keep());
  return html`<span class="asks" role="group" aria-label=${name} onKeyDown=${onKeyDown}>
    <span>${text}</span>
    <button type="button" class=${`${size} danger`} onClick=${() => (keep(), act())}>${yes}</button>
    <button type="button" class=${size} ref=${keeps} onClick=${keep}>${no}</button>
  </span>`;
}

/** A ref for the element that has the focus again when its question has gone and has taken the focus away. */
export function useFocusBack(asks) {
  const element = useRef(null);
  const hasAsked = useRef(false);
  useLayoutEffect(() => {
    if (hasAsked.current && document.activeElement === document.body) (element.current ?? document.getElementById("main")).focus();
    hasAsked.current = asks;
  }, [asks]);
  return element;
}

/** A button that becomes its question. */
export function Ask({ label, name = label, text, yes, no, kind = "", size = "", act }) {
  const [asks, setAsks] = useState(false);
  const button = useFocusBack(asks);
  if (asks) return html`<${Question} name=${name} text=${text} yes=${yes} no=${no} size=${size} act=${act} keep=${() => setAsks(false)} />`;
  return html`<button type="button" ref=${button} class=${kind} aria-label=${name === label ? undefined : name} onClick=${() => setAsks(true)}>${label}</button>`;
}
