// A button that opens a list of choices beside it. It is a popover, so nothing clips it, and Escape closes it.
import { html, useEffect, useId, useRef } from "../../vendor/preact.js";

/**
 * `items`: [{label, act, hint?, disabled?}] or any content as `children`, which gets `close`.
 * `onOpen` and `onClose` let a list stand still meanwhile.
 */
export function Menu({ label, name, class: kind = "", items = null, children, onOpen, onClose, stop }) {
  const id = useId();
  const button = useRef(null);
  const panel = useRef(null);
  const isOpen = useRef(false);
  const close = () => panel.current?.hidePopover();
  useEffect(() => () => isOpen.current && onClose?.(), []); // it left the document, and says nothing more

  function toggled({ newState }) {
    isOpen.current = newState === "open";
    if (!isOpen.current) {
      onClose?.();
      return;
    }
    onOpen?.();
    place(panel.current, button.current);
    panel.current.querySelector("button:not([disabled]), input, select")?.focus();
  }

  function onKeyDown(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    event.stopPropagation(); // the list behind has the same keys
    if (step === undefined || event.target.matches("input, select")) return;
    event.preventDefault();
    const choices = [...panel.current.querySelectorAll("button:not([disabled])")];
    const to = choices.indexOf(document.activeElement) + step;
    choices[Math.min(Math.max(to, 0), choices.length - 1)]?.focus();
  }

  return html`<span class=${`menu ${kind}`}>
    <button ref=${button} type="button" class="menu-button" tabindex=${stop} popovertarget=${id} aria-haspopup="menu" aria-label=${name}>${label}</button>
    <div ref=${panel} id=${id} popover="auto" class="menu-panel" role=${items ? "menu" : "dialog"} aria-label=${name ?? label}
      onToggle=${toggled} onKeyDown=${onKeyDown}>
      ${items
        ? items.map((item) => html`<button type="button" role="menuitem" disabled=${item.disabled}
            onClick=${() => (close(), item.act())}>${item.label}${item.hint && html`<small>${item.hint}</small>`}</button>`)
        : typeof children === "function" ? children(close) : children}
    </div>
  </span>`;
}

/** Below the button, or above it where there is no room; inside the window in any case. */
function place(panel, button) {
  const at = button.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = panel;
  const below = at.bottom + 4 + height <= innerHeight || at.top < height;
  panel.style.top = `${below ? Math.min(at.bottom + 4, innerHeight - height - 4) : at.top - height - 4}px`;
  panel.style.left = `${Math.max(8, Math.min(at.left, innerWidth - width - 8))}px`;
}
