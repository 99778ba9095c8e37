// The page for a visitor without a session, on a server that has keys.
import { html, useState } from "../../vendor/preact.js";
import { Problem } from "../api.js";
import { signIn } from "../state/session.js";

export function SignIn() {
  const [refused, setRefused] = useState(null);

  async function submit(event) {
    event.preventDefault();
    try {
      await signIn(new FormData(event.target).get("key").trim());
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      setRefused(problem.message);
    }
  }

  return html`<main class="sign-in"><form class="card" onSubmit=${submit}>
    <span class="logo" aria-label="qo">q<b>o</b></span>
    <h1>Sign in</h1>
    <p>This server asks for an API key. <code>qo keys create --role admin</code> makes one.</p>
    <label>API key <input name="key" type="password" autocomplete="current-password" required autofocus
      aria-invalid=${refused !== null} aria-describedby=${refused ? "refused" : undefined} /></label>
    ${refused && html`<p id="refused" class="bad" role="alert">${refused}</p>`}
    <button class="primary">Sign in</button>
  </form></main>`;
}
