// The line as far as it was read: the jobs from the front, in their order, kept up to date by frames.
//
// It always begins at the front, so a job's place is its index, and a frame that comes twice or late does no harm.
// Rows behind the last one that was read are not known and are read when somebody scrolls there.
import { signal } from "../../vendor/preact.js";
import { get, path } from "../api.js";
import { waiting } from "../live.js";
import { remember } from "./names.js";
import { whenSeen } from "./seen.js";

const PAGE = 60; // the same as first.js asks for
const LARGEST_PAGE = 200; // a larger one keeps the page busy for too long at once
export const MOST_ROWS = 10_000;
const MARKED_MS = 1000;

/** Only what a row shows: ten thousand whole jobs would fill the memory. */
function lean(job, now) {
  return {
    id: job.id,
    key: keyText(job),
    task: job.task,
    user: job.user,
    project: job.project,
    tier: job.tier,
    priority: job.priority,
    attempts: job.attempts,
    joined_at: job.joined_at,
    // Those that joined later have greater ones. A job that the server has not read since it was moved is new.
    sequence: job.sequence ?? null,
    // Places it gained by a move, a priority or aging. Frames do not say it of a job that changed: it is counted here
    // until the line is read again.
    gained: job.gained ?? null,
    estimate: !job.estimate ? null : {
      lower_bound: job.estimate.lower_bound,
      upper_bound: job.estimate.upper_bound,
      estimate_seconds: job.estimate.estimate_seconds,
      message: job.estimate.message,
    },
    waits_for: job.waits_for ?? [],
    changedAt: now,
  };
}

function keyText(job) {
  if (typeof job.key === "string") return job.key;
  return String(job.key ?? job.position).padStart(20, "0");
}

export function createLine({ now = Date.now } = {}) {
  const rows = [];
  const byId = new Map();
  let next = null;
  let lastRead = ""; // the greatest key that was read; what is behind it comes with the next page
  let isComplete = false;
  let isRead = false;
  let hasFrames = false;
  let isStale = false; // it has to be read again as soon as that is possible
  let reading = null;
  let missed = null; // the frames that came while a page was being read
  let held = null; // what came while the list has to stand still, by job id
  const version = signal(0);
  const changes = new Set(); // listeners of what happens above the window

  /** The index of the first row whose key is not smaller. */
  function indexOf(key) {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].key < key) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The index of a row that is there. For the time between two frames, two rows may have the same key: one got the key
   * that the other had until then. */
  function placeOf(row) {
    let index = indexOf(row.key);
    while (index < rows.length && rows[index] !== row) index += 1;
    return index;
  }

  function remove(id, reason) {
    const row = byId.get(id);
    if (row === undefined) return;
    const index = placeOf(row);
    rows.splice(index, 1);
    byId.delete(id);
    for (const listener of changes) listener({ kind: reason, index, row });
  }

  /** How many jobs ahead joined later. All jobs ahead are known, so this is as new as the order itself. */
  function placedAhead(row) {
    const end = placeOf(row);
    let count = 0;
    for (let at = 0; at < end; at += 1) if (rows[at].sequence > row.sequence) count += 1;
    return count;
  }

  function put(row, before) {
    const known = byId.get(row.id);
    if (known !== undefined) {
      // Estimates and the words of a reason change all the time; that alone is no change worth a mark.
      if (known.priority === row.priority && reasonOf(known) === reasonOf(row)) row.changedAt = known.changedAt;
      keepKnown(row, known);
      rows[placeOf(known)] = row;
      byId.set(row.id, row);
      return;
    }
    const index = indexOf(row.key);
    if (before) {
      const isCounted = row.gained !== null;
      keepKnown(row, before.row);
      if (!isCounted) countMove(row, before.index, index);
    }
    row.gained ??= 0;
    row.sequence ??= Infinity;
    if (!isComplete && row.key > lastRead) return;
    rows.splice(index, 0, row);
    byId.set(row.id, row);
    for (const listener of changes) listener({ kind: before ? "moved" : "joined", index, row });
  }

  function keepKnown(row, known) {
    row.gained ??= known.gained;
    row.sequence ??= known.sequence;
    row.estimate ??= known.estimate;
  }

  function countMove(row, from, to) {
    row.gained = Math.max(row.gained + from - to, 0);
  }

  function apply(frame) {
    applyChanges(frame);
    refineAll(frame);
  }

  function applyChanges({ changed, gone }) {
    const inLine = changed.filter((job) => job.state === "queued" && (job.task !== undefined || byId.has(job.id)))
      .map((job) => (job.task === undefined ? { ...byId.get(job.id), ...job, key: keyText(job), changedAt: now(), gained: null } : lean(job, now())));
    const staying = new Set(inLine.map((row) => row.id));
    const started = new Set(changed.filter((job) => ["starting", "running"].includes(job.state)).map((job) => job.id));
    for (const [id] of gone) if (!staying.has(id)) remove(id, started.has(id) || !changed.length ? "started" : "left");
    for (const { id } of changed) if (!staying.has(id)) remove(id, started.has(id) ? "started" : "left");
    putAll(inLine);
  }

  /** What changes without the job itself: of many rows at once, so it is not worth a mark. It moves no row. */
  function refineAll({ reasons = [], front = [] }) {
    for (const { waits_for: waitsFor, ids } of reasons) for (const id of ids) refine(id, { waits_for: waitsFor });
    for (const [id, seconds, message, gained] of front) {
      const [lower, likely, upper] = seconds ?? [];
      refine(id, { estimate: { lower_bound: lower, estimate_seconds: likely, upper_bound: upper, message }, gained });
    }
  }

  /** A new object in its place: a component is drawn again for another row, and not for another field of it. */
  function refine(id, fields) {
    const known = byId.get(id);
    if (known === undefined) return;
    const row = { ...known, ...fields };
    rows[placeOf(known)] = row;
    byId.set(id, row);
  }

  /** Rows with new keys are all taken out before the first is put in: one may get the key that another had. */
  function putAll(inLine) {
    const before = new Map();
    for (const { id, key } of inLine) {
      const row = byId.get(id);
      if (row === undefined || row.key === key) continue;
      before.set(id, { row, index: placeOf(row) });
    }
    for (const id of before.keys()) remove(id, "moved");
    for (const row of inLine) put(row, before.get(row.id));
  }

  function take(frame) {
    hasFrames ||= frame.at !== undefined;
    missed?.push(frame);
    if (held === null) {
      applyChanges(frame);
    } else {
      hold(frame);
    }
    refineAll(frame);
    if (frame.changed.length || frame.gone.length || frame.reasons || frame.front) drawn();
  }

  /** Keep the last that is known of each job: a list that is held for long must not fill the memory. */
  function hold({ changed, gone }) {
    for (const [id, key] of gone) held.set(id, { changed: [], gone: [[id, key]] });
    for (const job of changed) held.set(job.id, { changed: [job], gone: held.get(job.id)?.gone ?? [] });
  }

  function drawn() {
    whenSeen(version, () => (version.value += 1));
  }

  /** Read on until `count` rows are known, or the line ends. One page at a time, however often it is called. */
  async function readTo(count) {
    while (!isComplete && rows.length < Math.min(count, MOST_ROWS)) await readPage(rows.length === 0 ? PAGE : LARGEST_PAGE);
  }

  function readPage(limit) {
    reading ??= readOnce({ after: next, limit }).finally(() => (reading = null));
    return reading;
  }

  async function readOnce(query) {
    missed = [];
    try {
      const page = await get(path("queue"), query);
      const at = now();
      next = page.next;
      isComplete = page.next === null;
      isRead = true;
      remember(page.items);
      const read = page.items.map((job) => lean(job, at - MARKED_MS));
      read.forEach(insertRead);
      lastRead = read.at(-1)?.key ?? lastRead;
      // What came meanwhile may be newer than the page or older. Repeated on top of it in their order, the frames end
      // with the truth: whatever the page has that is newer comes in a frame after these.
      const seen = missed;
      missed = null;
      for (const frame of seen) if (held === null) apply(frame);
      drawn();
    } finally {
      missed = null;
    }
  }

  function insertRead(row) {
    const known = byId.get(row.id);
    if (known !== undefined) rows.splice(placeOf(known), 1);
    row.sequence ??= Infinity;
    rows.splice(indexOf(row.key), 0, row);
    byId.set(row.id, row);
  }

  /** Read everything again that was read before, because frames were missed. What is being read now may be too old. */
  async function reload() {
    isStale = true;
    if (reading !== null) await reading;
    if (!isStale || held !== null || reading !== null) return;
    isStale = false;
    reading = reloadTo(Math.max(rows.length, PAGE)).finally(() => (reading = null));
    await reading;
  }

  async function reloadTo(wanted) {
    missed = [];
    try {
      const items = [];
      let after = null;
      do {
        const page = await get(path("queue"), { after, limit: Math.min(wanted - items.length, LARGEST_PAGE) });
        items.push(...page.items);
        after = page.next;
      } while (after !== null && items.length < wanted);
      if (held !== null) {
        isStale = true;
        return;
      }
      const kept = new Set(items.map((job) => job.id));
      for (const id of [...byId.keys()]) if (!kept.has(id)) remove(id, "started");
      next = after;
      isComplete = after === null;
      const read = items.map((job) => lean(job, now()));
      lastRead = read.at(-1)?.key ?? "";
      putAll(read);
      isRead = true;
      const seen = missed;
      missed = null;
      for (const frame of seen) apply(frame);
      drawn();
    } finally {
      missed = null;
    }
  }

  return {
    version,
    rows,
    byId,
    take,
    readTo,
    reload,
    placedAhead,
    place: (id) => (byId.has(id) ? placeOf(byId.get(id)) + 1 : null),
    get isComplete() {
      return isComplete;
    },
    /** How many jobs are in line. Of a line that was read in part the stream says it. */
    get total() {
      return isComplete ? rows.length : Math.max(waiting.value ?? 0, rows.length);
    },
    get isRead() {
      return isRead;
    },
    /** Let the list stand still: what comes is kept until `release`. */
    hold() {
      held ??= new Map();
      drawn();
    },
    get isHeld() {
      return held !== null;
    },
    /** How many jobs have changed since the list is held. */
    get heldBack() {
      return held?.size ?? 0;
    },
    release() {
      const kept = [...(held?.values() ?? [])];
      held = null;
      for (const frame of kept) apply(frame);
      drawn();
      if (isStale) reload();
    },
    /** A job that a change has answered: its row does not wait for the next frame. */
    takeAnswer(job) {
      if (job.key != null) take({ changed: [{ ...byId.get(job.id), ...filled(job) }], gone: [] });
    },
    /** Without a stream, the answer to a change is all that says where a job is now. */
    async reloadIfUnfed() {
      if (!hasFrames) await reload();
    },
    /** Call `listener({kind: "joined" | "started" | "left" | "moved", index, row})` for each row that comes or goes. */
    onChange(listener) {
      changes.add(listener);
      return () => changes.delete(listener);
    },
    isMarked: (row) => now() - row.changedAt < MARKED_MS,
  };
}

/** The fields of an answer that say something: a change answers no estimate, and the row keeps its own. */
function filled(job) {
  return Object.fromEntries(Object.entries(job).filter(([, value]) => value !== null));
}

function reasonOf({ waits_for: [main] }) {
  return main && `${main.kind} ${main.group}`;
}
