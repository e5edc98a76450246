(() => {
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const root = document.documentElement;
  const drawn = new Set();
  let paper = false;

  // --- figures: drawn when they are scrolled near the window, and again when the theme changes
  const figures = new Map(report.figures.map((figure) => [figure.id, figure]));
  const config = { displayModeBar: false, responsive: true, doubleClick: "reset" };
  function draw(id) {
    const figure = figures.get(id);
    const place = document.getElementById("plot-" + id);
    const layout = { ...resolve(figure.layout), height: figure.height, autosize: true };
    if (paper) {
      const wide = place.closest("figure").classList.contains("wide");
      Object.assign(layout, { autosize: false, width: wide ? 690 : 336, height: (wide ? 0.82 : 0.92) * figure.height });
      layout.legend = { ...layout.legend, font: { ...layout.legend.font, size: 9.5 } };
    }
    if (!paper && place.clientWidth < 480 && layout.meta === "rows" && !layout.yaxis.tickvals) {
      // No room for names beside the rows: they stand below the points.
      const names = [...new Set(figure.data.flatMap((trace) => trace.y))];
      const below = { x: 0, xref: "paper", xanchor: "left", yanchor: "top", yshift: -7, showarrow: false };
      layout.annotations = names.map((text) => ({ ...below, text, y: text }));
      layout.margin = { ...layout.margin, l: 14 };
      layout.yaxis = { ...layout.yaxis, showticklabels: false };
    }
    place.style.height = `${layout.height}px`;
    const done = Plotly.react(place, resolve(figure.data), layout, config);
    if (!drawn.has(id)) place.on("plotly_click", ({ points: [point] }) => list(point.id));
    drawn.add(id);
    place.dataset.drawn = "yes";
    return done;
  }
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      if (!drawn.has(entry.target.dataset.figure)) draw(entry.target.dataset.figure);
    }
  }, { rootMargin: "500px" });
  for (const id of figures.keys()) watcher.observe(document.getElementById("plot-" + id));
  function drawAll() { return Promise.all([...figures.keys()].map(draw)); }
  function setTheme(theme) { root.dataset.theme = theme; for (const id of drawn) draw(id); if (selected) show(selected); }
  window.report = { drawAll, setTheme, figures };

  document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  // Printing: light theme, all figures, sized for A4.
  let beforePrint = null;
  window.addEventListener("beforeprint", () => { beforePrint = root.dataset.theme; root.dataset.theme = "light"; paper = true; drawAll(); });
  window.addEventListener("afterprint", () => { paper = false; if (beforePrint) setTheme(beforePrint); beforePrint = null; });

  // --- a click on the dot of a problem lists its rollouts
  function list(problem) {
    if (!problem || !report.browser) return;
    for (const control of document.querySelectorAll("#filters select")) control.value = "";
    const text = document.getElementById("filter-text");
    text.value = problem;
    text.dispatchEvent(new Event("input"));
    document.getElementById("rollouts").scrollIntoView();
  }

  // --- contents: mark the current section
  const links = new Map([...document.querySelectorAll("nav li a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const places = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const a of links.values()) a.classList.remove("here");
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) places.observe(document.getElementById(id));

  // --- rollouts: everything that a model wrote is inserted as text, never as markup
  let selected = null;
  function element(name, options = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(options)) {
      if (key === "text") made.textContent = visible(value); else if (key === "class") made.className = value; else made.setAttribute(key, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }
  function visible(text) { return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd"); }
  function number(value, digits) { return value === null || value === undefined ? "–" : (Number(value.toFixed(digits)) + 0).toFixed(digits); }
  function outcomeOf(rollout) { return report.outcomes[rollout.outcome] || ["@muted", rollout.outcome]; }
  function dot(rollout) {
    const made = element("span", { class: "dot" });
    made.style.background = `var(--${outcomeOf(rollout)[0].slice(1)})`;
    return made;
  }
  function show(key) {
    const rollout = report.browser.rollouts.find((r) => r.rollout === key);
    if (!rollout) return;
    selected = key;
    const problem = report.browser.problems[rollout.problem];
    const detail = document.getElementById("detail");
    const parts = [
      element("h3", {}, dot(rollout), element("span", { text: `${outcomeOf(rollout)[1]} · ${rollout.problem}` })),
      element("p", { class: "key", text: rollout.rollout }),
      element("div", { class: "chips" }, ...rollout.stages.map((s) => element("span", { class: "chip " + s.status, text: `${s.stage} ${s.status}` }))),
    ];
    const facts = [
      ["reward", `${number(rollout.reward, 2)}  =  ${Object.entries(rollout.terms).map(([t, [w, v]]) => `${t} ${w}×${number(v, 2)}`).join(" + ")}`],
      ["reward trained on", number(rollout.trained, 3)],
      ["advantage", number(rollout.advantage, 3)],
      ["KL to the teacher (k1)", number(rollout.k1, 4)],
      ["tests", `${rollout.tests_passed} of ${rollout.tests_total}`],
      ["tokens", `${rollout.n_tokens}, ended by ${rollout.stop_reason}`],
    ];
    parts.push(element("table", {}, ...facts.map(([k, v]) => element("tr", {}, element("th", { text: k }), element("td", { text: v })))));
    const reasons = [...new Set([...rollout.reasons, ...rollout.stages.flatMap((s) => s.reasons)])];
    if (reasons.length) parts.push(element("h4", { text: "Reasons" }), element("ul", {}, ...reasons.map((r) => element("li", { text: r }))));
    if (rollout.ports.length) {
      parts.push(element("h4", { text: "Interface" }), element("table", { id: "interface" },
        element("tr", {}, ...["name", "expected", "got"].map((t) => element("th", { text: t }))),
        ...rollout.ports.map(([name, expected, got, bad]) => element("tr", bad ? { class: "wrong" } : {}, ...[name, expected, got].map((t) => element("td", { class: "code", text: t }))))));
    }
    parts.push(element("h4", { text: "Answer" }), element("pre", { class: "answer", text: rollout.text }));
    parts.push(element("h4", { text: "Problem" }), element("pre", { text: problem.prompt }));
    detail.replaceChildren(...parts);
    detail.scrollTop = 0;
    for (const row of document.querySelectorAll("#rows tr")) row.setAttribute("aria-selected", String(row.dataset.key === key));
  }
  function browse() {
    const fields = { outcome: "outcome", purpose: "purpose", difficulty: "difficulty", family: "family" };
    const controls = Object.fromEntries(Object.keys(fields).map((name) => [name, document.getElementById("filter-" + name)]));
    for (const [name, control] of Object.entries(controls)) {
      const values = [...new Set(report.browser.rollouts.map((r) => r[fields[name]]).filter((v) => v !== null))].sort();
      for (const value of values) control.append(element("option", { value, text: name === "outcome" ? (report.outcomes[value] || ["", value])[1] : value }));
    }
    const text = document.getElementById("filter-text");
    const body = document.getElementById("rows");
    function filter() {
      const needle = text.value.trim().toLowerCase();
      const kept = report.browser.rollouts.filter((r) =>
        Object.entries(controls).every(([name, control]) => !control.value || r[fields[name]] === control.value) &&
        (!needle || [r.rollout, r.text, ...r.reasons, ...r.mismatches.map((m) => m.name)].some((t) => t.toLowerCase().includes(needle))));
      body.replaceChildren(...kept.map((r) => element("tr", { "data-key": r.rollout, tabindex: "0", "aria-selected": String(r.rollout === selected) },
        element("td", { class: "right", text: r.purpose === "train" ? r.step : `eval ${r.step}` }), element("td", { class: "problem", text: r.problem }),
        element("td", {}, dot(r), element("span", { text: outcomeOf(r)[1] })), element("td", { class: "right", text: number(r.reward, 2) }))));
      document.getElementById("count").textContent = `${kept.length} of ${report.browser.rollouts.length}`;
      if (kept.some((r) => r.rollout === selected)) return;
      if (kept.length) return show(kept[0].rollout);
      selected = null;
      document.getElementById("detail").replaceChildren(element("p", { text: "No rollout in this file matches. `rtl-distill view` shows all of the run." }));
    }
    for (const control of [...Object.values(controls), text]) control.addEventListener("input", filter);
    document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
    body.addEventListener("click", (event) => { const row = event.target.closest("tr"); if (row) show(row.dataset.key); });
    body.addEventListener("keydown", (event) => {
      const row = event.target.closest("tr");
      const next = event.key === "ArrowDown" ? row.nextElementSibling : event.key === "ArrowUp" ? row.previousElementSibling : event.key === "Enter" ? row : null;
      if (next) { event.preventDefault(); next.focus(); show(next.dataset.key); }
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-rollout]");
      if (button) { show(button.dataset.rollout); document.getElementById("rollouts").scrollIntoView(); }
    });
    filter();
  }
  if (document.getElementById("rollouts")) browse();
  root.dataset.ready = "yes";
})();
