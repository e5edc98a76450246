"""The palette of all figures, by role, light and dark.

Figures name colours by role (`@after`); the page resolves roles when it draws, and redraws when the reader changes
the theme. A role has the same meaning in the whole report: the trained student is always blue.
"""

from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from typing import Any, Literal

Theme = Literal["light", "dark"]
Spec = dict[str, Any]
"""A part of the specification of a Plotly figure."""

_PAGE = files("rtl_core.reporting") / "page"
PALETTE: dict[str, list[str]] = tomllib.loads((_PAGE / "palette.toml").read_text("utf-8"))
"""Role -> (light, dark)."""
_PARTS: dict[str, Spec] = json.loads((_PAGE / "parts.json").read_text("utf-8"))
LINES = 6
_RESULTS = tomllib.loads((_PAGE / "outcomes.toml").read_text("utf-8"))
OUTCOMES: dict[str, list[str]] = _RESULTS["outcomes"]
"""Outcome -> [colour role, words], in display order."""
LEVELS: dict[str, str] = _RESULTS["levels"]
"""Level of a failed answer (view `failure_levels`) -> colour role, from the least to the most advanced answers."""


def css_variables() -> str:
    """The palette as CSS variables, for both themes."""
    light = "".join(f"--{role}:{colour};" for role, (colour, _) in PALETTE.items())
    dark = "".join(f"--{role}:{colour};" for role, (_, colour) in PALETTE.items())
    return f":root{{{light}}}:root[data-theme=dark]{{{dark}}}"


def line(index: int) -> str:
    """Colour role of the `index`-th line."""
    return f"@line{index % LINES}"


def faded(role: str, alpha: float = 0.13) -> str:
    """A role with transparency."""
    return f"{role}/{alpha}"


def resolve(value: Any, theme: Theme) -> Any:
    """Replace every role in a figure's specification by its colour (page.js has the same function)."""
    if isinstance(value, dict):
        return {k: resolve(v, theme) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [resolve(v, theme) for v in value]
    if isinstance(value, str) and (match := re.fullmatch(r"@(\w+)(?:/([\d.]+))?", value)):
        colour = PALETTE[match[1]][theme == "dark"]
        if match[2] is None:
            return colour
        red, green, blue = bytes.fromhex(colour[1:])
        return f"rgba({red},{green},{blue},{match[2]})"
    return value


def layout(**changes: Any) -> Spec:
    """The common layout of all figures with changes."""
    return part("layout", **changes)


def dots(**changes: Any) -> Spec:
    """The layout of a figure with pass@1 from left to right, in rows, with changes."""
    return layout(**part("dots", **changes))


def part(kind: str, /, **changes: Any) -> Spec:
    """A part of a figure (page/parts.json), such as a kind of trace, with changes."""
    return _changed(_PARTS[kind], changes)


def _changed(base: Spec, changes: Spec) -> Spec:
    """A specification with changes; where both have a mapping, it is changed as well."""
    spec = {**base, **changes}
    for key, value in base.items():
        if isinstance(value, dict):
            spec[key] = _changed(value, changes.get(key, {}))
    return spec


def axis(title: str, **changes: Any) -> Spec:
    """An axis with a title, as a change of the layout."""
    return {"title": {"text": title}, **changes}


PERCENT = {"tickformat": ".0%", "range": [0, 1.02]}
