// Figures of the last minutes from the server, in so many steps that a chart can show them.
import { useEffect, useState } from "../../vendor/preact.js";
import { get, path } from "../api.js";
import { attempt } from "../components/toast.js";
import { moment } from "../format.js";

const MINUTE_MS = 60_000;
const ASK_EVERY_MS = 15_000; // of an hour; a longer range changes more slowly, and its answer is larger
const MOST_STEPS = 100;
const FEWEST_STEPS = 15;
const STEPS_MINUTES = [1, 5, 15, 60, 120];

/** The answer of api/analytics, asked for again now and then; null until it is there. */
export function useAnalytics(query) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let isOver = false;
    const ask = async () => {
      if (document.hidden) return;
      const answer = await attempt(() => get(path("analytics"), query));
      if (answer && !isOver) setFound(answer);
    };
    setFound(null);
    ask();
    const timer = setInterval(ask, ASK_EVERY_MS * Math.max(query.minutes / 360, 1));
    return () => {
      isOver = true;
      clearInterval(timer);
    };
  }, [JSON.stringify(query)]);
  return found;
}

/**
 * Minutes put together: {at, end, minutes, sum(values), last(values)}. The present minute is not over; where others have
 * something to show it is left out of sums, because each chart would end with a fall.
 */
export function steps({ series, minutes }) {
  const size = STEPS_MINUTES.find((each) => minutes / each <= MOST_STEPS) ?? STEPS_MINUTES.at(-1);
  const since = moment(series.since);
  const first = [...Array(minutes).keys()].find((index) => series.submitted[index] || series.started[index] || series.succeeded[index] || series.failed[index]);
  const length = first === undefined ? minutes + 1 : minutes;
  // Nothing is drawn from before the queue was used at all.
  const begin = Math.min(first ?? length, Math.max(length - FEWEST_STEPS * size, 0));
  const starts = [];
  // Whole steps, counted from the end, so that the newest one is complete.
  for (let from = begin + ((length - begin) % size); from < length; from += size) starts.push(from);
  const parts = (values) => starts.map((from) => values.slice(from, from + size));
  return {
    at: starts.map((from) => since + from * MINUTE_MS),
    end: since + length * MINUTE_MS,
    minutes: size,
    sum: (values) => parts(values).map((part) => part.reduce((total, each) => total + each, 0)),
    last: (values) => parts(values).map((part) => part.at(-1)),
  };
}
