// Requests to the service. Addresses are relative to the page, so that all of it works below a path prefix.

/** An answer that is not a success: an RFC 9457 problem, or no answer at all (status 0). */
export class Problem extends Error {
  constructor(status, fields = {}) {
    super(fields.detail ?? fields.title ?? "The server did not answer.");
    this.status = status;
    this.title = fields.title ?? "No answer";
    this.field = fields.field ?? null;
    this.allowed = fields.allowed ?? null;
    this.retryAfter = fields.retry_after ?? null;
    this.debugId = fields.debug_id ?? null;
    /** Nothing was asked for by a person, and the header says that the connection is lost. */
    this.isOfReading = false;
  }
}

const hooks = { signedOut: () => {}, refusal: () => null, unanswered: () => {} };

/** `signedOut()` is called at each 401, `unanswered()` where nothing came to what was asked; `refusal()` gives the sentence for which changes are refused now, or null. */
export function setHooks(given) {
  Object.assign(hooks, given);
}

/** "api/jobs/x%2Fy/why" of ("jobs", "x/y", "why"): names may contain any character. A browser takes `.` and `..` out of
 * every address, however they are written; with a tab behind them, which the service drops, they get through. */
export function path(...parts) {
  return ["api", ...parts.map((part) => encodeURIComponent(/^\.\.?$/.test(part) ? `${part}\t` : part))].join("/");
}

const underWay = new Map();

/** The JSON at an address. While it is being fetched, further calls get the same promise, not a second request.
 * `parse` reads the text where JSON.parse would lose something. */
export function get(address, query = {}, parse = JSON.parse) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const full = given.length ? `${address}?${new URLSearchParams(given)}` : address;
  const name = `${parse.name} ${full}`;
  if (!underWay.has(name)) {
    const asked = request("GET", full, undefined, parse).finally(() => underWay.delete(name));
    underWay.set(name, asked);
  }
  return underWay.get(name);
}

const MOST_ANSWERS = 25;

/** So many items as `limit` says, and the `next` behind them. The service looks at 2,000 jobs for one answer: it may be
 * short, or empty, and go on all the same. */
export async function getList(address, query) {
  const items = [];
  let next = query.after ?? null;
  for (let answers = 0; answers < MOST_ANSWERS; answers += 1) {
    const page = await get(address, { ...query, after: next, limit: query.limit - items.length });
    items.push(...page.items);
    next = page.next;
    if (next === null || items.length >= query.limit) break;
  }
  return { items, next };
}

/** Change something. Throws a Problem, also when the connection is lost: then nothing is sent. */
export async function send(method, address, body) {
  const refusal = hooks.refusal();
  if (refusal) throw new Problem(0, { title: "Connection lost", detail: refusal });
  return request(method, address, body);
}

async function request(method, address, body, parse = JSON.parse) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Qo-Csrf"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = method === "GET" ? await alreadyAsked(address) : null;
    answer ??= await fetch(address, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    const problem = new Problem(0, { detail: `The server cannot be reached.${method === "GET" ? "" : " Nothing was changed."}` });
    problem.isOfReading = method === "GET";
    if (problem.isOfReading) hooks.unanswered();
    throw problem;
  }
  const text = await answer.text();
  const value = parsed(text, answer.ok ? parse : JSON.parse);
  if (answer.ok) return value;
  if (answer.status === 401) hooks.signedOut();
  throw new Problem(answer.status, value ?? { title: answer.statusText, detail: `The server answered ${answer.status}.` });
}

/** The answer to a request that first.js has begun, for the first who wants it soon. A refusal is asked for again: it
 * may have been right only before somebody signed in. */
async function alreadyAsked(address) {
  const answer = await window.asked.get(address);
  window.asked.delete(address);
  return answer?.ok ? answer : null;
}
setTimeout(() => window.asked.clear(), 5000);

function parsed(text, parse) {
  try {
    return text ? parse(text) : null;
  } catch {
    return null; // a proxy's page in place of an answer; the status says enough
  }
}
