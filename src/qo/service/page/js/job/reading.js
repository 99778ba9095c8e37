// Everything about one job, read again when it changes.
import { useEffect, useState } from "../../vendor/preact.js";
import { Problem, get, path } from "../api.js";
import { parseExact } from "../exact.js";
import { onFrame, onReset } from "../live.js";
import { whenSeen } from "../state/seen.js";
import { isUser } from "../state/session.js";

export const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const AGAIN_MS = 300;
const WAITING_AGAIN_MS = 3000; // its place and its range change with the jobs ahead of it

/** The job as usual, its payload and its result with exact numbers. */
function withExactData(text) {
  const { data, result } = parseExact(text);
  return { ...JSON.parse(text), data, result };
}

async function readJob(id) {
  const job = await get(path("jobs", id), {}, withExactData);
  const [why, line, audit] = await Promise.all([
    ENDED.has(job.state) ? null : get(path("jobs", id, "why")),
    job.state === "queued" ? get(path("queue"), { around: id }).catch(leftTheLine) : null,
    isUser.value ? null : get(path("audit"), { target: id, limit: 50 }),
  ]);
  return { job, why, neighbours: line?.items ?? null, audit: audit?.items ?? null, problem: null };
}

/** It started between the two readings. The next one comes soon. */
function leftTheLine(problem) {
  if (problem instanceof Problem && [404, 409].includes(problem.status)) return null;
  throw problem;
}

/** {job, why, neighbours, audit, problem, read}: all null until they were read. `read()` reads them now. */
export function useJob(id) {
  const [known, setKnown] = useState({ job: null, why: null, neighbours: null, audit: null, problem: null });
  const [read, setRead] = useState(() => () => {});
  useEffect(() => {
    let hasStopped = false;
    let isReading = false;
    let isWanted = false;
    let soon = 0;
    let hasEnded = false;
    async function readNow() {
      if (isReading) return void (isWanted = true);
      isReading = true;
      try {
        const found = await readJob(id);
        hasEnded = ENDED.has(found.job.state);
        if (!hasStopped) setKnown(found);
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (!hasStopped) setKnown((before) => ({ ...before, problem }));
      } finally {
        isReading = false;
        if (isWanted && !hasStopped) {
          isWanted = false;
          later();
        }
      }
    }
    function later() {
      clearTimeout(soon);
      soon = setTimeout(() => whenSeen("job", () => !hasStopped && readNow()), AGAIN_MS);
    }
    const ends = [
      onFrame(({ changed, gone }) => (changed.some((job) => job.id === id) || gone.some(([each]) => each === id)) && later()),
      onReset(later),
    ];
    const clock = setInterval(() => !hasEnded && !document.hidden && readNow(), WAITING_AGAIN_MS);
    setRead(() => readNow);
    readNow();
    return () => {
      hasStopped = true;
      clearInterval(clock);
      clearTimeout(soon);
      ends.forEach((end) => end());
    };
  }, [id]);
  return { ...known, read };
}
