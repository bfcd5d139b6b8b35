// What scripts add to pages that work without them: keys, copying. Never makes markup out of text.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const one = (selector) => document.querySelector(selector);
  const say = (text) => { const status = one("#status"); if (status) status.textContent = text; };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-of]");
    if (!button) return;
    event.preventDefault();
    const text = button.dataset.copy ?? document.getElementById(button.dataset.copyOf).textContent;
    navigator.clipboard?.writeText(text).then(() => {
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
  // What happens while the page is open. Rows are counted, never moved; a part is made anew while nobody is in it.
  const live = one("#live");
  if (live && window.EventSource) {
    const news = one("#news"), only = live.dataset.only.split(" ").filter(Boolean);
    let source, count = 0, wanted = false, waiting = 0;
    const show = (state) => { live.dataset.state = state; live.lastChild.textContent = state; };
    const swap = () => {
      waiting = 0;
      const part = one("#fresh");
      if (!wanted || !part || document.hidden) return;
      if (part.matches(":hover, :focus-within")) { waiting = setTimeout(swap, 1000); return; }
      wanted = false;
      window.htmx?.trigger(part, "fresh");
    };
    const hear = (event) => {
      if (live.dataset.swaps === "true") {
        wanted = true;
        waiting ||= setTimeout(swap, 400);
        return;
      }
      if (only.length && !only.includes(JSON.parse(event.data).delivery_id)) return;
      count += 1;
      news.hidden = false;
      news.textContent = only.length ? "Something happened: show" : `${count} new: show`;
      say(news.textContent);
    };
    const open = () => {
      source = new EventSource(live.dataset.live);
      source.onopen = () => show("live");
      source.onerror = () => show(source.readyState === 2 ? "offline" : "reconnecting");
      source.onmessage = hear;
      source.addEventListener("drain", () => show("reconnecting"));
      source.addEventListener("revoked", () => { source.close(); show("signed out"); });
    };
    open();
    addEventListener("pagehide", () => source.close());
    document.addEventListener("visibilitychange", () => {
      source.close();
      if (document.hidden) show("paused");
      else { wanted = true; open(); swap(); }
    });
  }

  // The secret of a link to the portal: out of the address, into the form. It goes nowhere before the button is pressed.
  // An address that is pasted over this page's own loads nothing: the browser only says that the fragment changed.
  const enter = one("form.enter");
  const take = () => {
    if (!location.hash.startsWith("#hl_link_")) return;
    enter.elements.link.value = location.hash.slice(1);
    one(".paste").hidden = true;
    const ready = one(".ready");
    if (ready) ready.hidden = false;
    history.replaceState(null, "", location.pathname);
  };
  if (enter) { take(); addEventListener("hashchange", take); }

  let went = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
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
