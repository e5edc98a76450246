"use strict";
// Figures name colours by role; the theme maps them to colours (theme.py does the same for PNG files).
function colour(role, alpha) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${role}`).trim();
  if (!hex || alpha === undefined) return hex;
  const part = (at) => parseInt(hex.slice(at, at + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}
function resolve(value) {
  if (Array.isArray(value)) return value.map(resolve);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v)]));
  const match = typeof value === "string" && /^@(\w+)(?:\/([\d.]+))?$/.exec(value);
  return match ? colour(match[1], match[2]) || value : value;
}
