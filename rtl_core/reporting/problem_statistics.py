"""The counts of a problem set as a page with figures, in the style of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rtl_core.reporting.blocks import Figure, Section, Table, bar, plain
from rtl_core.reporting.report import laid_out, page
from rtl_core.reporting.theme import axis, layout, line
from rtl_grader.files import replacing
from rtl_grader.problems.statistics import in_order
from rtl_grader.words import counted

_REASONS = ("left out", "broken lines")
"""What is shown as tables: their values are sentences."""


def write_page(path: Path, counts: Mapping[str, Counter[str]], name: str) -> None:
    """Write the counts of the problems `name` as a page, atomically."""
    places = {aspect: place for place, aspect in enumerate(counts)}
    figures = [
        _figure(one, counts[one], line(places[one])) for one in places if one not in _REASONS
    ]
    tables = [_table(one, counts[one]) for one in places if one in _REASONS]
    sections = [
        Section("problems", "Problems", "Numbers of problems.", laid_out(figures)),
        Section("reasons", "Not used", "Entries that are no problem here, and why.", tables),
    ]
    number = counted(counts["source"].total(), "problem")
    text = page([one for one in sections if one.blocks], headline=number, eyebrow=name)
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def _figure(aspect: str, values: Counter[str], colour: str) -> Figure:
    shown = in_order(values)
    names = [plain(name) for name in shown]
    bars = bar(aspect, list(shown.values()), names, colour, "%{x:,}", orientation="h")
    yaxis = axis("", autorange="reversed", type="category")
    form = layout(xaxis=axis("problems"), yaxis=yaxis, showlegend=False, hovermode="closest")
    height = 110 + 22 * len(shown)
    return Figure(aspect.replace(" ", "-"), f"By {aspect}", "", [bars], form, height)


def _table(aspect: str, values: Counter[str]) -> Table:
    rows = [(value, f"{number:,}") for value, number in in_order(values, 100).items()]
    title = aspect.capitalize()
    return Table(aspect.replace(" ", "-"), title, "", "reason | number:", rows)
