// The header: pages, whether what is shown is live, and what can be done from everywhere.
import { computed, html, signal } from "../../vendor/preact.js";
import { get, path, send } from "../api.js";
import { ago, absolute } from "../format.js";
import { PAGES, helpOpen } from "../keys.js";
import { connection, groups, putGroup } from "../live.js";
import { link, route } from "../route.js";
import { now } from "../state/clock.js";
import { canChange, hasNoKeys, isUser, session, signOut } from "../state/session.js";
import { Menu } from "./menu.js";
import { attempt, toastDone } from "./toast.js";

const ALL = "global";
const allPaused = computed(() => groups.value?.some((each) => each.group === ALL && each.paused) ?? false);

export function Header() {
  const { page } = route.value;
  const pages = isUser.value ? [["line", "My jobs"]] : PAGES;
  return html`<header class="top">
    <a class="skip" href="#main" onClick=${skip}>Skip to the page</a>
    <a class="logo" href=${link("line")} aria-label="qo, the line">q<b>o</b></a>
    <nav aria-label="Pages">${pages.map(([name, title]) => html`<a key=${name} href=${link(name)}
      aria-current=${page === name ? "page" : undefined}>${title}</a>`)}</nav>
    <div class="tools">
      ${hasNoKeys.value && html`<span class="development" title="There are no API keys: everybody on this machine is an admin. qo keys create --role admin makes the first key.">development, no keys</span>`}
      ${session.value.role === "viewer" && html`<span class="development">viewer, changes nothing</span>`}
      <${Live} />
      ${canChange.value && html`<button type="button" onClick=${pauseOrResume}>${allPaused.value ? "Resume all" : "Pause all"}</button>`}
      ${session.value.role !== "viewer" && html`<a class="button primary" href=${link("submit")}>Submit a job</a>`}
      <${Menu} label="⋯" name="More" class="icon">${(close) => html`<${More} close=${close} />`}<//>
    </div>
  </header>
  ${connection.value.state === "lost" && html`<p class="banner lost" role="alert">
    <b>Connection lost.</b> These numbers are from <time title=${absolute(connection.value.since)}>${ago(connection.value.since, Date.now() + 0 * now.value)}</time>. Nothing can be changed until the server answers; the page comes back by itself.</p>`}`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Live() {
  const { state, since } = connection.value;
  const words = { live: "live", connecting: "connecting", lost: "lost" }[state];
  return html`<span class=${`live ${state}`} title=${`since ${absolute(since)}`}><i aria-hidden="true"></i>${words}</span>`;
}

async function pauseOrResume() {
  const wasPaused = allPaused.value;
  const done = await attempt(() => send("POST", path("queue", wasPaused ? "resume" : "pause"), { group: ALL }));
  if (!done) return;
  putGroup(done);
  const text = wasPaused ? "Jobs start again." : "Paused: nothing starts until it is resumed. What runs goes on.";
  toastDone(text, done.audit_id, async () => putGroup(await get(path("concurrency", ALL))));
}

const theme = signal(document.documentElement.dataset.theme ?? "system");

function chooseTheme(wanted) {
  theme.value = wanted;
  if (wanted === "system") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("qo-theme");
  } else {
    document.documentElement.dataset.theme = wanted;
    localStorage.setItem("qo-theme", wanted);
  }
}

function More({ close }) {
  return html`<fieldset class="choices"><legend>Theme</legend>${["system", "light", "dark"].map((each) => html`<label>
      <input type="radio" name="theme" checked=${theme.value === each} onChange=${() => chooseTheme(each)} /> ${each}</label>`)}</fieldset>
    <button type="button" onClick=${() => (close(), (helpOpen.value = true))}>Keys <small>?</small></button>
    ${!hasNoKeys.value && html`<button type="button" onClick=${() => (close(), attempt(signOut))}>Sign out</button>`}`;
}
