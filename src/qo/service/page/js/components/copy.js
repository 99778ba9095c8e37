// A button that copies a text. Browsers have no clipboard on plain HTTP from another machine: there, a selection helps.
import { html } from "../../vendor/preact.js";
import { say } from "./said.js";
import { toast } from "./toast.js";

export function Copy({ text, label = "copy", name }) {
  return html`<button type="button" class="link small" aria-label=${name} onClick=${() => copy(text)}>${label}</button>`;
}

async function copy(text) {
  const given = typeof text === "function" ? text() : text;
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(given);
      say("Copied.");
      toast("Copied.", { seconds: 2 });
      return;
    } catch (error) {
      if (!(error instanceof DOMException)) throw error; // the browser does not allow it
    }
  }
  const field = document.createElement("textarea");
  field.value = given;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  toast(isCopied ? "Copied." : "The browser does not let this page copy; select the text instead.", { seconds: 4 });
}
