// A tab that nobody sees draws nothing. What it would have drawn is drawn once, when it is seen again.
const waiting = new Map();

/** Call `draw` now, or when the tab is seen again; of several with one name then only the last. */
export function whenSeen(name, draw) {
  if (!document.hidden) draw();
  else waiting.set(name, draw);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  const draws = [...waiting.values()];
  waiting.clear();
  for (const draw of draws) draw();
});
