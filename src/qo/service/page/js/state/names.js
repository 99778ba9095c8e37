// Whose jobs they are: timelines and slots name jobs only by their ids.
import { signal } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { shortId } from "../format.js";
import { onFrame } from "../live.js";
import { whenSeen } from "./seen.js";

const MOST_KEPT = 5000;
const READ_EVERY_MS = 20_000;
const READ_AT_ONCE = 300;

const known = new Map();
/** Changes when a name is known that was asked for before. */
const namesVersion = signal(0);
const missing = new Set();
let readAt = 0;

export function remember(jobs) {
  let isNews = false;
  for (const job of jobs) {
    if (job.task === undefined) continue; // a row with only what changed
    known.delete(job.id); // the newest are last, and the oldest are forgotten
    known.set(job.id, job.user ?? job.task);
    isNews = missing.delete(job.id) || isNews;
  }
  for (const id of known.keys()) {
    if (known.size <= MOST_KEPT) break;
    known.delete(id);
  }
  if (isNews) whenSeen(namesVersion, () => (namesVersion.value += 1));
}

/** The user of a job, else its task, else its id. What shows it is drawn again when the name comes later. */
export function holderName(id) {
  void namesVersion.value;
  if (known.has(id)) return known.get(id);
  if (missing.size >= MOST_KEPT) missing.clear();
  missing.add(id);
  return shortId(id);
}

/** Learn the names of jobs that have ended before this page was opened, as far as they are recent. */
export async function learnNames(ids) {
  const unknown = ids.filter((id) => !known.has(id));
  if (!unknown.length || Date.now() - readAt < READ_EVERY_MS) return;
  readAt = Date.now();
  try {
    const { items } = await get(path("history"), { limit: READ_AT_ONCE });
    remember(items.filter((job) => !known.has(job.id)));
    for (const id of unknown) if (!known.has(id)) known.set(id, shortId(id)); // too old: it is not asked for again
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem; // the bars show ids
  }
}

onFrame(({ changed }) => remember(changed));
