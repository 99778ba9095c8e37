// Numbers, spans and times as people read them.

const thousands = new Intl.NumberFormat("en");

/** "3,214" */
export function number(value) {
  return thousands.format(value);
}

/** "1 job", "3,214 jobs" */
export function counted(value, noun, nouns = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : nouns}`;
}

/** How long something took or takes: "0.3 s", "42 s", "3m 12s", "2h 05m", "4 days". */
export function span(seconds) {
  const value = Math.max(seconds, 0);
  if (value < 10) return `${Math.floor(value * 10) / 10} s`;
  if (value < 60) return `${Math.floor(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)}m ${two(Math.floor(value % 60))}s`;
  if (value < 172_800) return `${Math.floor(value / 3600)}h ${two(Math.floor((value % 3600) / 60))}m`;
  return `${Math.floor(value / 86_400)} days`;
}

function two(value) {
  return String(value).padStart(2, "0");
}

const UNITS = [
  ["s", "second", 1, 60],
  ["min", "minute", 60, 3600],
  ["h", "hour", 3600, 172_800],
  ["days", "day", 86_400, Infinity],
];

/** Up to two minutes in seconds, and up to two hours in minutes: "0–2 h" says less than "55–103 min". */
function unitOf(upper) {
  return upper < 120 ? UNITS[0] : upper < 7200 ? UNITS[1] : UNITS.find(([, , , below]) => upper < below);
}

/** A range with one unit, that of its upper end: "0–40 s", "14–26 min", "2–3 h". */
export function range(lower, upper) {
  const [unit, , size] = unitOf(upper);
  const ends = [Math.floor(lower / size), Math.ceil(upper / size)];
  return ends[0] === ends[1] ? `${ends[0]} ${unit}` : `${ends[0]}–${ends[1]} ${unit}`;
}

/** The same in words, to be read out: "4 to 9 minutes". */
export function rangeInWords(lower, upper) {
  const [, noun, size] = unitOf(upper);
  const [low, high] = [Math.floor(lower / size), Math.ceil(upper / size)];
  return low === high ? counted(high, noun) : `${low} to ${counted(high, noun)}`;
}

/** A point in the range, in the unit of the range: 5 of "3–8 min". */
export function inUnitOf(seconds, upper) {
  const [, , size] = unitOf(upper);
  return String(Math.round(seconds / size));
}

/** "just now", "40 s ago", "3 min ago", "2 h ago", "5 days ago"; "in 3 min" for what comes. */
export function ago(milliseconds, now) {
  const seconds = Math.floor(Math.abs(now - milliseconds) / 1000);
  if (seconds < 2) return "just now";
  const [unit, , size] = UNITS.find(([, , , below]) => seconds < below);
  const text = `${Math.floor(seconds / size)} ${unit}`;
  return milliseconds > now ? `in ${text}` : `${text} ago`;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortClock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "numeric", month: "short", year: "numeric",
  hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

/** "12:04:19" in the reader's zone */
export function timeOfDay(milliseconds) {
  return clock.format(milliseconds);
}

/** "14:32" in the reader's zone */
export function hourAndMinute(milliseconds) {
  return shortClock.format(milliseconds);
}

/** The title of every relative time: "Wed, 18 Nov 2026, 12:04:19 CET". */
export function absolute(milliseconds) {
  return full.format(milliseconds);
}

/** Milliseconds of an RFC 3339 text; null of null. */
export function moment(text) {
  return text ? Date.parse(text) : null;
}

/** "01M7Q5FD…69X": the ends of a long id, which tell ids apart. Show the whole id in the title. */
export function shortId(id) {
  return id.length > 12 ? `${id.slice(0, 4)}…${id.slice(-4)}` : id;
}

const LEVELS = [
  [10, "urgent", "▲▲"],
  [20, "high", "▲"],
  [50, "normal", "•"],
  [70, "low", "▽"],
  [90, "background", "▽▽"],
];

/** The name, the shape and the level of a priority. One without a name is its number with the shape of the next level
 * below: 30 has the dot of normal. */
export function priority(value) {
  const [at, level, shape] = LEVELS.find(([number]) => value <= number) ?? LEVELS.at(-1);
  return { name: at === value ? level : String(value), shape, level };
}

export const PRIORITIES = LEVELS.map(([value, name, shape]) => ({ value, name, shape }));

/** The words for a job: "build · shop" of a task and the project behind the prefix that all share. */
export function title(job) {
  return job.project ? `${job.task} · ${job.project}` : job.task;
}
