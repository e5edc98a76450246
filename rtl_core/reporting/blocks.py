"""The parts of a report: sections of figures and tables. Each block stores the SQL of its data."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from rtl_core.errors import HistoryError
from rtl_core.history.columns import Row
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval
from rtl_core.reporting.evaluations import RunResult, run_result
from rtl_core.reporting.text import cell
from rtl_core.reporting.theme import Spec, axis, faded, layout, part


@dataclass(frozen=True)
class Statement:
    """A query that was executed."""

    sql: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A Plotly figure: traces and layout as mappings, colours by role (theme.py)."""

    id: str
    title: str
    caption: str
    """What it shows and how it was computed."""
    data: list[Spec]
    layout: Spec
    height: int = 320
    wide: bool = False
    """Whether it takes the whole width instead of half of it."""
    sql: tuple[Statement, ...] = ()

    @property
    def drawing(self) -> Spec:
        """What the script of a page needs to draw it."""
        return {"id": self.id, "data": self.data, "layout": self.layout, "height": self.height}


Align = Literal["left", "right", "code"]


@dataclass(frozen=True)
class Table:
    """A table. Cells are plain text, which the page escapes."""

    id: str
    title: str
    caption: str
    header: str
    """The columns, separated by ` | `: a name with a colon at its end is aligned right, one in backticks is code."""
    rows: Sequence[Sequence[str]]
    wide: bool = True
    sql: tuple[Statement, ...] = ()
    links: dict[int, str] = field(default_factory=dict)
    """Row -> key of an example rollout."""

    @property
    def columns(self) -> list[tuple[str, Align]]:
        """(heading, alignment) of each column."""
        return [_column(text) for text in self.header.split(" | ")]


def _column(text: str) -> tuple[str, Align]:
    if text.endswith(":"):
        return text[:-1], "right"
    name = text.strip("`")
    return name, "left" if name == text else "code"


Block = Figure | Table


@dataclass(frozen=True)
class Section:
    """Blocks on one question."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block]


_TRAINED = """
SELECT count(DISTINCT epoch) AS epochs, coalesce(max(step), 0) + 1 AS steps FROM steps
WHERE run = $run AND status = 'trained'
"""
_RECORDED = """
SELECT name, list(step ORDER BY step) AS x, list(value ORDER BY step) AS y
FROM (SELECT name, avg(step) AS step, avg(value) AS value FROM step_metrics
WHERE run = $run AND name IN ({names}) GROUP BY name, step // $width) GROUP BY name
"""


class Source:
    """Executes the queries of a run's blocks, and records them."""

    def __init__(self, history: History, run: str) -> None:
        self.history = history
        self.run = run
        self._statements: list[Statement] = []

    @cached_property
    def _trained(self) -> dict[str, int]:
        """Number of `epochs` with trained steps, and of `steps` up to the last trained one (at least 1)."""
        (row,) = self.history.rows(_TRAINED, run=self.run)
        return row

    @cached_property
    def result(self) -> RunResult:
        """The main evaluations of the run."""
        return run_result(self.history, self.run)

    def width(self, most: int = 40) -> int:
        """Number of steps per point of a curve, so that a run of any length has at most `most` points."""
        return -(-self._trained["steps"] // most)

    def by_step(
        self,
        id_: str,
        title: str,
        caption: str,
        data: list[Spec],
        yaxis: Spec,
        most: int = 40,
        height: int = 320,
        wide: bool = False,
        **more: Any,
    ) -> Figure:
        """A figure over train steps, whose caption ends with the steps per point; `more` are changes of the layout."""
        width = self.width(most)
        whole: Spec = {"rangemode": "nonnegative"}
        if self._trained["steps"] <= 8:
            whole |= {"dtick": 1}
        caption += " One point per step." if width == 1 else f" One point per {width} steps."
        return Figure(
            id_,
            title,
            caption,
            data,
            layout(xaxis=axis("train steps", **whole), yaxis=yaxis, **more),
            height,
            wide,
        )

    @property
    def parts(self) -> tuple[str, str]:
        """The periods by which the run's change is shown: `epoch`, or `quarter` of a run with one epoch; and an SQL
        expression over the columns `epoch` and `step` for the number of a row's period, from 0."""
        epochs, steps = self._trained["epochs"], self._trained["steps"]
        if epochs > 1 or steps < 4:
            return "epoch", "epoch"
        return "quarter", f"least(3, step * 4 // {steps})"

    def ask(self, sql: str, **params: Any) -> list[Row]:
        """Rows of a query; the parameters `$run` and `$width` have defaults."""
        if "$run" in sql:
            params.setdefault("run", self.run)
        if "$width" in sql:
            params.setdefault("width", self.width())
        self._statements.append(Statement(sql, params))
        return self.history.rows(sql, params or None)

    def recorded(self, width: int, *names: str) -> dict[str, tuple[list[float], list[float]]]:
        """Mapping of each recorded metric to (steps, values), with one point per `width` steps."""
        parameters = {f"m{i}": name for i, name in enumerate(names)}
        holders = ", ".join(f"${parameter}" for parameter in parameters)
        rows = self.ask(_RECORDED.format(names=holders), width=width, **parameters)
        return {r["name"]: (r["x"], r["y"]) for r in rows}

    def curves(self, *lines: Sequence[Any], **style: Any) -> list[Spec]:
        """A curve for each recorded metric among `lines` (metric, name, colour role, hover, optional
        style); `style` as in `curve`."""
        points = self.recorded(self.width(), *(line[0] for line in lines))
        traces = []
        for metric, words, role, hover, *own in lines:
            if metric in points:
                own_style = {**style, **dict(*own)}
                traces.append(curve(words, *points[metric], role, hover, **own_style))
        return traces

    def take_statements(self) -> tuple[Statement, ...]:
        """Queries since the last call."""
        statements, self._statements = tuple(self._statements), []
        return statements


T = TypeVar("T")
Subject = TypeVar("Subject", Source, list[Source])


def plain(text: object) -> str:
    """Escape a text for a Plotly label, which interprets some HTML."""
    return html.escape(str(text), quote=False)


def draw(subject: Subject, *builders: Callable[[Subject], Block | None]) -> list[Block]:
    """Build the blocks of a run (or of several), each with its queries. Blocks without rows or traces are omitted."""
    sources = [subject] if isinstance(subject, Source) else subject
    blocks = []
    for build in builders:
        try:
            block = build(subject)
        except HistoryError as error:
            name = getattr(build, "func", build).__name__  # of a partial
            raise HistoryError(f"{name}: {error.message}", error.hint) from error
        statements = tuple(one for source in sources for one in source.take_statements())
        if block is not None and (block.data if isinstance(block, Figure) else block.rows):
            blocks.append(replace(block, sql=statements))
    return blocks


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
) -> Spec:
    """A line trace; `colour` is a role, `hover` Plotly's format of a value, `more` other properties of the trace."""
    more.setdefault(
        "mode", "lines" if len(x) > 1 else "markers"
    )  # a line of one point is invisible
    style = {"color": colour, "width": width, "dash": dash}
    return part("line", name=plain(name), x=x, y=y, line=style, hovertemplate=hover, **more)


def bar(
    name: str, x: Sequence[Any], y: Sequence[Any], colour: str, hover: str, **more: Any
) -> Spec:
    """A bar trace, with the parameters of `curve`."""
    marker = {"color": colour}
    return part("bar", name=name, x=x, y=y, marker=marker, hovertemplate=hover, **more)


def rates(
    name: str,
    intervals: Sequence[Interval],
    y: Sequence[Any],
    colour: str,
    hover: str,
    *,
    size: int = 8,
    **more: Any,
) -> Spec:
    """A trace of points with their intervals as error bars."""
    thin = size < 10
    bars = {
        "array": [i.hi - i.mean for i in intervals],
        "arrayminus": [i.mean - i.lo for i in intervals],
        "color": colour,
        "thickness": 1.3 if thin else 2.5,
        "width": 0 if thin else 6,
    }
    return part(
        "rates",
        name=name,
        x=[i.mean for i in intervals],
        y=y,
        error_x=bars,
        marker={"size": size, "color": colour},
        hovertemplate=hover,
        **more,
    )


def band(
    x: list[Any],
    intervals: list[Interval],
    name: str,
    role: str,
    *,
    markers: bool = False,
    dash: str = "solid",
    formats: tuple[str, str] = (".1%", ".0%"),
    **more: Any,
) -> list[Spec]:
    """A line with its interval as a band behind it: two traces with one legend entry. `formats` are those of
    a value and of its interval's ends, `more` other properties of the line."""
    edge = [i.hi for i in intervals] + [i.lo for i in reversed(intervals)]
    shade = part(
        "shade",
        x=[*x, *reversed(x)],
        y=edge,
        fillcolor=faded(role),
        line={"color": role},
        legendgroup=name,
        name=f"{name}, 95 %",
    )
    value, end = formats
    line = curve(
        name,
        list(x),
        [i.mean for i in intervals],
        role,
        f"%{{y:{value}}} [%{{customdata[0]:{end}}}, %{{customdata[1]:{end}}}]",
        dash=dash,
        legendgroup=name,
        mode="lines+markers" if markers or len(x) == 1 else "lines",
        marker={"size": 7},
        customdata=[[i.lo, i.hi] for i in intervals],
        **more,
    )
    return [shade, line]


def values(rows: Sequence[Row], *columns: str) -> Iterator[list[Any]]:
    """The values of each of these columns, as lists over the rows."""
    return ([row[column] for row in rows] for column in columns)


def listed(
    id_: str, title: str, caption: str, header: str, rows: Sequence[Row], wide: bool = True
) -> Table:
    """A table of the rows of a query: a cell for each column of the header, in order; further columns are not
    shown. `example`, if there is one, is the key of the rollout that a row links to."""
    table = Table(id_, title, caption, header, [], wide)
    shown = [[cell(value) for value in row.values()][: len(table.columns)] for row in rows]
    links = {i: row["example"] for i, row in enumerate(rows) if row.get("example")}
    return replace(table, rows=shown, links=links)


STACKED: Spec = {"barmode": "stack", "bargap": 0.08, "legend": {"traceorder": "normal"}}
"""Layout of stacked bars."""


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of these, evenly spread: the first and the last, and some between them."""
    if len(items) <= most:
        return list(items)
    return [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]


def left_out(rows: Sequence[Any], total: int, what: str) -> str:
    """A sentence for a caption where not everything is shown, else empty."""
    return f" {len(rows)} of {total} {what} are shown." if len(rows) < total else ""


def more(rows: Sequence[Row], what: str) -> str:
    """The same for the rows of a query that counts all of them as `total`."""
    return left_out(rows, rows[0]["total"], what) if rows else ""
