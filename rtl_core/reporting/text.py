"""Formats untrusted texts and numbers for display."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rtl_grader.words import visible

if TYPE_CHECKING:
    from rtl_core.learning.intervals import Interval, PairedResult

EQUAL_DIFFICULTY = (
    "At equal difficulty, a step counts as if it contained all training problems. The raw curve "
    "(lighter) may fall while the student improves, because"
    " the curriculum makes later steps harder. A step with only the hardest problems still dips."
)


def cell(value: Any) -> str:
    """A database value as display text."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if hasattr(value, "strftime"):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return visible(str(value))


def finite(value: Any) -> Any:
    """The same with None in place of NaN and infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def leaves(value: Any, separator: str, place: str = "") -> dict[str, Any]:
    """The values in a JSON value by `place` and the names that lead to them. Objects in a list have the names
    1, 2, ...; other lists are values. An empty object or list has none."""
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        value = dict(enumerate(value, 1))
    if not isinstance(value, dict):
        return {place: value}
    found: dict[str, Any] = {}
    for name, one in value.items():
        found |= leaves(one, separator, f"{place}{separator}{name}" if place else str(name))
    return found


def rate_in_words(rate: Interval | None) -> str:
    """`92.1 % [88.0, 95.2]`, or a dash."""
    if rate is None:
        return "–"
    mean, low, high = (100 * share for share in (rate.mean, rate.lo, rate.hi))
    return f"{mean:.1f} % [{low:.1f}, {high:.1f}]"


def figure_kind(kind: str, k: int) -> str:
    """What kind of figure pass@k is: of k answers, the harness chooses the best."""
    if k == 1:
        return kind
    return f"{k} attempts" if kind == "single attempt" else f"{kind}, {k} attempts"


BY_P = "Where they disagree, go by p: with few problems the bootstrap interval is too narrow."
"""Belongs below a gain and its test."""


def gain_in_words(test: PairedResult) -> str:
    """A gain in points with its interval, if it has one: `+3.1 [0.2, 6.4]`."""
    return f"{100 * test.gain:+z.1f}{_interval(test, 'z.1f')}"


def paired_in_words(test: PairedResult) -> str:
    """A gain with interval and p-value: `+3.1 points [+0.2, +6.4], p 0.031`."""
    p = p_in_words(test.p_value)
    return f"{100 * test.gain:+z.1f} points{_interval(test, '+z.1f')}, p {p}"


def _interval(test: PairedResult, form: str) -> str:
    if math.isnan(test.lo):
        return ""
    return f" [{100 * test.lo:{form}}, {100 * test.hi:{form}}]"


def p_in_words(p: float) -> str:
    """`<0.001`, or three decimals."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"
