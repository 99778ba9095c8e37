// The state of a group in words, and the changes that can be undone.
import { path, send } from "../api.js";
import { attempt, toastDone } from "../components/toast.js";
import { hourAndMinute, moment, number } from "../format.js";
import { groups } from "../live.js";
import { keep, refresh } from "./slots.js";

/** {words: "4 of 4", isTight}: what a group has left, and whether that asks for attention. */
export function standing({ limit, active, paused, closed_until: closed }) {
  if (paused) return { words: "paused", isTight: true };
  if (closed) return { words: `full until ${hourAndMinute(moment(closed))}`, isTight: true };
  if (limit === null) return { words: "no limit", isTight: false };
  return { words: `${number(active)} of ${number(limit)}`, isTight: active >= limit };
}

const SOURCES = { 1: "set by hand", 2: "from the configuration", 3: "from the tier", 4: "from the task", 5: "from a submit" };

export function sourceWords(source) {
  return SOURCES[source] ?? "";
}

async function change(request, words) {
  const done = await attempt(request);
  if (!done) return;
  take(done);
  toastDone(words, done.audit_id, () => refresh([done.group]));
}

function take(group) {
  keep(group);
  groups.value = [...(groups.value ?? []).filter((each) => each.group !== group.group), { ...group, slots: [] }];
}

export function pausedOrResumed({ group, paused }) {
  return change(
    () => send("POST", path("queue", paused ? "resume" : "pause"), { group }),
    paused ? `${group} starts jobs again.` : `${group} is paused: nothing starts in it until it is resumed. What runs goes on.`,
  );
}

export function setLimit(group, limit) {
  return change(() => send("PUT", path("concurrency", group), { limit }), `${group} has a limit of ${number(limit)} now.`);
}

export function removeLimit(group) {
  return change(() => send("DELETE", path("concurrency", group)), `${group} has no limit any more.`);
}
