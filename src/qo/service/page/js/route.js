// The address of what is shown: `#/jobs/ID?state=failed`. It is behind the `#`, so that it works below any path prefix,
// and no job id gets into the log of a proxy.
import { signal } from "../vendor/preact.js";

/** {page: "jobs", id: "01J…" or null, query: {state: "failed"}} */
export const route = signal(read());

addEventListener("hashchange", () => {
  route.value = read();
});

function read() {
  const [where, search = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, id] = where.split("/").map(decoded);
  return { page: page || "line", id: id || null, query: Object.fromEntries(new URLSearchParams(search)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a `%` that somebody typed
  }
}

/** The href of a page: link("jobs", "01J…"), link("jobs", null, {state: "failed"}). */
export function link(page, id = null, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const where = `#/${page === "line" ? "" : encodeURIComponent(page)}${id === null ? "" : `/${encodeURIComponent(id)}`}`;
  return given.length ? `${where}?${new URLSearchParams(given)}` : where;
}

export function go(page, id = null, query = {}) {
  location.hash = link(page, id, query);
}

/** Change parts of the query; null removes one. With `replace`, back does not stop here (typing in a box). */
export function setQuery(changes, { replace = false } = {}) {
  const { page, id, query } = route.value;
  const address = link(page, id, { ...query, ...changes });
  if (replace) {
    history.replaceState(null, "", address);
    route.value = read();
  } else {
    location.hash = address;
  }
}
