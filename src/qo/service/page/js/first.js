// Runs before the first paint and before the modules are there; no module itself, because modules wait.
(() => {
  // A chosen theme must not flash.
  const chosen = localStorage.getItem("qo-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;

  // The first rows are asked for while the modules are still on their way. api.js takes these answers, once each.
  const wanted = ["api/session"];
  if (/^(#\/?(line.*)?)?$/.test(location.hash)) wanted.push("api/queue?limit=60");
  const headers = { Accept: "application/json" };
  window.asked = new Map(wanted.map((address) => [address, fetch(address, { headers }).catch(() => null)]));
})();
