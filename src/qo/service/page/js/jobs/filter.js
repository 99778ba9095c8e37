// What is looked for: fields of the address, words in the box, a query of the service.
import { PRIORITIES, priority } from "../format.js";

export const FIELDS = ["state", "task", "user", "project", "tier", "priority", "parent", "id"];
export const STATES = ["queued", "scheduled", "waiting", "starting", "running", "confirming", "succeeded", "failed", "cancelled"];

/** {state: "failed", user: "ada"} of the query of an address. */
export function filterOf(query) {
  return Object.fromEntries(FIELDS.filter((field) => query[field]).map((field) => [field, query[field]]));
}

/** The same for the service, which calls a state or a stage `status`. */
export function asQuery({ state, ...others }) {
  return state ? { status: state, ...others } : others;
}

/** The fields in `task:build user:"a b"`. A word without a field is the beginning of an id. */
export function parse(text) {
  const found = {};
  for (const [, field, quoted, plain] of text.matchAll(/(?:([a-z]+):)?(?:"([^"]*)"|(\S+))/g)) {
    const value = quoted ?? plain;
    const name = field === "status" ? "state" : field;
    if (FIELDS.includes(name)) found[name] = value;
    else found.id = field ? `${field}:${value}` : value;
  }
  return found;
}

/** "task:build", with quotes where the value needs them */
export function shownAs(field, value) {
  return `${field}:${/\s/.test(value) ? `"${value}"` : value}`;
}

const NOUNS = { user: "of", task: "of task", project: "of project", tier: "of tier", parent: "of parent", priority: "with priority", id: "whose id begins with" };

/** "failed jobs of ada, of task build": says what a count counts. */
export function inWords(filter, count) {
  const what = `${filter.state ? `${filter.state} ` : ""}${count === 1 ? "job" : "jobs"}`;
  const rest = FIELDS.filter((field) => NOUNS[field] && filter[field]).map((field) => `${NOUNS[field]} ${field === "priority" ? priorityName(filter[field]) : filter[field]}`);
  return rest.length ? `${what} ${rest.join(", ")}` : what;
}

function priorityName(value) {
  return /^\d+$/.test(value) ? priority(Number(value)).name : value;
}

/** Whether a job that has just changed fits. */
export function fits(job, filter) {
  return Object.entries(filter).every(([field, value]) => {
    if (field === "state") return job.state === value || job.status === value;
    if (field === "id") return job.id.startsWith(value);
    if (field === "priority") return String(job.priority) === value || priority(job.priority).name === value;
    return job[field] === value;
  });
}

/**
 * What to offer for the word that is being typed: [{text, field, value} | {text, field} | {text, open}].
 * `known`: {task: Set, user: Set, …}, the values that the page has seen.
 */
export function suggestions(word, known, most = 8) {
  const [, field, start] = /^(?:([a-z]+):)?"?(.*?)"?$/s.exec(word);
  if (field && FIELDS.includes(field)) {
    const choices = field === "state" ? STATES : field === "priority" ? PRIORITIES.map(({ name }) => name) : [...(known[field] ?? [])].sort();
    const found = choices.filter((each) => each.toLowerCase().includes(start.toLowerCase())).slice(0, most);
    const own = start && !found.includes(start) ? [start] : [];
    return [...found, ...own].map((value) => ({ field, value, text: shownAs(field, value) }));
  }
  const fields = FIELDS.filter((each) => each.startsWith(word.toLowerCase())).map((each) => ({ field: each, text: `${each}:` }));
  if (!word) return fields;
  const values = ["state", "task", "user", "project", "tier"].flatMap((each) => suggestions(`${each}:${word}`, known, 3)
    .filter(({ value }) => value !== word || STATES.includes(value) || known[each]?.has(value)));
  const id = word.length >= 20 ? [{ open: word, text: `open job ${word}` }] : [];
  return [...id, ...fields, ...values, { field: "id", value: word, text: shownAs("id", word) }].slice(0, most);
}
