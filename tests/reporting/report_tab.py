"""A report in a browser's tab or on a terminal, for the tests that look at it."""

import io
import json
from pathlib import Path

from rich.console import Console

from rtl_core.history.store import History
from tests.reporting.chromium import Page


def open_whole(page: Page, path: Path) -> None:
    """Open a report in light colours, with every figure drawn."""
    page.events.clear()
    page.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "light"}])
    page.open(path)
    page.js("window.report.drawAll().then(() => true)")


def assert_quiet(page: Page) -> None:
    """No errors, nothing blocked, nothing asked of the network, nothing that a model wrote has run."""
    assert page.complaints() == []
    assert {address.split(":")[0] for address in page.requests()} <= {"file", "data", "blob"}
    assert page.js("typeof window.pwned") == "undefined"


def traces(page: Page, figure: str) -> dict[str, dict]:
    """Name -> trace of a figure as Plotly holds it, without the bands."""
    script = f"JSON.stringify(document.getElementById('plot-{figure}').data.map(({{name, x, y, z, showlegend}}) => ({{name, x, y, z, showlegend}})))"
    return {t["name"]: t for t in json.loads(page.js(script)) if not str(t["name"]).endswith("95 %")}


def cells(page: Page, table: str) -> list[list[str]]:
    """Texts of a table's body, row by row."""
    return page.js(f"[...document.querySelectorAll('#{table} tbody tr')].map(r => [...r.cells].map(c => c.innerText))")


def rows(demo: History, sql: str) -> list[dict]:
    return demo.query(sql).to_pylist()


def text_of(renderable, width: int = 160) -> str:
    """What a terminal of that width shows."""
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()
