// Keys for the whole page: `/` finds, `?` helps, `u` undoes, `g` and a letter opens a page, `j` and `k` or arrows go
// through a list.
// Single keys can be switched off, because speech input and some people's hands press them by mistake (WCAG 2.1.4).
import { signal } from "../vendor/preact.js";
import { undoLast } from "./components/toast.js";
import { go } from "./route.js";

export const PAGES = [
  ["line", "Line", "l"],
  ["jobs", "Jobs", "j"],
  ["groups", "Groups", "g"],
  ["insight", "Insight", "i"],
  ["history", "History", "h"],
  ["workers", "Workers", "w"],
  ["audit", "Audit", "a"],
];

export const keysOn = signal(localStorage.getItem("qo-keys") !== "off");
export const helpOpen = signal(false);

export function switchKeys(on) {
  keysOn.value = on;
  localStorage.setItem("qo-keys", on ? "on" : "off");
}

let waitsForLetter = 0;

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && helpOpen.value) helpOpen.value = false;
  if (!keysOn.value || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (waitsForLetter > event.timeStamp) {
    waitsForLetter = 0;
    const page = PAGES.find(([, , letter]) => letter === event.key)?.[0] ?? (event.key === "s" ? "submit" : null);
    if (page) {
      event.preventDefault();
      go(page);
    }
    return;
  }
  if (event.key === "g") {
    waitsForLetter = event.timeStamp + 1500;
  } else if (event.key === "?") {
    helpOpen.value = !helpOpen.value;
  } else if (event.key === "/") {
    event.preventDefault();
    const box = document.querySelector("[data-find]");
    if (box) box.focus();
    else go("jobs", null, { find: "1" });
  } else if (event.key === "u") {
    undoLast();
  } else if (event.key === "j" || event.key === "k") {
    step(event, event.key === "j" ? 1 : -1);
  }
});

// Arrows go on from a row that has the focus itself, also while single keys are off.
addEventListener("keydown", (event) => {
  const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (way && event.target.matches?.("[data-step]") && !event.ctrlKey && !event.metaKey && !event.altKey) step(event, way);
});

function isTyping(element) {
  return element.matches?.("input, textarea, select, [contenteditable]") ?? false;
}

/** The next or the previous [data-step] of the list that has the focus, else of the first list of the page. A list that
 * draws only a part of its rows listens to keys itself and takes the event first. */
function step(event, way) {
  if (event.defaultPrevented) return;
  const list = document.activeElement?.closest("[data-steps]") ?? document.querySelector("[data-steps]");
  const steps = [...(list?.querySelectorAll("[data-step]") ?? [])];
  const here = steps.findIndex((each) => each.contains(document.activeElement));
  const next = here < 0 ? steps[0] : steps[here + way];
  if (next) {
    event.preventDefault();
    next.focus();
  }
}
