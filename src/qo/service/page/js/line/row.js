// A row of the line: place, movement, priority, task, reason, range, and what can be done with it.
import { html, useEffect, useRef, useState } from "../../vendor/preact.js";
import { draggable } from "../../vendor/drag.js";
import { Question } from "../components/ask.js";
import { Menu } from "../components/menu.js";
import { Movement, Priority, RangeBar, Since, movementWords } from "../components/parts.js";
import { PRIORITIES, priority, rangeInWords } from "../format.js";
import { link } from "../route.js";
import { canChange } from "../state/session.js";
import { cancel, nameOf, setPriority } from "./moves.js";

export function Row({ line, row, place, placedAhead, axis, top, isCurrent, isCarried, isDragged, isMarked, list }) {
  const element = useRef(null);
  const [asks, setAsks] = useState(false);
  const mayChange = canChange.value;
  // While it asks, the list stands still: the question must not move, nor go with a row that leaves.
  const ask = () => (list.hold(`ask ${row.id}`), setAsks(true));
  const keep = () => (setAsks(false), list.release(`ask ${row.id}`), element.current.focus());

  useEffect(() => {
    if (!mayChange) return undefined;
    return draggable({
      element: element.current,
      canDrag: ({ input }) => !document.elementFromPoint(input.clientX, input.clientY)?.closest("button, form"),
      getInitialData: () => ({ job: row.id }),
      onDragStart: () => list.dragStarted(row.id),
      onDrop: () => list.dragEnded(),
    });
  }, [row.id, mayChange]);

  const kinds = ["row", isCarried && "carried", isDragged && "dragged", isMarked && "marked", mayChange && "movable"];
  const stop = isCurrent ? 0 : -1;
  return html`<li ref=${element} class=${kinds.filter(Boolean).join(" ")} style=${{ top: `${top}px` }} tabindex=${stop}
    data-id=${row.id} data-step aria-label=${spoken(row, place, placedAhead)} aria-roledescription=${mayChange ? "movable job" : undefined}
    aria-posinset=${place} aria-setsize=${list.total()}>
    <span class="handle" aria-hidden="true">${mayChange ? "⋮⋮" : ""}</span>
    <span class="place"><b class=${place > 9999 ? "longest" : place > 99 ? "long" : ""}>${place}</b><${Movement} gained=${row.gained} placedAhead=${placedAhead} /></span>
    <span class="priority">${mayChange
      ? html`<${Menu} label=${html`<${Priority} value=${row.priority} />`} name=${`Priority ${priority(row.priority).name}, change it`}
          class="bare" stop=${stop} items=${priorityItems(line, row)} onOpen=${() => list.hold("menu")} onClose=${() => list.release("menu")} />`
      : html`<${Priority} value=${row.priority} />`}</span>
    <span class="what"><a draggable=${false} tabindex=${stop} href=${link("jobs", row.id)} title=${row.id}><b>${row.task}</b>${row.project && html` <small>· ${row.project}</small>`}</a>
      <small><${Since} at=${row.joined_at} />${[row.user, row.tier].filter(Boolean).map((each) => ` · ${each}`).join("")}</small></span>
    ${asks
      ? html`<${Question} name=${`Cancel ${nameOf(row)}?`} text="It will not run." yes="Cancel job" act=${() => cancel(line, row)} keep=${keep} />`
      : html`<span class="why"><${Reason} row=${row} /></span>
        <span class="when"><${RangeBar} estimate=${row.estimate} axis=${axis} /></span>
        ${mayChange && html`<span class="act">
          <${MoveMenu} line=${line} row=${row} place=${place} list=${list} stop=${stop} ask=${ask} />
          <button type="button" class="quiet cancel" tabindex=${stop} aria-label=${`Cancel ${nameOf(row)}`} onClick=${ask}>Cancel</button>
        </span>`}`}
  </li>`;
}

function spoken(row, place, placedAhead) {
  const estimate = row.estimate?.upper_bound != null
    ? `, starts in ${rangeInWords(row.estimate.lower_bound, row.estimate.upper_bound)}` : "";
  const moved = movementWords(row.gained, placedAhead).map((each) => `, ${each}`).join("");
  const reason = row.waits_for[0]?.text;
  return `Position #${place} in queue: ${row.task}${row.user ? ` of ${row.user}` : ""}, ${priority(row.priority).name}`
    + `${moved}${estimate}${reason ? `, ${reason}` : ""}`;
}

const STUCK = new Set(["no_worker", "shut", "closed", "suspect"]);

/** Why it waits, in words, the group's name in bold. A dot marks what is this job's own trouble, not everybody's. */
function Reason({ row }) {
  const [main] = row.waits_for;
  if (!main) return html`<span>waits for its turn</span>`;
  const hasTrouble = STUCK.has(main.kind) || (main.kind === "full" && main.group !== "global");
  return html`<span class="reason" title=${row.waits_for.map((each) => each.text).join("\n")}>${hasTrouble && html`<i class="dot" aria-hidden="true"></i>`}<${Bold} text=${main.text} name=${main.group} /></span>`;
}

export function Bold({ text, name }) {
  const at = name ? text.indexOf(name) : -1;
  if (at < 0) return text;
  return html`${text.slice(0, at)}<b>${name}</b>${text.slice(at + name.length)}`;
}

function priorityItems(line, row) {
  return PRIORITIES.map(({ value, name, shape }) => ({
    label: `${shape} ${name}`,
    hint: value === row.priority ? "now" : String(value),
    disabled: value === row.priority,
    act: () => setPriority(line, row, value),
  }));
}

function MoveMenu({ row, place, list, stop, ask }) {
  return html`<${Menu} label="Move" name=${`Move ${nameOf(row)}`} class="quiet-menu" stop=${stop}
    onOpen=${() => list.hold("menu")} onClose=${() => list.release("menu")}>${(close) => {
    const to = (index) => (close(), list.moveTo(row, index));
    return html`
      <button type="button" disabled=${place === 1} onClick=${() => to(0)}>To the front</button>
      <button type="button" disabled=${place === 1} onClick=${() => to(place - 2)}>Up</button>
      <button type="button" onClick=${() => to(place)}>Down</button>
      <form onSubmit=${(event) => (event.preventDefault(), to(Number(new FormData(event.target).get("place")) - 1))}>
        <label>To place <input name="place" type="number" min="1" required /></label><button class="small">Move</button></form>
      <form onSubmit=${(event) => (event.preventDefault(), close(), list.moveBefore(row, new FormData(event.target).get("job").trim()))}>
        <label>Before job <input name="job" required placeholder="id" /></label><button class="small">Move</button></form>
      <button type="button" onClick=${() => to(Infinity)}>To the back</button>
      <button type="button" class="bad" onClick=${() => (close(), ask())}>Cancel the job</button>`;
  }}<//>`;
}
