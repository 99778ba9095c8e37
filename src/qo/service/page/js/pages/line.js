// The line: who is next, what everybody waits for, until when; and the controls to change it.
import { html, useEffect, useMemo } from "../../vendor/preact.js";
import { Card, Empty } from "../components/parts.js";
import { attempt } from "../components/toast.js";
import { ago, moment, number } from "../format.js";
import { connection, onFrame, onReset, waiting } from "../live.js";
import { ConfirmBanner } from "../line/confirm.js";
import { Figures } from "../line/figures.js";
import { LineList } from "../line/list.js";
import { Pressure } from "../line/pressure.js";
import { Running } from "../line/running.js";
import { Timeline } from "../line/timeline.js";
import { Waits, waitsFor } from "../line/waits.js";
import { setQuery } from "../route.js";
import { lastEnded, readActive } from "../state/active.js";
import { now } from "../state/clock.js";
import { MOST_ROWS, createLine } from "../state/line.js";
import { canChange, isUser } from "../state/session.js";

export function Page({ route }) {
  const line = useMemo(() => {
    const made = createLine();
    attempt(() => made.readTo(60)); // before the first paint: first.js has asked for it
    return made;
  }, []);
  const wanted = route.query.waits;
  useEffect(() => {
    attempt(readActive);
    const ends = [onFrame(line.take), onReset(() => attempt(line.reload))];
    return () => ends.forEach((end) => end());
  }, [line]);
  useEffect(() => {
    if (wanted) attempt(() => line.readTo(MOST_ROWS)); // a filter looks at the whole line
  }, [line, wanted]);
  void line.version.value;

  const { total } = line;
  void waiting.value;
  const oldest = line.isComplete ? line.rows.reduce((found, row) => (found === null || row.joined_at < found ? row.joined_at : found), null) : null;
  return html`
    <h1 class="unseen">The line</h1>
    <${Figures} oldest=${oldest} />
    <${ConfirmBanner} />
    ${!isUser.value && html`<${Waits} rows=${line.rows} />`}
    <div class="columns">
      <${TheLine} line=${line} total=${total} wanted=${wanted} />
      <div class="side"><${Running} /><${Pressure} /></div>
    </div>
    <${Timeline} />`;
}

function TheLine({ line, total, wanted }) {
  void line.version.value; // a component that reads signals is drawn again only for its props and its signals
  const rows = wanted ? line.rows.filter((row) => waitsFor(row, wanted)) : line.rows;
  const shown = wanted ? rows.length : total;
  const note = canChange.value ? "drag, keyboard or menu to move" : "in the order in which they start";
  return html`<${Card} title="The line" id="line" class="the-line" count=${wanted ? `${number(shown)} of ${number(total)}` : number(total)}
    note=${wanted ? html`only ${wanted} · <button type="button" class="link" onClick=${() => setQuery({ waits: null })}>show all</button>` : note}>
    ${shown === 0
      ? html`<${Empty}><${Nothing} isRead=${line.isRead} wanted=${wanted} /><//>`
      : html`<${LineList} line=${line} rows=${rows} total=${shown} placeOf=${(row) => line.place(row.id)} />`}
  <//>`;
}

function Nothing({ isRead, wanted }) {
  if (!isRead) return connection.value.state === "lost" ? "The line could not be read." : "Reading the line …";
  if (wanted) return "No job waits for this any more.";
  const last = lastEnded.value ? ` The last job ended ${ago(moment(lastEnded.value), now.value)}.` : "";
  return html`Nothing waits.${last} Submit one: <code>qo submit build '{"app": 7}'</code>`;
}
