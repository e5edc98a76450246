// Before the page is drawn, apply the user's theme, or else the system's.
(() => {
  const wish = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = () => { document.documentElement.dataset.theme = wish() || (dark.matches ? "dark" : "light"); };
  dark.addEventListener("change", set);
  set();
})();
