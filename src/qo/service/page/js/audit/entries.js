// Entries of the audit trail, in words.
import { html } from "../../vendor/preact.js";
import { Ago, JobLink } from "../components/parts.js";
import { priority, shortId } from "../format.js";
import { link } from "../route.js";

export const ACTIONS = ["submit", "cancel", "confirm", "retry", "priority", "move", "limit", "pause", "resume", "release", "tier"];
const OF_GROUPS = new Set(["limit", "pause", "resume", "release"]);

export function What({ entry }) {
  return html`<b>${entry.action}</b> <small class="change">${words(entry)}</small>`;
}

/** What was before and what is after, as far as that is more than the action itself. */
function words({ action, old, new: now }) {
  switch (action) {
    case "priority":
      return `${priority(old.priority).name} → ${priority(now.priority).name}`;
    case "limit":
      return `${old.limit ?? "none"} → ${now.limit ?? "none"}`;
    case "tier":
      return `${old.tier ?? "none"} → ${now.tier}`;
    case "move":
      return now.before ? `before ${shortId(now.before)}` : now.after ? `behind ${shortId(now.after)}` : "";
    case "cancel":
      return [old.state && `was ${old.state}`, now.message].filter(Boolean).join(": ");
    case "release":
      return `slot ${old.slot} of ${shortId(old.holder)}`;
    case "pause":
    case "resume":
      return "";
    default:
      return Object.entries(now ?? {}).filter(([, value]) => value !== null)
        .map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
  }
}

/** What was changed, as a link to its page. */
export function Target({ entry: { action, target } }) {
  if (OF_GROUPS.has(action)) return html`<a href=${link("groups", target)}>${target}</a>`;
  if (action === "tier") return html`<a href=${link("jobs", null, { user: target })}>${target}</a>`;
  return html`<${JobLink} id=${target} />`;
}

export function By({ entry: { by, role, address } }) {
  const more = [role, address].filter(Boolean).join(" · ");
  return html`<span>${by ?? "not named"}${more && html` <small>${more}</small>`}</span>`;
}

export function When({ entry }) {
  return html`<${Ago} at=${entry.at} />`;
}
