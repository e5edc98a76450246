"""Runs side by side on a terminal; the page has the same tables and the curves (figures/compare.py)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from rtl_core.history.store import History
from rtl_core.reporting.blocks import Source
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.curves import curves_of
from rtl_core.reporting.evaluations import run_result
from rtl_core.reporting.figures import compare
from rtl_core.reporting.text import visible

_BARS = "▁▂▃▄▅▆▇█"


def comparison(history: History, runs: list[str]) -> Iterator[RenderableType]:
    """Tables: results, curves in brief, problems that tell the runs apart, settings that differ."""
    sources = [Source(history, run) for run in runs]
    for table in (compare.table(sources), compare.failures(sources), compare.differences(sources)):
        if table.rows:
            yield rich_table(table)
    yield curves(history, runs)
    for other in runs[1:]:
        yield apart(history, runs[0], other)


def sparkline(values: list[float], width: int = 24) -> str:
    """Values as a row of bars from their smallest to their largest."""
    if not values:
        return ""
    if len(values) > width:
        values = [float(np.mean(part)) for part in np.array_split(np.array(values), width)]
    low, high = min(values), max(values)
    span = high - low or 1.0
    return "".join(_BARS[min(7, int(8 * (v - low) / span))] for v in values)


def curves(history: History, runs: list[str]) -> RichTable:
    """First and last tenth of each curve, and its shape."""
    made = RichTable(title="Training", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("run", "what", "first tenth", "last tenth", "shape"):
        made.add_column(name, justify="right" if "tenth" in name else "left")
    for run in runs:
        for curve in curves_of(history, run):
            made.add_row(run, curve.label, *(f"{end:.3f}" for end in curve.ends), sparkline(curve.values))
    return made


def apart(history: History, first: str, other: str, most: int = 8) -> RenderableType:
    """Held-out problems on which the ends of two runs differ most."""
    made = RichTable(box=box.SIMPLE_HEAD)
    made.add_column("problem", overflow="fold")
    for run in (first, other):
        made.add_column(run, justify="right")
    a, b = (end.rates if (end := run_result(history, run).after) else {} for run in (first, other))
    apart = (problem for problem in a.keys() & b.keys() if a[problem] != b[problem])
    for problem in sorted(apart, key=lambda p: (-abs(a[p] - b[p]), p))[:most]:
        made.add_row(visible(problem), f"{a[problem]:.0%}", f"{b[problem]:.0%}")
    if not made.row_count:
        made.add_row(Text("none", style="dim"))
    # Apart from the table, whose width a title of its own would be folded to.
    return Group(Text(f"Held-out problems that tell {first} and {other} apart", style="italic"), made)
