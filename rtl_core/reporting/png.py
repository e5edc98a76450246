"""Writes the report's figures as PNG files, drawn by Plotly in a headless browser (kaleido)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rtl_core.errors import ToolMissingError
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Figure
from rtl_core.reporting.figures import sections
from rtl_core.reporting.theme import Spec, Theme, part, resolve


def write_pngs(
    history: History,
    run_names: list[str],
    folder: Path,
    theme: Theme = "light",
    own: Sequence[str] = (),
) -> list[Path]:
    """Write every figure of the runs' report to `folder` as `<figure>.png`, at twice the size for print.

    Raises ToolMissingError when kaleido or a browser is missing, HistoryError for an unknown run. `own`:
    see `sections`.
    """
    try:
        import kaleido
        from choreographer.errors import ChromeNotFoundError
    except ImportError as error:
        raise ToolMissingError(
            "PNG files need kaleido", "pip install 'rtl-distill[png]'"
        ) from error
    figures = [
        b for s in sections(history, run_names, own) for b in s.blocks if isinstance(b, Figure)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{figure.id}.png" for figure in figures]
    jobs: list[Any] = [
        {
            "fig": drawing(figure, theme),
            "path": path,
            "opts": {"format": "png", "scale": 2, **size(figure)},
        }
        for figure, path in zip(figures, paths, strict=True)
    ]
    try:
        kaleido.write_fig_from_object_sync(jobs)
    except ChromeNotFoundError as error:
        raise ToolMissingError(
            "PNG files need a browser, and none was found", "apt-get install chromium"
        ) from error
    return paths


def size(figure: Figure) -> dict[str, int]:
    """Width and height in CSS pixels, with room for the title."""
    return {"width": 1120 if figure.wide else 640, "height": figure.height + 56}


def drawing(figure: Figure, theme: Theme) -> Spec:
    """The figure as a standalone Plotly specification: colours resolved, with its title and an opaque background."""
    title = "<br>".join(textwrap.wrap(figure.title, 70))
    margin = figure.layout.get("margin", {})
    own = part(
        "png",
        **size(figure),
        margin={**margin, "t": margin.get("t", 34) + 44},
        title={"text": f"<b>{title}</b>"},
    )
    layout = {**figure.layout, **own}
    return {"data": resolve(figure.data, theme), "layout": resolve(layout, theme)}
