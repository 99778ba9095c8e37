// Jobs that run and jobs that ask for a confirmation: few, and always all of them.
import { batch, signal } from "../../vendor/preact.js";
import { getList, path } from "../api.js";
import { attempt } from "../components/toast.js";
import { onFrame, onReset, whole } from "../live.js";
import { remember } from "./names.js";
import { whenSeen } from "./seen.js";

const MOST = 200;
const SHOWN = { starting: "running", running: "running", confirming: "confirming" };
const READ_AGAIN_MS = 1000;

export const running = signal(null);
export const confirming = signal(null);
/** Whether `running` has all of them. */
export const hasAllRunning = signal(true);
/** When the last job ended, as far as this page knows: RFC 3339 text or null. */
export const lastEnded = signal(null);

let all = null; // the same as the signals, also while nobody sees the page
let ended = null;
let readAt = 0;
let isWanted = false;
let isReading = false;

/** Read all of them, at most once a second. */
export async function readActive() {
  if (isReading || Date.now() - readAt < READ_AGAIN_MS) {
    if (!isWanted) setTimeout(() => ((isWanted = false), attempt(readActive)), READ_AGAIN_MS);
    isWanted = true;
    return;
  }
  isReading = true;
  readAt = Date.now();
  const missed = [];
  const stop = onFrame((frame) => missed.push(frame));
  try {
    const ask = (status) => getList(path("jobs"), { status, limit: MOST });
    const [starts, runs, asks] = await Promise.all(["starting", "running", "confirming"].map(ask));
    all = { running: byStart([...runs.items, ...starts.items]), confirming: asks.items };
    hasAllRunning.value = starts.next === null && runs.next === null;
    remember(all.running);
    missed.forEach(take);
    draw();
  } finally {
    stop();
    isReading = false;
  }
}

function take({ changed, gone }) {
  if (all === null) return;
  if (changed.length) {
    const before = new Map([...all.running, ...all.confirming].map((job) => [job.id, job]));
    const rows = new Map(changed.map((job) => [job.id, whole(before.get(job.id), job)]));
    const kept = (jobs, kind) => [
      ...jobs.filter((job) => !rows.has(job.id)),
      ...[...rows.values()].filter((job) => job && SHOWN[job.state] === kind),
    ];
    all = { running: byStart(kept(all.running, "running")), confirming: kept(all.confirming, "confirming") };
    for (const job of changed) if (job.finished_at && job.finished_at > (ended ?? "")) ended = job.finished_at;
    draw();
  }
  // A job that left the line without a word of what became of it.
  if (gone.some(([id]) => !changed.some((job) => job.id === id))) attempt(readActive);
}

function draw() {
  whenSeen("active", () => batch(() => {
    running.value = all.running;
    confirming.value = all.confirming;
    lastEnded.value = ended;
  }));
}

function byStart(jobs) {
  return jobs.sort((one, other) => (one.started_at ?? "") < (other.started_at ?? "") ? -1 : 1);
}

onFrame(take);
onReset(() => attempt(readActive));
