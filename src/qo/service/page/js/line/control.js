// What can be done with the list of rows: hold it still, go through it, move rows by mouse, keyboard and menu.
import { signal } from "../../vendor/preact.js";
import { toast } from "../components/toast.js";
import { createAnchor } from "./anchor.js";
import { addDragging } from "./dragging.js";
import { addKeyboard } from "./keyboard.js";
import { moveBeside, moveTo } from "./moves.js";

const narrow = matchMedia("(max-width: 700px)");
const ROW_PX = 46;
const IDLE_MS = 8000;
const SLOP_PX = 8; // a pointer that moves less is still pressing
const NARROW_ROW_PX = 66; // there is no room beside each other
const NICE = [10, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10_800, 14_400, 21_600, 43_200, 86_400];

export function createControl(line, scroller) {
  const list = {
    line,
    anchor: createAnchor(),
    shown: { rows: [], total: 0, placeOf: () => 0 },
    drawAgain: signal(0),
    holders: new Set(),
    above: { started: 0, joined: 0, left: 0 },
    carried: null, // {id, from, to}: picked up with the keyboard
    dragged: null,
    gap: null, // where a dragged row would land
    axis: 0,
    current: null,
  };
  const draw = () => (list.drawAgain.value += 1);
  list.draw = draw;
  list.rowHeight = () => (narrow.matches ? NARROW_ROW_PX : ROW_PX);

  list.total = () => list.shown.total;
  list.indexOf = (id) => list.shown.rows.findIndex((row) => row.id === id);
  /** The row at an index, with the carried row where it is held. */
  list.rowAt = (index) => {
    const { rows } = list.shown;
    if (!list.carried) return rows[index];
    const { id, from, to } = list.carried;
    if (index === to) return line.byId.get(id);
    const among = index < to ? index : index - 1;
    return rows[among < from ? among : among + 1];
  };
  /** One scale for all rows that are drawn. It grows at once and shrinks late, so that bars do not jump. */
  list.axisOf = (rows) => {
    const furthest = Math.max(0, ...rows.map((row) => row?.estimate?.upper_bound ?? 0));
    if (furthest === 0) return list.axis;
    const wanted = NICE.find((each) => each >= furthest) ?? furthest;
    if (wanted > list.axis || furthest < list.axis / 3) list.axis = wanted;
    return list.axis;
  };

  // Standing still.
  list.hold = (name) => {
    list.holders.add(name);
    line.hold();
  };
  list.release = (name) => {
    if (!list.holders.delete(name) || list.holders.size) return;
    line.release();
  };
  let pointedAt = null;
  let pressedAt = null;
  let presses = 0;
  let idle = 0;
  /** The row that must not move: the one that is pressed, else the one with the focus, else that under the pointer. */
  list.preferred = () => pressedAt ?? document.activeElement?.closest?.(".scroller [data-id]")?.dataset.id ?? pointedAt;
  list.pointed = (event) => {
    pointedAt = event.target.closest("[data-id]")?.dataset.id ?? null;
    list.anchor.engage("pointer");
    stayAwake();
  };
  list.left = () => {
    pointedAt = null;
    list.anchor.disengage("pointer");
    draw();
  };
  /** A pointer or a focus that was left lying in the list does not hold it for ever. */
  function stayAwake() {
    clearTimeout(idle);
    idle = setTimeout(() => {
      if (list.holders.size) return stayAwake();
      list.anchor.disengage("focus");
      return list.left();
    }, IDLE_MS);
  }
  list.pressed = (event) => {
    // A press acts on the row that was there when it began: until it ends, nothing comes or goes. What came just before
    // may still be drawn, and must not move this row.
    pressedAt = event.target.closest("[data-id]")?.dataset.id ?? null;
    list.anchor.engage("pointer");
    const button = event.target.closest("button, a");
    const name = `press ${(presses += 1)}`;
    list.hold(name);
    stayAwake();
    const end = (up) => {
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      // Where the row was drawn elsewhere after all, the browser clicks what is common to both places.
      const isHere = Math.hypot(up.clientX - event.clientX, up.clientY - event.clientY) < SLOP_PX;
      if (up.type === "pointerup" && isHere && button?.isConnected && !button.contains(up.target)) button.click();
      setTimeout(() => {
        if (name === `press ${presses}`) pressedAt = null; // else the next press has begun already
        list.release(name);
      }, 50); // the click comes after pointerup
    };
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  };
  list.scrolled = () => {
    list.anchor.scrolled(scroller.current);
    if (scroller.current.scrollTop < 4) clearAbove();
    draw();
  };
  list.toFront = () => {
    clearAbove();
    list.anchor.release();
    scroller.current.scrollTop = 0;
    draw();
  };
  function clearAbove() {
    list.above = { started: 0, joined: 0, left: 0 };
  }
  let quiet = 0;
  function happened({ kind, index }) {
    const first = Math.floor((scroller.current?.scrollTop ?? 0) / list.rowHeight());
    if (list.above[kind] === undefined || index >= first || !list.anchor.isHolding) return;
    list.above[kind] += 1;
    clearTimeout(quiet);
    quiet = setTimeout(() => (clearAbove(), draw()), 10_000);
  }

  // The focus.
  list.currentId = () => {
    const { rows } = list.shown;
    if (list.current && line.byId.has(list.current.id)) return list.current.id;
    return rows[Math.min(list.current?.index ?? 0, rows.length - 1)]?.id ?? null;
  };
  list.focused = (event) => {
    list.anchor.engage("focus");
    stayAwake();
    const id = event.target.closest("[data-id]")?.dataset.id;
    if (id) list.current = { id, index: list.indexOf(id) };
    draw();
  };
  list.blurred = (event) => {
    const { current } = scroller; // null when the page itself goes and takes the focus away
    if (isDrawing || !document.hasFocus() || !current || current.contains(event.relatedTarget)) return;
    list.anchor.disengage("focus");
    if (list.carried && !list.carried.isDropped) list.putBack();
    draw();
  };
  // A row that is drawn elsewhere loses the focus for a moment, and one that leaves takes it away: it is given back, to
  // the same row or to that in its place.
  let isDrawing = false;
  let focusBefore = null;
  list.beginDrawing = () => {
    isDrawing = true;
    focusBefore = scroller.current?.contains(document.activeElement) ? document.activeElement : null;
  };
  list.endDrawing = () => {
    isDrawing = false;
    if (focusBefore === null || document.activeElement !== document.body) return;
    const row = scroller.current.querySelector(`[data-id="${CSS.escape(list.currentId() ?? "")}"]`);
    (focusBefore.isConnected ? focusBefore : row)?.focus({ preventScroll: true });
  };
  list.focusAt = (index) => {
    const { rows } = list.shown;
    const at = Math.min(Math.max(index, 0), rows.length - 1);
    if (at < 0) return;
    list.current = { id: rows[at].id, index: at };
    list.bringIntoView(at);
    draw();
    requestAnimationFrame(() => scroller.current?.querySelector(`[data-id="${CSS.escape(list.current.id)}"]`)?.focus({ preventScroll: true }));
  };
  list.bringIntoView = (index) => {
    const { clientHeight, scrollTop } = scroller.current;
    const top = list.anchor.lead + index * list.rowHeight();
    if (top < scrollTop) scroller.current.scrollTop = top;
    else if (top + list.rowHeight() > scrollTop + clientHeight) scroller.current.scrollTop = top + list.rowHeight() - clientHeight;
    list.anchor.scrolled(scroller.current);
  };

  addKeyboard(list, scroller);
  const dragging = addDragging(list, scroller);

  list.attach = () => {
    const ends = [line.onChange(happened), dragging.attach()];
    narrow.addEventListener("change", draw);
    return () => {
      for (const end of ends) end();
      narrow.removeEventListener("change", draw);
      line.release();
    };
  };

  // The menu.
  list.moveTo = async (row, index) => {
    await line.readTo(index === Infinity ? Infinity : index + 2);
    await moveTo(line, row, [...line.rows], index);
  };
  list.moveBefore = (row, id) => {
    const found = line.rows.filter((each) => each.id === id || (id.length >= 4 && (each.id.startsWith(id) || each.id.endsWith(id))));
    if (found.length > 1) toast(`${found.length} jobs have ids like ${id}; give more of it.`, { kind: "bad" });
    else moveBeside(line, row, found[0] ?? { task: "job", id }, "before");
  };
  return list;
}
