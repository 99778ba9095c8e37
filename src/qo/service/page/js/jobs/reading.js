// One page of the jobs that match, and how many match. Rows hold still: those that change are changed in place, and
// those that are new are counted until somebody asks for them.
import { batch, signal, useEffect, useMemo } from "../../vendor/preact.js";
import { Problem, get, getList, path } from "../api.js";
import { onFrame, onReset, whole } from "../live.js";
import { whenSeen } from "../state/seen.js";
import { asQuery, fits } from "./filter.js";

export const PAGE_ROWS = 50;
const PLACES_AGAIN_MS = 5000; // frames do not carry the places in line, which change with the jobs ahead

function createReading(filter, after) {
  const rows = signal(null);
  const next = signal(null);
  const counts = signal(null);
  const newer = signal(0);
  const problem = signal(null);
  const seen = new Set();
  let hasStopped = false;

  const readPage = () => getList(path("jobs"), { ...asQuery(filter), after, limit: PAGE_ROWS });

  async function read() {
    try {
      const page = await readPage();
      if (hasStopped) return;
      batch(() => {
        rows.value = page.items;
        next.value = page.next;
        newer.value = 0;
        problem.value = null;
      });
      seen.clear();
      const { state, ...others } = filter;
      // The counts stand beside the names of all states. Only a stage is no state, and has to be asked for.
      const found = await get(path("counts"), asQuery(state && !page.items.every((job) => job.state === state) ? filter : others));
      if (!hasStopped) counts.value = found;
    } catch (refused) {
      if (!(refused instanceof Problem)) throw refused;
      if (!hasStopped) problem.value = refused;
    }
  }

  async function readPlaces() {
    if (document.hidden || !rows.value?.some((row) => row.state === "queued")) return;
    try {
      const page = await readPage();
      if (!hasStopped) take({ changed: page.items });
    } catch (refused) {
      if (!(refused instanceof Problem)) throw refused; // the header says that the connection is lost
    }
  }

  function take({ changed }) {
    if (rows.value === null) return;
    const byId = new Map(changed.map((job) => [job.id, job]));
    for (const job of changed) {
      if (!after && job.task !== undefined && !seen.has(job.id) && !rows.value.some((row) => row.id === job.id) && fits(job, filter)) seen.add(job.id);
    }
    whenSeen("jobs", () => batch(() => {
      if (rows.value.some((row) => byId.has(row.id))) rows.value = rows.value.map((row) => (byId.has(row.id) ? { submitted_at: row.submitted_at, ...whole(row, byId.get(row.id)) } : row));
      newer.value = seen.size;
    }));
  }

  return { rows, next, counts, newer, problem, read, readPlaces, take, stop: () => (hasStopped = true) };
}

/** Signals of what matches; they start again with each other filter or page. */
export function useMatching(filter, after) {
  const name = JSON.stringify([filter, after]);
  const reading = useMemo(() => createReading(filter, after), [name]);
  useEffect(() => {
    reading.read();
    const ends = [onFrame(reading.take), onReset(() => (reading.rows.value ? (reading.newer.value ||= 1) : reading.read())), reading.stop];
    const clock = setInterval(reading.readPlaces, PLACES_AGAIN_MS);
    return () => {
      clearInterval(clock);
      ends.forEach((end) => end());
    };
  }, [reading]);
  return reading;
}
