// The rows of the line, drawn only where they are seen, and held still while the line changes.
import { html, useEffect, useLayoutEffect, useMemo, useRef } from "../../vendor/preact.js";
import { attempt } from "../components/toast.js";
import { counted, number } from "../format.js";
import { now } from "../state/clock.js";
import { canChange } from "../state/session.js";
import { createControl } from "./control.js";
import { Row } from "./row.js";

const MOST_DRAWN = 60;
const BEYOND = 6; // rows drawn above and below what is seen

/** `rows`: what to show (all that were read, or a filter of them); `total`: how many there are with those not read. */
export function LineList({ line, rows, total, placeOf }) {
  const scroller = useRef(null);
  const list = useMemo(() => createControl(line, scroller), [line]);
  list.shown = { rows, total, placeOf };
  useEffect(() => list.attach(), [list]);
  void list.drawAgain.value; // reading a signal has this drawn again when it changes
  void line.version.value;
  void now.value;

  list.beginDrawing();

  const height = list.rowHeight();
  const { top, lead } = list.anchor.settle({ rows, height, carried: list.carried, preferred: list.preferred() });
  const seen = scroller.current?.clientHeight || 12 * height;
  const first = Math.max(0, Math.floor((top - lead) / height) - BEYOND);
  const last = Math.min(total, first + Math.min(Math.ceil(seen / height) + 2 * BEYOND, MOST_DRAWN));
  const drawn = [];
  for (let index = first; index < last; index += 1) drawn.push(index);
  const axis = list.axisOf(drawn.map((index) => list.rowAt(index)));

  useLayoutEffect(() => {
    list.anchor.place(scroller.current);
    list.endDrawing();
  });
  useEffect(() => {
    if (last > rows.length - 1 && !line.isComplete) attempt(() => line.readTo(last + 50));
  }, [last, rows.length]);

  const extra = list.dragged !== null && !drawn.some((index) => list.rowAt(index)?.id === list.dragged) ? list.indexOf(list.dragged) : -1;
  if (extra >= 0) drawn.push(extra); // a row that is dragged must not leave the document
  const current = list.currentId();
  return html`<div class="line-frame">
    <${Pill} list=${list} />
    <div class="scroller" ref=${scroller} style=${{ height: `${Math.min(Math.max(total, 1), 14) * height}px` }}
      onScroll=${list.scrolled} onPointerMove=${list.pointed} onPointerLeave=${list.left}
      onPointerDown=${list.pressed} onFocusIn=${list.focused} onFocusOut=${list.blurred} onKeyDown=${list.onKeyDown}>
      <ol class="rows" data-steps aria-label="Jobs in line, first to start first" style=${{ height: `${lead + total * height}px` }}>
        ${lead > 0 && html`<li class="lead" role="presentation" style=${{ height: `${lead}px` }}>${lead >= height && `${counted(Math.round(lead / height), "row")} less above`}</li>`}
        ${drawn.map((index) => {
          const row = list.rowAt(index);
          const offset = lead + index * height;
          if (!row) return html`<li key=${`unread ${index}`} class="row unread" style=${{ top: `${offset}px` }}><span></span><span class="place"><b>${index + 1}</b></span></li>`;
          return html`<${Row} key=${row.id} line=${line} row=${row} top=${offset} axis=${axis} list=${list}
            place=${list.carried ? index + 1 : placeOf(row)} placedAhead=${line.placedAhead(row)}
            isCurrent=${row.id === current} isCarried=${list.carried?.id === row.id} isDragged=${list.dragged === row.id} isMarked=${line.isMarked(row)} />`;
        })}
      </ol>
      ${list.gap !== null && html`<div class="gap" style=${{ top: `${Math.max(lead + list.gap * height, 3)}px` }}></div>`}
    </div>
    ${axis > 0 && html`<${Axis} seconds=${axis} />`}
  </div>`;
}

/** Above the rows: what happened out of sight, or how much waits while the list is held. */
function Pill({ list }) {
  const isHeld = list.line.isHeld && (list.carried || list.dragged !== null || [...list.holders].some((name) => !name.startsWith("press")));
  if (isHeld) {
    const waits = list.line.heldBack;
    return html`<div class="pill" role="note">The list stands still${waits > 0 && html` · ${counted(waits, "update")} waiting`}</div>`;
  }
  const { started, joined, left } = list.above;
  const parts = [started && `${number(started)} started`, joined && `${number(joined)} joined`, left && `${number(left)} left`].filter(Boolean);
  if (!parts.length) return null;
  return html`<button type="button" class="pill" onClick=${list.toFront}>${parts.join(", ")} above</button>`;
}

function Axis({ seconds }) {
  const [size, unit] = seconds <= 120 ? [1, "s"] : seconds <= 7200 ? [60, "min"] : [3600, "h"];
  return html`<div class="axis" aria-hidden="true"><span class="ends"><span>now</span><span>+${Math.round(seconds / size)} ${unit}</span></span>
    ${canChange.value && html`<span class="act"><span>Move</span><span>Cancel</span></span>`}</div>`;
}
