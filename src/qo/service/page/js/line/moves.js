// Changes of the line. A move names the neighbour, never an index: the line may have changed since it was drawn.
import { Problem, get, path, send } from "../api.js";
import { toast, toastDone, toastProblem, attempt } from "../components/toast.js";
import { number, priority, rangeInWords, shortId } from "../format.js";

export function nameOf(row) {
  return `${row.task} ${shortId(row.id)}`;
}

/** The neighbour of a row that is put at index `to` of the others, as the move names it. */
export function neighbourAt(others, from, to) {
  const isUp = to < from;
  const row = isUp ? others[to] : others[to - 1];
  return { row, where: isUp ? "before" : "after" };
}

/**
 * Move a row to index `to` among `order`, which are the rows as they were shown (with the row itself at `from`).
 * When the neighbour has left the line meanwhile, nothing moves and the nearest place is offered.
 */
export async function moveTo(line, row, order, to) {
  const from = order.findIndex((each) => each.id === row.id);
  const others = order.filter((each) => each.id !== row.id);
  const index = Math.min(Math.max(to, 0), others.length);
  if (index === from || others.length === 0) return false;
  const { row: neighbour, where } = neighbourAt(others, from, index);
  return moveBeside(line, row, neighbour, where, () => offerNearest(line, row, neighbour, others, index));
}

/** Move a row before or after another one. `onGone` is called when that one is no longer in line. */
export async function moveBeside(line, row, neighbour, where, onGone) {
  const before = line.place(row.id);
  let moved;
  try {
    moved = await send("POST", path("queue", row.id, "move"), { [where]: neighbour.id });
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if ([404, 409].includes(problem.status) && onGone && (await hasLeft(neighbour.id))) onGone();
    else toastProblem(problem);
    return false;
  }
  line.takeAnswer(moved);
  await Promise.all([line.reloadIfUnfed(), sayMoved(line, row, moved, before)]);
  return true;
}

async function hasLeft(id) {
  try {
    return (await get(path("jobs", id))).state !== "queued";
  } catch (problem) {
    if (problem instanceof Problem && problem.status === 404) return true;
    throw problem;
  }
}

async function sayMoved(line, row, moved, before) {
  const now = await get(path("jobs", row.id));
  const estimate = now.estimate?.upper_bound != null
    ? `, now ${rangeInWords(now.estimate.lower_bound, now.estimate.upper_bound)}` : "";
  const sentence = `${nameOf(row)} moved from place ${before} to ${now.position ?? moved.position} of ${number(line.total)}${estimate}`;
  toastDone(sentence, moved.audit_id, () => line.reload());
}

/** The neighbour has started: the row stays where it is, and one press puts it as near as possible. */
function offerNearest(line, row, gone, others, index) {
  const text = `${nameOf(gone)} has left the line meanwhile, so ${nameOf(row)} stays at place ${line.place(row.id)}.`;
  const stillThere = (each) => each.id !== gone.id && line.byId.has(each.id);
  const next = others.slice(index).find(stillThere);
  const previous = others.slice(0, index).reverse().find(stillThere);
  const nearest = next ?? previous;
  const actions = nearest
    ? [{ label: `Move it ${next ? "before" : "behind"} ${nameOf(nearest)}`,
         act: () => moveBeside(line, row, nearest, next ? "before" : "after",
           () => offerNearest(line, row, nearest, others.filter((each) => each.id !== gone.id), index)) }]
    : [];
  toast(text, { actions, seconds: 12 });
}

export async function setPriority(line, row, value) {
  const changed = await attempt(() => send("PATCH", path("queue", row.id, "priority"), { priority: value }));
  if (!changed) return;
  line.takeAnswer(changed);
  const place = changed.position ? `, now at place ${changed.position}` : "";
  toastDone(`${nameOf(row)} has the priority ${priority(value).name}${place}`, changed.audit_id, () => line.reload());
  await line.reloadIfUnfed();
}

export async function cancel(line, row) {
  const changed = await attempt(() => send("POST", path("jobs", row.id, "cancel")));
  if (!changed) return;
  line.take({ changed: [{ ...changed, state: changed.state === "queued" ? "cancelled" : changed.state }], gone: [] });
  toast(`${nameOf(row)} is cancelled.`);
}
