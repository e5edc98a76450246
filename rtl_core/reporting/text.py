"""Texts of unknown origin for people's eyes."""

from __future__ import annotations

from typing import Any


def visible(text: str) -> str:
    """Text that cannot steer a terminal: control and format characters (but newline and tab) become U+FFFD."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def cell(value: Any) -> str:
    """A database value for people."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return visible(str(value))
