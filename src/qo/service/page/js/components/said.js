// The live region: sentences for people who do not see the change.
const region = document.getElementById("said");

/** Have a sentence read out. The same sentence twice is read twice. */
export function say(sentence) {
  region.textContent = "";
  setTimeout(() => {
    region.textContent = sentence;
  }, 50);
}
