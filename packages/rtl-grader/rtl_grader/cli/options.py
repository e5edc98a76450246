"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

ExecutorName = Literal["bubblewrap", "docker"]
ExecutorOption = Annotated[ExecutorName, typer.Option(help="Where harnesses run.")]
JobsOption = Annotated[
    int, typer.Option(help="Answers to work on in parallel; 0 means one per core.", min=0)
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        help="Timeout of one service, in seconds of computing or sleeping; shorter if a right answer needed far less.",
        min=1,
        max=3600,
    ),
]
SourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="KIND[=PATH]",
        help="A problem set, e.g. cvdp=PATH; `problems sources` lists the kinds. May be repeated.",
    ),
]
