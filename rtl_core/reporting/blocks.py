"""What a report is made of: sections of blocks. A block knows the SQL that its data came from."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rtl_core.history.store import History


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


class Source:
    """The history as a block sees it: asks, and remembers what it asked."""

    def __init__(self, history: History, run: str) -> None:
        self.history = history
        self.run = run
        self._asked: list[Statement] = []

    def ask(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Rows of a query; `$run` is there by itself when the query names it."""
        if "$run" in sql:
            params.setdefault("run", self.run)
        self._asked.append(Statement(sql, params))
        return self.history.query(sql, params or None).to_pylist()

    def asked(self) -> tuple[Statement, ...]:
        """The queries since the last call."""
        asked, self._asked = tuple(self._asked), []
        return asked


def plain(text: object) -> str:
    """Text for a Plotly label, which reads a little HTML: nothing in it is markup."""
    return html.escape(str(text), quote=False)


def bin_width(source: Source, most: int = 40) -> int:
    """How many steps one point of a curve stands for, so that a run of any length has at most `most` points."""
    rows = source.ask("SELECT coalesce(max(step), 0) + 1 AS steps FROM steps WHERE run = $run AND status = 'trained'")
    source.asked()
    return max(1, -(-int(rows[0]["steps"]) // most))


def binned(width: int) -> str:
    """Half a sentence on what a point of a curve is."""
    return "one point a step" if width == 1 else f"one point per {width} steps"
