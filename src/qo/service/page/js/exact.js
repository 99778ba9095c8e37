// JSON whose numbers stay as they were written. JavaScript would round 2**60 and turn 1.50 into 1.5.

/** The value of a JSON text. A number that JavaScript would change becomes a raw value: `written` gives its digits, and
 * JSON.stringify writes it back unchanged. */
export function parseExact(text) {
  return JSON.parse(text, (name, value, context) =>
    typeof value === "number" && context !== undefined && String(value) !== context.source ? JSON.rawJSON(context.source) : value);
}

export function isNumber(value) {
  return typeof value === "number" || (JSON.isRawJSON?.(value) ?? false);
}

/** The digits of a number, as they were sent. */
export function written(number) {
  return typeof number === "number" ? String(number) : number.rawJSON;
}
