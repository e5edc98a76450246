"""The palette of all figures, by role, light and dark.

Figures name colours by role (`@after`); the page resolves roles when it draws, and redraws when the reader changes
the theme. A role has the same meaning in the whole report: the trained student is always blue.
"""

from __future__ import annotations

import re
from typing import Any, Literal

Theme = Literal["light", "dark"]
Spec = dict[str, Any]
"""A part of the specification of a Plotly figure."""

# role -> (light, dark)
PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#fbfbf9", "#14171b"),
    "card": ("#ffffff", "#1b1f25"),
    "ink": ("#1c2128", "#e4e7eb"),
    "muted": ("#66707d", "#97a1ad"),
    "rule": ("#e4e7ea", "#2d333b"),
    # policies
    "before": ("#9aa4af", "#77828f"),
    "warm": ("#6f9fd0", "#3f74b5"),
    "after": ("#1f5fae", "#6aa9f4"),
    "teacher": ("#bd7420", "#e2a24a"),
    # results
    "good": ("#2e8b6f", "#57b894"),
    "mixed": ("#dca63f", "#dcb55c"),
    "bad": ("#b5483f", "#df7a6f"),
    # stages of grading and terms of the reward: later ones are stronger
    "format": ("#cbd8e8", "#2f4560"),
    "interface": ("#93b4d7", "#4172a8"),
    "syntax": ("#4f86bd", "#74a6dc"),
    "tests": ("#1c4f8b", "#bcd8f7"),
    # difficulty
    "easy": ("#7cc0b3", "#2f7a72"),
    "medium": ("#36938a", "#5cb3a6"),
    "hard": ("#0f4f55", "#bfe9e2"),
    # other outcomes
    "compile": ("#8a63b8", "#b494dc"),
    "silent": ("#b9c0c8", "#5b6571"),
    "slow": ("#6b7480", "#8b96a3"),
    # lines without a fixed meaning, and compared runs
    "line0": ("#1f5fae", "#6aa9f4"),
    "line1": ("#bd7420", "#e2a24a"),
    "line2": ("#2e8b6f", "#57b894"),
    "line3": ("#8a63b8", "#b494dc"),
    "line4": ("#b5483f", "#df7a6f"),
    "line5": ("#6b7480", "#8b96a3"),
    # ends of a heat map
    "heat0": ("#edf1f5", "#232a33"),
    "heat1": ("#1c4f8b", "#bcd8f7"),
}
LINES = 6
FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
)

OUTCOMES: dict[str, tuple[str, str]] = {
    "passed": ("@good", "passed"),
    "tests_failed": ("@mixed", "tests failed"),
    "interface_mismatch": ("@bad", "interface mismatch"),
    "compile_failed": ("@compile", "compile failed"),
    "no_answer": ("@silent", "no answer"),
    "timeout": ("@slow", "timeout"),
    "rejected": ("@ink", "rejected"),
    "not_tested": ("@line0", "not tested"),
    "infrastructure_error": ("@muted", "infrastructure error"),
}
"""Outcome -> (colour role, words), in display order."""

LEVELS: dict[str, str] = {
    "no answer": "@silent",
    "refused": "@ink",
    "does not parse": "@compile",
    "wrong interface": "@bad",
    "does not elaborate": "@before",
    "times out": "@slow",
    "X on outputs": "@teacher",
    "reset wrong": "@line0",
    "off by a cycle": "@mixed",
    "wrong in most checks": "@hard",
    "wrong in some checks": "@medium",
    "wrong in corner values only": "@easy",
}
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
    """The common layout of all figures; `changes` are merged one level deep."""
    base: Spec = {
        "font": {"family": FONT, "size": 12.5, "color": "@ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 54, "r": 24, "t": 34, "b": 44},
        "xaxis": {**_AXIS, "showgrid": False},
        "yaxis": dict(_AXIS),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 12, "color": "@ink"},
            "itemclick": "toggle",
        },
        "hoverlabel": {
            "bgcolor": "@card",
            "bordercolor": "@rule",
            "font": {"color": "@ink", "size": 12},
            "namelength": -1,
        },
        "hovermode": "x unified",
        "showlegend": True,
    }
    for key, value in changes.items():
        merges = isinstance(value, dict) and isinstance(base.get(key), dict)
        base[key] = {**base[key], **value} if merges else value
    return base


_AXIS = {
    "gridcolor": "@rule",
    "linecolor": "@rule",
    "zeroline": False,
    "ticks": "",
    "automargin": True,
    "tickfont": {"color": "@muted", "size": 11.5},
    "title": {"font": {"color": "@muted", "size": 12}, "standoff": 10},
}


def axis(title: str, **changes: Any) -> Spec:
    """An axis with a title, as a change of the layout."""
    return {
        "title": {"text": title, "font": {"color": "@muted", "size": 12}, "standoff": 10},
        **changes,
    }


PERCENT = {"tickformat": ".0%", "range": [0, 1.02]}
