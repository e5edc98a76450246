// Keys, updates of a running run, theme and waveforms. Without scripts, everything but charts and waveforms works.
"use strict";
const $ = (selector, from = document) => from.querySelector(selector);
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

// -- theme and help
$("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private windows have no storage */ }
});
$("#keys").addEventListener("click", () => $("#help").showModal());

// -- what scrolls sideways takes the keyboard
function reach() { for (const table of $$("table.rows")) if (table.scrollWidth > table.clientWidth) table.tabIndex = 0; }
reach();
addEventListener("filled", reach);

// -- filters apply at once; empty ones stay out of the URL
for (const form of $$("form:not([method=dialog])")) {
  form.addEventListener("submit", () => { for (const field of form.elements) if (field.name && field.value === "") field.disabled = true; });
}
addEventListener("pageshow", () => { for (const field of $$(":disabled")) field.disabled = false; });
$("#filters")?.addEventListener("change", (event) => { if (event.target.tagName === "SELECT") event.target.form.requestSubmit(); });

// -- rows and keys
let chosen = -1;
const rows = () => $$("[data-row]");
function choose(index) {
  const all = rows();
  if (!all.length) return;
  all[chosen]?.classList.remove("chosen");
  chosen = Math.max(0, Math.min(all.length - 1, index));
  all[chosen].classList.add("chosen");
  all[chosen].scrollIntoView({ block: "nearest" });
}
const follow = (link) => { if (link) link.click(); };
function cycle(key) {
  const links = $$(`[data-cycle=${key}] a`);
  follow(links[(links.findIndex((link) => link.ariaCurrent || link.getAttribute("aria-current")) + 1) % links.length]);
}
const KEYS = {
  j: () => choose(chosen + 1), ArrowDown: () => choose(chosen + 1), k: () => choose(chosen - 1), ArrowUp: () => choose(chosen - 1),
  Enter: () => chosen >= 0 && follow($("a", rows()[chosen])),
  Escape: () => follow($("a[rel=up]")), u: () => follow($("a[rel=up]")),
  n: () => follow($("a[rel=next]")), p: () => follow($("a[rel=prev]")),
  o: () => cycle("o"), d: () => cycle("d"), w: () => $("#show-waves")?.click(),
  "/": () => { const field = $("#filters input[name=q]") || $(".search input[type=search]"); field.focus(); field.select(); },
  "?": () => $("#help").showModal(), t: () => $("#theme").click(),
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("#help").open) return;
  const field = event.target.closest("input, select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const arrow = event.key.startsWith("Arrow");
  if (!Object.hasOwn(KEYS, event.key) || (arrow && !rows().length)) return;
  event.preventDefault();
  KEYS[event.key]();
});

// -- a running run: poll the file's stamp, and reload the page when it has changed. The pause is at least 50 times as long as loading
// took, so that watching takes at most 2 % of the time, and at most half a minute.
const EVERY_MS = 3000, REST = 50, MOST_MS = 30000;
let pressed = false;
addEventListener("pointerdown", () => { pressed = true; });
addEventListener("pointerup", () => { pressed = false; });
async function refresh() {
  let wait = EVERY_MS;
  try {
    const { stamp } = await (await fetch("/stamp")).json();
    const busy = document.hidden || $("#help").open || document.activeElement?.matches("input, select") || !getSelection().isCollapsed;
    if (stamp && stamp !== document.body.dataset.stamp && !busy) {
      const start = performance.now();
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      wait = Math.min(MOST_MS, Math.max(EVERY_MS, REST * (performance.now() - start)));
      if (answer.ok && page.getElementById("main") && !pressed) {
        const open = $$("details").map((part) => part.open);
        $("#main").replaceWith(page.getElementById("main"));
        complete();
        dispatchEvent(new Event("filled"));
        $$("details").forEach((part, i) => { part.open = open[i] ?? part.open; });
        if (chosen >= 0) rows()[chosen]?.classList.add("chosen");
        document.body.dataset.stamp = page.body.dataset.stamp || stamp;
        if (!page.body.hasAttribute("data-stamp")) { $(".live")?.remove(); return; }
      }
    }
  } catch { $(".live")?.classList.add("lost"); wait = 5 * EVERY_MS; }
  setTimeout(refresh, wait);
}
if (document.body.hasAttribute("data-stamp")) setTimeout(refresh, EVERY_MS);

// -- sections that are loaded after the rest of the page
async function complete() {
  for (const part of $$("[data-src]")) {
    try {
      const answer = await fetch(part.dataset.src);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      part.replaceWith($("#main section", page) || page.getElementById("main"));
      dispatchEvent(new Event("filled"));
    } catch { /* its placeholder has a link */ }
  }
}
complete();

// -- waveforms
const button = $("#show-waves");
async function waves() {
  if (button.disabled) return;
  button.disabled = true;
  const drawing = $("#drawing");
  drawing.textContent = "grading and dumping waves …";
  try {
    const answer = await fetch("/waves", { method: "POST", headers: { "X-Rtl-Distill-View": "1", "Content-Type": "application/json" }, body: JSON.stringify({ key: button.dataset.key }) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    drawing.replaceChildren(...($("#main", page) || page.body).childNodes);
    const address = new URL(location.href);
    address.searchParams.set("waves", "1");
    history.replaceState(null, "", address);
  } catch { drawing.textContent = "the view does not answer; is it still running?"; }
  button.disabled = false;
}
if (button) {
  button.addEventListener("click", waves);
  if (button.hasAttribute("data-now")) waves();
}
document.documentElement.dataset.ready = "yes";
