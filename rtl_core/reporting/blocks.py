"""What a report is made of: sections of blocks. A block knows the SQL that its data came from."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from rtl_core.errors import HistoryError
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval


@dataclass(frozen=True)
class Statement:
    """A query as it was asked."""

    sql: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A Plotly figure: traces and layout as plain mappings, colours by role (theme.py)."""

    id: str
    title: str
    caption: str
    """What it shows and how it was computed."""
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 320
    wide: bool = False
    """Over the whole width instead of half of it."""
    sql: tuple[Statement, ...] = ()


Align = Literal["left", "right", "code"]


@dataclass(frozen=True)
class Table:
    """A table of texts; `columns` are (heading, alignment). Cells are plain text and are escaped by the page."""

    id: str
    title: str
    caption: str
    columns: Sequence[tuple[str, Align]]
    rows: Sequence[Sequence[str]]
    wide: bool = True
    sql: tuple[Statement, ...] = ()
    links: dict[int, str] = field(default_factory=dict)
    """Row -> key of a rollout that shows what the row speaks of."""


Block = Figure | Table


@dataclass(frozen=True)
class Section:
    """Blocks that answer one question."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Parts:
    """What a run is split into, to see it move: its epochs, or quarters where it has only one."""

    name: Literal["epoch", "quarter"]
    sql: str
    """The number of a row's part, from 0, by the columns `epoch` and `step`."""

    def label(self, part: int) -> str:
        return f"{self.name} {part + 1}"


class Source:
    """The history as a block sees it: asks, and remembers what it asked."""

    def __init__(self, history: History, run: str) -> None:
        self.history = history
        self.run = run
        self._asked: list[Statement] = []

    @cached_property
    def _trained(self) -> dict[str, int]:
        """How many `epochs` have trained steps, and how many `steps` there are up to the last of these (1 where there is none)."""
        sql = (
            "SELECT count(DISTINCT epoch) AS epochs, coalesce(max(step), 0) + 1 AS steps FROM steps"
            " WHERE run = $run AND status = 'trained'"
        )
        (row,) = self.history.query(sql, {"run": self.run}).to_pylist()
        return row

    def width(self, most: int = 40) -> int:
        """How many steps one point of a curve stands for, so that a run of any length has at most `most` points."""
        return -(-self._trained["steps"] // most)

    def binned(self, most: int = 40) -> str:
        """Half a sentence on what a point of a curve is."""
        width = self.width(most)
        return "one point a step" if width == 1 else f"one point per {width} steps"

    def middle(self, bin_: int) -> float:
        """The place of a bar over `width` steps on their axis."""
        return (bin_ + 0.5) * self.width() - 0.5

    @property
    def parts(self) -> Parts:
        """The parts of the run as far as it has come."""
        epochs, steps = self._trained["epochs"], self._trained["steps"]
        if epochs > 1 or steps < 4:
            return Parts("epoch", "epoch")
        return Parts("quarter", f"least(3, step * 4 // {steps})")

    def ask(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Rows of a query; `$run` and `$width` are there by themselves when the query names them."""
        if "$run" in sql:
            params.setdefault("run", self.run)
        if "$width" in sql:
            params.setdefault("width", self.width())
        self._asked.append(Statement(sql, params))
        return self.history.query(sql, params or None).to_pylist()

    def recorded(self, width: int, *names: str) -> dict[str, tuple[list[float], list[float]]]:
        """Metric -> (steps, values) of its curve with a point per `width` steps, of those that were recorded."""
        rows = self.ask(
            f"SELECT name, avg(step) AS step, avg(value) AS value FROM step_metrics WHERE run = $run"
            f" AND name IN ({', '.join(f'$m{i}' for i in range(len(names)))})"
            " GROUP BY name, step // $width ORDER BY name, step // $width",
            width=width,
            **{f"m{i}": name for i, name in enumerate(names)},
        )
        found: dict[str, tuple[list[float], list[float]]] = {}
        for r in rows:
            x, y = found.setdefault(r["name"], ([], []))
            x.append(r["step"])
            y.append(r["value"])
        return found

    def curves(self, *lines: Sequence[Any], **style: Any) -> list[dict[str, Any]]:
        """A curve of each line (metric, words, colour role, hover, perhaps a style of its own) that was recorded; `style` as in `curve`."""
        found = self.recorded(self.width(), *(line[0] for line in lines))
        return [
            curve(words, found[metric][0], found[metric][1], role, hover, **style, **dict(*own))
            for metric, words, role, hover, *own in lines
            if metric in found
        ]

    def asked(self) -> tuple[Statement, ...]:
        """The queries since the last call."""
        asked, self._asked = tuple(self._asked), []
        return asked


Subject = TypeVar("Subject", Source, list[Source])


def plain(text: object) -> str:
    """Text for a Plotly label, which reads a little HTML: nothing in it is markup."""
    return html.escape(str(text), quote=False)


def draw(subject: Subject, *builders: Callable[[Subject], Block | None]) -> list[Block]:
    """The blocks that have something to show of a run (or of several), each with the queries that it asked. One without rows or traces is
    left out."""
    sources = [subject] if isinstance(subject, Source) else subject
    found = []
    for build in builders:
        try:
            block = build(subject)
        except HistoryError as error:
            raise HistoryError(f"{build.__name__}: {error.message}", error.hint) from error
        asked = tuple(statement for source in sources for statement in source.asked())
        if block is not None and (block.data if isinstance(block, Figure) else block.rows):
            found.append(replace(block, sql=asked))
    return found


def curve(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    colour: str,
    hover: str,
    *,
    width: float = 2,
    dash: str = "solid",
    **more: Any,
) -> dict[str, Any]:
    """A line's trace, its colour by role; `hover` is how Plotly formats a value, `more` what else the trace has."""
    return {
        "type": "scatter", "mode": "lines", "name": plain(name), "x": x, "y": y,
        "line": {"color": colour, "width": width, "dash": dash}, "hovertemplate": hover, **more,
    }  # fmt: skip


def bar(name: str, x: Sequence[Any], y: Sequence[float], colour: str, hover: str, **more: Any) -> dict[str, Any]:
    """A trace of bars, as `curve` is one of a line."""
    return {
        "type": "bar", "name": name, "x": x, "y": y, "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": hover, **more,
    }  # fmt: skip


def rates(
    name: str, found: Sequence[Interval], y: Sequence[Any], colour: str, hover: str, *, size: int = 8, **more: Any
) -> dict[str, Any]:
    """A trace of points, each with its interval as a bar."""
    thin = size < 10
    bars = {
        "type": "data", "symmetric": False, "array": [i.hi - i.mean for i in found],
        "arrayminus": [i.mean - i.lo for i in found], "color": colour, "thickness": 1.3 if thin else 2.5, "width": 0 if thin else 6,
    }  # fmt: skip
    return {
        "type": "scatter", "mode": "markers", "cliponaxis": False, "name": name, "x": [i.mean for i in found], "y": y,
        "error_x": bars, "marker": {"size": size, "color": colour}, "hovertemplate": hover, **more,
    }  # fmt: skip


STACKED: dict[str, Any] = {"barmode": "stack", "bargap": 0.08, "legend": {"traceorder": "normal"}}
"""Layout of bars upon one another."""


def left_out(shown: int, total: int, what: str) -> str:
    """A sentence behind a caption where not everything is shown; nothing where it is."""
    return f" {shown} of {total} {what} are shown." if shown < total else ""


def problems_left_out(rows: list[dict[str, Any]]) -> str:
    """The same of rows, a problem each, that say how many `problems` there are."""
    return left_out(len(rows), rows[0]["problems"], "problems") if rows else ""
