"""Lays out curves and stacked bars for the template that draws them as SVG (page/parts.html)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 26
MOST_POINTS = 160
"""Maximum points of a line; longer lines show the means of equal parts, each linked to the last point of its part."""


@dataclass(frozen=True)
class Point:
    """A value at a step, with its tooltip and link."""

    x: float
    y: float
    words: str
    link: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """A named curve. `colour` is a role of the palette (reporting/theme.py)."""

    name: str
    colour: str
    points: Sequence[Point]
    dashed: bool = False
    faded: bool = False


@dataclass
class Chart:
    """Lines or bars in SVG coordinates."""

    title: str
    lines: list[dict[str, object]] = field(default_factory=list)
    bars: list[dict[str, object]] = field(default_factory=list)
    x_ticks: list[tuple[float, str]] = field(default_factory=list)
    y_ticks: list[tuple[float, str]] = field(default_factory=list)


def chart(title: str, lines: Sequence[Line], percent: bool = False, steps: float = 0) -> Chart:
    """Curves over steps, on an axis that extends at least to `steps`. Points that are not finite are omitted."""
    thin = [(line, thinned([p for p in line.points if math.isfinite(p.y)])) for line in lines]
    every = [p for _, points in thin for p in points]
    made = Chart(title)
    if not every:
        return made
    x_most = max(1.0, steps, max(p.x for p in every))
    values = [v for p in every for v in (p.y, p.low, p.high) if v is not None]
    low, high = (0.0, 1.0) if percent else (min(0.0, *values), max(values))
    high = high if high > low else low + 1.0

    def across(x: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * x / x_most, 1)

    def up(y: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low), 1)

    for line, points in thin:
        if not points:
            continue
        band = [p for p in points if p.low is not None and p.high is not None]
        edges = [(p.x, p.high) for p in band] + [(p.x, p.low) for p in reversed(band)]
        made.lines.append({
            "name": line.name,
            "colour": line.colour,
            "dashed": line.dashed,
            "faded": line.faded,
            "path": " ".join(f"{across(p.x)},{up(p.y)}" for p in points),
            "band": " ".join(f"{across(x)},{up(y or 0.0)}" for x, y in edges) if len(band) > 1 else "",
            "dots": [(across(p.x), up(p.y), p.words, p.link) for p in points],
        })  # fmt: skip
    made.x_ticks = [(across(x), f"{x:g}") for x in ticks(0, x_most, 6) if x == int(x)]
    made.y_ticks = [(up(y), f"{100 * y:.0f} %" if percent else f"{y:g}") for y in ticks(low, high, 5)]
    return made


def stack(title: str, columns: Sequence[tuple[str, Sequence[tuple[str, int, str, str]]]]) -> Chart:
    """Stacked bars of shares, from (label, parts from bottom to top); a part is (colour, count, tooltip, link)."""
    made = Chart(title)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
    full = HEIGHT - TOP - BOTTOM
    for index, (label, parts) in enumerate(columns):
        total, base = sum(count for _, count, _, _ in parts) or 1, float(HEIGHT - BOTTOM)
        left = LEFT + index * slot
        for colour, count, words, link in parts:
            height = full * count / total
            base -= height
            made.bars.append({
                "x": round(left + 0.5, 2), "y": round(base, 2), "width": round(max(1.0, slot - 1), 2), "height": round(height, 2),
                "colour": colour, "words": words, "link": link,
            })  # fmt: skip
        if index % max(1, len(columns) // 6) == 0:
            made.x_ticks.append((round(left + slot / 2, 1), label))
    made.y_ticks = [(round(HEIGHT - BOTTOM - full * y, 1), f"{100 * y:.0f} %") for y in (0, 0.5, 1)]
    return made


def thinned(points: Sequence[Point]) -> list[Point]:
    """Reduce a line to at most `MOST_POINTS` points."""
    if len(points) <= MOST_POINTS:
        return list(points)
    made = []
    for indices in np.array_split(np.arange(len(points)), MOST_POINTS):
        part = points[indices[0] : indices[-1] + 1]
        mean = float(np.mean([p.y for p in part]))
        words = f"mean {mean:.3f} of steps {part[0].x:g} to {part[-1].x:g}"
        made.append(Point(part[-1].x, mean, words, part[-1].link))
    return made


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` + 1 of them."""
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]
