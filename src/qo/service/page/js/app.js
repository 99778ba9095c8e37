// The shell: header, the page of the address, messages. Starts everything.
//
// A page is one file in `pages/`. It exports `Page`, a component that gets `route` ({page, id, query}, see route.js) and
// draws <main>'s content. It reads what is live from live.js (overview, groups, workers, connection, onFrame, onReset)
// and state/*.js, asks with `get` and changes with `attempt(() => send(…))`, shows controls only when `canChange.value`,
// and keeps filters and open panels in the address with `setQuery`.
import { effect, html, render, useEffect, useRef, useState } from "../vendor/preact.js";
import { setHooks } from "./api.js";
import { Header } from "./components/header.js";
import { Help } from "./components/help.js";
import { SignIn } from "./components/sign-in.js";
import { Toasts } from "./components/toast.js";
import { missAnswer, refusal, startLive } from "./live.js";
import { route } from "./route.js";
import { isUser, loadSession, session } from "./state/session.js";

const PAGES = {
  line: () => import("./pages/line.js"),
  jobs: () => import("./pages/jobs.js"),
  job: () => import("./pages/job.js"),
  groups: () => import("./pages/groups.js"),
  insight: () => import("./pages/insight.js"),
  history: () => import("./pages/history.js"),
  workers: () => import("./pages/workers.js"),
  audit: () => import("./pages/audit.js"),
  submit: () => import("./pages/submit.js"),
  mine: () => import("./pages/mine.js"),
};

function nameOf({ page, id }) {
  if (page === "jobs" && id !== null) return "job";
  if (isUser.value && page !== "submit") return "mine";
  return page in PAGES ? page : "line";
}

const AGAIN_MS = 1000;

async function load(name) {
  return { name, Page: (await PAGES[name]()).Page };
}

function App({ first }) {
  const name = nameOf(route.value);
  const [loaded, setLoaded] = useState(first);
  const role = session.value?.role;
  const hasAskedForKey = useRef(false);
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    setLate(false);
    if (loaded.name === name) return undefined;
    let hasLeft = false;
    let timer = 0;
    // A file of the page may be out of reach for a while.
    const ask = () => load(name).then((found) => !hasLeft && setLoaded(found), () => {
      if (hasLeft) return;
      setLate(true);
      timer = setTimeout(ask, AGAIN_MS);
    });
    ask();
    return () => {
      hasLeft = true;
      clearTimeout(timer);
    };
  }, [name]);
  useEffect(() => {
    if (role && role !== "user") startLive(); // a user's page asks for the user's own jobs instead
    if (role && document.activeElement === document.body && hasAskedForKey.current) document.getElementById("main").focus();
    hasAskedForKey.current = role === null;
  }, [role]);

  if (session.value === null) return null;
  if (role === null) return html`<${SignIn} />`;
  return html`<${Header} />
    <main id="main" tabindex="-1">
      ${loaded.name !== name && isLate && html`<p class="empty">This page could not be read. It comes by itself when the server answers.</p>`}
      ${loaded.name === name && html`<${loaded.Page} key=${`${name}/${route.value.id}`} route=${route.value} />`}
    </main>
    <${Help} /><${Toasts} />`;
}

const TITLES = { line: "The line", mine: "My jobs", job: "Job", submit: "Submit a job" };
effect(() => {
  const name = nameOf(route.value);
  document.title = `${TITLES[name] ?? name[0].toUpperCase() + name.slice(1)} · qo`;
});

setHooks({ signedOut: () => (session.value = { role: null }), refusal, unanswered: missAnswer });
const [first] = await Promise.all([load(nameOf(route.value)), loadSession()]);
render(html`<${App} first=${first} />`, document.getElementById("page"));
