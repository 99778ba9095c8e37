// Who looks at the page, and what they may do.
import { computed, signal } from "../../vendor/preact.js";
import { Problem, get, path, send } from "../api.js";

/** null until it is known; {role: null} when a key is asked for; else {role, user, expires_at}. */
export const session = signal(null);
export const canChange = computed(() => session.value?.role === "admin");
export const isUser = computed(() => session.value?.role === "user");
/** Development: there are no keys, and whoever sits at this machine is an admin. */
export const hasNoKeys = computed(() => session.value?.role === "admin" && session.value.expires_at === null);

export async function loadSession() {
  try {
    session.value = await get(path("session"));
  } catch (problem) {
    if (!(problem instanceof Problem) || problem.status !== 401) throw problem;
    session.value = { role: null };
  }
}

export async function signIn(key) {
  await send("POST", path("session"), { key });
  await loadSession(); // it says when the session ends; the answer says only when the key does
}

export async function signOut() {
  await send("DELETE", path("session"));
  session.value = { role: null };
}
