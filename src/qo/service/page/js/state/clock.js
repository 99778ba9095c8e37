// The time of the server, for everything that says how long ago. It ticks once a second while the page is seen.
import { signal } from "../../vendor/preact.js";

let ahead = 0;

/** Milliseconds, on the server's clock. Components that read `.value` are drawn again each second. */
export const now = signal(Date.now());

export function serverNow() {
  return Date.now() + ahead;
}

/** Learn from a time that the server has just sent. Only a difference that people see counts. */
export function learn(serverTime) {
  const difference = serverTime - Date.now();
  if (Math.abs(difference - ahead) > 2000) ahead = difference;
}

setInterval(() => {
  if (!document.hidden) now.value = serverNow();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) now.value = serverNow();
});
