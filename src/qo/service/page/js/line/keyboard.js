// Moving a row with the keyboard: space picks it up, arrows, Page, Home and End move it, space drops it, Escape puts it
// back. Without a row in hand the same keys go through the rows.
import { say } from "../components/said.js";
import { go } from "../route.js";
import { canChange } from "../state/session.js";
import { moveTo, nameOf } from "./moves.js";

export function addKeyboard(list, scroller) {
  const { line } = list;
  list.onKeyDown = (event) => {
    if (!event.target.matches("[data-id]") || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(scroller.current.clientHeight / list.rowHeight()) - 1);
    const here = list.carried ? list.carried.to : list.indexOf(event.target.dataset.id);
    const target = {
      ArrowDown: here + 1, j: here + 1, ArrowUp: here - 1, k: here - 1,
      PageDown: here + page, PageUp: here - page, Home: 0, End: list.shown.rows.length - 1,
    }[event.key];
    if (target !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      if (list.carried) carryTo(target);
      else list.focusAt(target);
    } else if (event.key === " ") {
      event.preventDefault();
      if (list.carried) drop();
      else pickUp(event.target.dataset.id);
    } else if (event.key === "Escape" && list.carried && !list.carried.isDropped) {
      event.preventDefault();
      list.putBack();
    } else if (event.key === "Enter") {
      go("jobs", event.target.dataset.id);
    }
  };
  function pickUp(id) {
    if (!canChange.value) return;
    list.hold("carry");
    const from = list.indexOf(id);
    list.carried = { id, from, to: from };
    say(`${nameOf(line.byId.get(id))} picked up at place ${from + 1} of ${list.total()}. Arrows move it, space drops it, escape puts it back.`);
    list.draw();
  }
  function carryTo(target) {
    if (list.carried.isDropped) return;
    const to = Math.min(Math.max(target, 0), list.shown.rows.length - 1);
    list.carried = { ...list.carried, to };
    list.bringIntoView(to);
    say(`Place ${to + 1} of ${list.total()}`);
    list.draw();
  }
  list.putBack = () => {
    const { id, from } = list.carried;
    list.carried = null;
    list.release("carry");
    list.bringIntoView(from);
    say(`${nameOf(line.byId.get(id) ?? { task: "The job", id })} is back at place ${from + 1}.`);
    list.draw();
  };
  async function drop() {
    const { id, to, isDropped } = list.carried;
    if (isDropped) return;
    list.carried.isDropped = true;
    const order = [...list.shown.rows];
    const row = line.byId.get(id);
    // The row stays where it was dropped until the answer is there; only then the list moves on.
    await moveTo(line, row, order, to);
    list.carried = null;
    list.release("carry");
    list.draw();
  }
}
