// What scripts add to pages that work without them: keys, copying. Never makes markup out of text.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const one = (selector) => document.querySelector(selector);
  const say = (text) => { const status = one("#status"); if (status) status.textContent = text; };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    event.preventDefault();
    navigator.clipboard?.writeText(button.dataset.copy).then(() => {
      button.classList.add("done");
      say("Copied");
      setTimeout(() => button.classList.remove("done"), 1200);
    }, () => say("Copying is not allowed here"));
  });

  const on = () => localStorage.getItem("hooklog-keys") !== "off";
  const box = one("#keys-on");
  if (box) {
    box.checked = on();
    box.addEventListener("change", () => localStorage.setItem("hooklog-keys", box.checked ? "on" : "off"));
  }
  const rows = () => [...document.querySelectorAll("a.row")];
  const step = (by) => {
    const all = rows();
    const at = all.indexOf(document.activeElement);
    all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + by))]?.focus();
  };
  let went = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) { event.target.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "?") { one("#keys")?.showModal(); return; }
    if (!on()) return;
    if (event.timeStamp - went < 1500) {
      went = 0;
      const link = one(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    switch (event.key) {
      case "/": event.preventDefault(); one("#q")?.focus(); break;
      case "g": went = event.timeStamp; break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "y": one("main [data-copy]")?.click(); break;
      case "t": {
        const all = [...document.querySelectorAll(".themes button")];
        all[(all.findIndex((b) => b.getAttribute("aria-pressed") === "true") + 1) % all.length]?.click();
      }
    }
  });
})();
