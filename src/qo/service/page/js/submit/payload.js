// The payload as it is typed: JSON, checked at each key, its numbers kept as they are written.
import { parseExact } from "../exact.js";

const MOST_BYTES = 1024 * 1024;
const DEEPEST = 64;

/** {value, words} of what was typed, or {wrong}: a sentence with the line and column of the mistake. */
export function checkPayload(text) {
  if (!text.trim()) return { value: undefined, words: "No payload: the task gets null." };
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > MOST_BYTES) return { wrong: `The payload has ${bytes} bytes; ${MOST_BYTES} are allowed. Store it elsewhere and submit where it is.` };
  let value;
  try {
    value = parseExact(text);
  } catch (error) {
    return { wrong: mistake(error, text) };
  }
  if (depth(text) > DEEPEST) return { wrong: `The payload is nested more than ${DEEPEST} levels deep; give it fewer.` };
  return { value, words: `${Array.isArray(value) ? "A list" : value !== null && typeof value === "object" ? "An object" : "A value"} of ${bytes} bytes, as JSON.` };
}

function mistake(error, text) {
  const found = /position (\d+)/.exec(error.message);
  const sentence = error.message.replace(/ in JSON at position.*| \(line.*|, "[^]*$/, "").replace(/\.$/, "");
  if (!found) return `${sentence}: the text ends too early, or is not JSON.`;
  const before = text.slice(0, Number(found[1])).split("\n");
  return `${sentence}, at line ${before.length}, column ${before.at(-1).length + 1}.`;
}

function depth(text) {
  let now = 0;
  let most = 0;
  for (const [sign] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/g)) {
    if (sign === "[" || sign === "{") most = Math.max(most, ++now);
    else if (sign === "]" || sign === "}") now -= 1;
  }
  return most;
}
