// Moving a row with the mouse. The whole list is one place to drop: rows come and go while it scrolls.
import { dropTargetForElements } from "../../vendor/drag.js";
import { moveTo } from "./moves.js";

const EDGE_PX = 48; // so near to an edge a dragged row scrolls the list
const STEP_PX = 12;

export function addDragging(list, scroller) {
  const { line } = list;
  let scrolling = 0;
  let speed = 0;

  list.dragStarted = (id) => {
    list.hold("drag");
    list.dragged = id;
    list.draw();
  };
  list.dragEnded = () => {
    list.dragged = null;
    list.gap = null;
    list.release("drag");
    list.draw();
  };

  function gapAt(clientY) {
    const box = scroller.current.getBoundingClientRect();
    const at = Math.round((clientY - box.top + scroller.current.scrollTop - list.anchor.lead) / list.rowHeight());
    return Math.min(Math.max(at, 0), list.shown.rows.length);
  }

  function scroll() {
    if (speed) scroller.current.scrollTop += speed;
    scrolling = list.dragged === null ? 0 : requestAnimationFrame(scroll);
  }

  function onDrag({ location }) {
    const { clientY } = location.current.input;
    const box = scroller.current.getBoundingClientRect();
    speed = clientY < box.top + EDGE_PX ? -STEP_PX : clientY > box.bottom - EDGE_PX ? STEP_PX : 0;
    if (!scrolling) scrolling = requestAnimationFrame(scroll);
    const gap = gapAt(clientY);
    if (gap === list.gap) return;
    list.gap = gap;
    list.draw();
  }

  function onDrop({ source, location }) {
    const gap = gapAt(location.current.input.clientY);
    const row = line.byId.get(source.data.job);
    const order = [...list.shown.rows];
    const from = order.findIndex((each) => each.id === row?.id);
    if (row) moveTo(line, row, order, gap > from ? gap - 1 : gap);
  }

  function onDragLeave() {
    list.gap = null;
    list.draw();
  }

  function attach() {
    const canDrop = ({ source }) => typeof source.data.job === "string";
    return dropTargetForElements({ element: scroller.current, canDrop, onDrag, onDragLeave, onDrop });
  }
  return { attach };
}
