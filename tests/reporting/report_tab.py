"""Helpers for tests that look at a report in a browser tab or on a terminal."""

import io
import json
from pathlib import Path

from rich.console import Console

from rtl_core.history.store import History
from tests.reporting.chromium import Page


def open_whole(page: Page, path: Path) -> None:
    """Open a report in the light theme and draw all figures."""
    page.events.clear()
    page.call(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "light"}],
    )
    page.open(path)
    page.js("window.report.drawAll().then(() => true)")


def assert_quiet(page: Page) -> None:
    """Assert no errors, no blocked content, no network requests, and no executed model text."""
    assert page.complaints() == []
    assert {address.split(":")[0] for address in page.requests()} <= {"file", "data", "blob"}
    assert page.js("typeof window.pwned") == "undefined"


def traces(page: Page, figure: str) -> dict[str, dict]:
    """Mapping of name to Plotly trace of a figure, without the bands."""
    script = f"JSON.stringify(document.getElementById('plot-{figure}').data.map(({{name, x, y, z, showlegend}}) => ({{name, x, y, z, showlegend}})))"
    return {
        t.get("name"): t
        for t in json.loads(page.js(script))
        if not str(t.get("name")).endswith("95 %")
    }


def cells(page: Page, table: str) -> list[list[str]]:
    """The cell texts of a table's body, row by row."""
    return page.js(
        f"[...document.querySelectorAll('#{table} tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    )


def rows(demo: History, sql: str) -> list[dict]:
    return demo.query(sql).to_pylist()


def text_of(renderable, width: int = 160) -> str:
    """The output on a terminal of that width."""
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()
