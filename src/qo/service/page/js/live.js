// What changes, as it changes: one stream for all tabs of a browser.
//
// The tab that holds the Web Lock listens to `api/stream` and passes each frame on over a BroadcastChannel; when it
// goes, the next tab in the lock's queue takes over, from the same cursor. Browsers have no Web Locks on plain HTTP
// from another machine: there, each tab that is seen has a stream of its own.
import { signal } from "../vendor/preact.js";
import { Problem, get, path } from "./api.js";
import { learn, serverNow } from "./state/clock.js";
import { whenSeen } from "./state/seen.js";

/** {state: "connecting" | "live" | "lost", since: milliseconds}; "lost" counts from the last sign of life. */
export const connection = signal({ state: "connecting", since: Date.now() });
/** The latest of each, as in a frame; null until the first came. */
export const overview = signal(null);
export const groups = signal(null);
export const workers = signal(null);
export const waiting = signal(null);
/** The slots of the most wanted groups, by group and number: {slot_id, holder, worker_id, since, expires_at}. */
export const slots = signal({});

const LOST_AFTER_MS = 5000;
const POLL_MS = 2000;
const RETRY_MS = 1000;
const name = `qo ${new URL(".", document.baseURI).pathname}`;
const channel = new BroadcastChannel(name);
const listeners = { frame: new Set(), reset: new Set() };

let cursor = null;
let source = null;
let isListening = false;
let lastSign = Date.now();
let hasStarted = false;
let hasBroken = false;
let isMissing = false; // something was asked for, and no answer came

/** The row of a frame. One without a task has only what changed: the rest is that of `known`, null where there is none. */
export function whole(known, row) {
  if (row.task !== undefined) return { status: row.state, attempts: 0, ...row };
  return known ? { ...known, ...row } : null;
}

/** Call `listener(frame)` for each frame. Returns a function that ends it. */
export function onFrame(listener) {
  listeners.frame.add(listener);
  return () => listeners.frame.delete(listener);
}

/** Call `listener()` when frames or answers were missed: whatever was read before has to be read again. */
export function onReset(listener) {
  listeners.reset.add(listener);
  return () => listeners.reset.delete(listener);
}

/** An answer did not come. When the server is there again, everything is read again. */
export function missAnswer() {
  isMissing = true;
}

export function startLive() {
  if (hasStarted) {
    if (isListening && source?.readyState === EventSource.CLOSED) open(); // somebody signed in again
    return;
  }
  hasStarted = true;
  lastSign = Date.now();
  connection.value = { state: "connecting", since: lastSign };
  channel.onmessage = ({ data }) => heard(data);
  channel.postMessage({ kind: "ask" });
  if (navigator.locks) {
    navigator.locks.request(name, () => new Promise((release) => listen(release)));
  } else {
    document.addEventListener("visibilitychange", listenWhileSeen);
    listenWhileSeen();
  }
}
setInterval(notice, 1000);

function listenWhileSeen() {
  if (!document.hidden) listen();
  else close();
}

function listen() {
  isListening = true;
  open();
}

function close() {
  isListening = false;
  source?.close();
  source = null;
}

function open() {
  source?.close();
  source = new EventSource(cursor === null ? path("stream") : `${path("stream")}?after=${encodeURIComponent(cursor)}`);
  source.addEventListener("open", () => (tell({ kind: hasBroken ? "back" : "alive" }), (hasBroken = false)));
  let isFirst = cursor === null;
  source.addEventListener("frame", (event) => {
    // Nothing is known of what changed between the reading of a window and the beginning of the stream.
    tell({ kind: isFirst ? "reset" : "frame", cursor: event.lastEventId, frame: JSON.parse(event.data) });
    isFirst = false;
  });
  source.addEventListener("reset", (event) => {
    tell({ kind: "reset", cursor: event.lastEventId || null, frame: event.data ? JSON.parse(event.data) : null });
  });
  source.addEventListener("error", () => {
    hasBroken = true;
    // A browser reconnects by itself after a break, but not after an answer that is no stream.
    if (source.readyState === EventSource.CLOSED) findOut();
  });
}

/** The answer was no stream: find out which it was, and do what helps. */
async function findOut() {
  cursor = null;
  try {
    await get(path("session"));
    const answer = await probe();
    if (answer === 404) return poll();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) return; // the sign-in page is shown now, and `startLive` comes after it
  }
  setTimeout(() => isListening && open(), RETRY_MS);
}

async function probe() {
  const giveUp = new AbortController();
  try {
    return (await fetch(path("stream"), { signal: giveUp.signal })).status;
  } catch {
    return 0;
  } finally {
    giveUp.abort();
  }
}

/** A service without a stream: groups and workers are asked for, and the line is read again each time. */
async function poll() {
  if (!isListening) return;
  if (!document.hidden) {
    try {
      const [allGroups, allWorkers] = await Promise.all([get(path("concurrency")), get(path("workers"))]);
      tell({ kind: "reset", cursor: null, frame: { groups: allGroups, workers: allWorkers } });
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
    }
  }
  setTimeout(poll, POLL_MS);
}

/** Act on a message, and pass it on to the other tabs. */
function tell(message) {
  heard(message);
  channel.postMessage(message);
}

function heard(message) {
  if (message.kind === "ask") {
    // A tab that was opened later: it needs what comes only when it changes.
    if (isListening && overview.value !== null) channel.postMessage({ kind: "frame", cursor, frame: present() });
    return;
  }
  lastSign = Date.now();
  const isBack = message.kind === "back" || connection.value.state === "lost";
  if (connection.value.state !== "live") connection.value = { state: "live", since: lastSign };
  if (message.cursor !== undefined) cursor = message.cursor;
  if (message.kind === "frame") take(message.frame);
  if (message.kind === "reset") startAgain(message.frame);
  else if (isBack && isMissing) readAgain();
}

function present() {
  return {
    at: new Date(serverNow()).toISOString(),
    waiting: waiting.value,
    changed: [],
    gone: [],
    groups: groups.value,
    workers: workers.value,
    overview: overview.value,
    slots: Object.fromEntries(Object.entries(slots.value).map(([group, held]) => [group, Object.values(held).map(inShort)])),
  };
}

function take(frame) {
  if (frame.at) learn(Date.parse(frame.at));
  keep(frame, frame.groups && merged(frame.groups));
  for (const listener of listeners.frame) listener(frame);
}

/** Frames were missed. What comes instead is the present state, and the rest has to be read again. */
function startAgain(present) {
  byName.clear();
  held = {};
  if (present) keep(present, present.groups && merged(present.groups));
  readAgain();
}

function readAgain() {
  isMissing = false;
  for (const listener of listeners.reset) listener();
}

function keep(frame, allGroups) {
  for (const [part, kept] of Object.entries({ waiting, workers, overview })) {
    if (frame[part] !== undefined && frame[part] !== null) whenSeen(part, () => (kept.value = frame[part]));
  }
  if (allGroups) whenSeen("groups", () => (groups.value = allGroups));
  if (frame.slots) {
    held = withSlots(held, frame.slots);
    whenSeen("slots", () => (slots.value = held));
  }
}

let held = {};

/** All slots, with those that a frame has in place of what was known of them. A slot without a holder is free. */
function withSlots(known, changed) {
  const all = { ...known };
  for (const [group, those] of Object.entries(changed)) {
    if (those === null) {
      delete all[group];
      continue;
    }
    all[group] = { ...all[group] };
    for (const [number, holder, worker, since, expires] of those) {
      if (holder) all[group][number] = { slot_id: number, holder, worker_id: worker, since, expires_at: new Date(expires).toISOString() };
      else delete all[group][number];
    }
  }
  return all;
}

function inShort({ slot_id: number, holder, worker_id: worker, since, expires_at: expires }) {
  return [number, holder, worker, since, Date.parse(expires)];
}

const byName = new Map();

/** All groups, with those that a frame has in place of what was known of them. */
function merged(changed) {
  for (const group of changed) {
    const isEmpty = group.limit == null && !group.paused && !group.closed_until && !group.active && !group.waiting;
    if (isEmpty) byName.delete(group.group);
    else byName.set(group.group, group);
  }
  return [...byName.values()];
}

/** Notice that nothing came for too long. Heartbeats are comments, which pages do not see, so the state of the
 * connection is asked of the browser; tabs that only follow trust the one that listens. */
function notice() {
  if (!hasStarted && connection.value.state === "connecting") return; // nobody has signed in yet
  if (isListening && source?.readyState === EventSource.OPEN) tell({ kind: "alive" });
  else if (Date.now() - lastSign > LOST_AFTER_MS && connection.value.state !== "lost") {
    connection.value = { state: "lost", since: lastSign };
  }
}

/** A group as a change has just answered it. The stream may not tell: it compares what it reads once a second. */
export function putGroup(group) {
  const allGroups = merged([group]);
  whenSeen("groups", () => (groups.value = allGroups));
}

/** A page without a stream has just heard from the server. */
export function heardFromServer() {
  heard({ kind: "alive" });
}

/** Why a change is refused now, or null. */
export function refusal() {
  if (connection.value.state !== "lost") return null;
  return "The connection to the server is lost, so nothing was changed. The page comes back by itself.";
}
