"""`rtl-distill check-service`: whether a server that speaks Tinker's protocol can carry a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rtl_core.backend.certify import Case, Examination, Result

STYLES = {"OK": "green", "differs": "bold red", "missing": "bold red", "not tried": "yellow"}


def check_service(
    url: Annotated[str, typer.Argument(help="The server, as in TINKER_BASE_URL: http://HOST:PORT.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME=FOLDER",
            help="A served model's folder, to compare with transformers; may be repeated.",
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="The model to train.", show_default="the first --model, else the first trainable one that is served"
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CASE", help="A case or a group, with what it needs; may be repeated."),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapters.")] = 8,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="By how much equal log-probabilities may differ in the mean, in nats; one by ten times as much.",
        ),
    ] = 0.02,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a case may take.")] = 300.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes that all cases may take.")] = 60.0,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write what was found to FILE, too.")
    ] = None,
) -> None:
    """Certify a server: hold it to everything that a run asks of Tinker's protocol, and say what a run could not do on it.

    Some fifty cases: the SDK's calls, saved weights, arithmetic that must agree, and the answers to wrong requests. With the folder of a
    served model (`--model`) its log-probabilities, the gradient of each loss and a step of AdamW are compared with transformers and
    torch. The cases train tiny adapters, sample some thousand tokens in all, and delete what they saved. The key is TINKER_API_KEY, as for
    the SDK.

    The exit code is 0 when everything that each run needs works (options that do not are told), 1 when something is missing or differs,
    2 when there is no key, or an argument is wrong.

    Examples:

        rtl-distill check-service http://127.0.0.1:10610

        rtl-distill check-service http://gpu7:8000 --model Qwen/Qwen3-8B=models/Qwen3-8B --json gpu7.json

        rtl-distill check-service http://gpu7:8000 --only resume --only faults --timeout 900
    """
    import asyncio
    import json
    import logging
    import os
    import warnings

    os.environ.setdefault("TINKER_TELEMETRY", "0")  # read when the SDK is imported
    from transformers.utils.logging import disable_progress_bar

    from rtl_core.backend.certify import examine
    from rtl_core.errors import ConfigError
    from rtl_distill.cli.console import quiet

    folders = dict(parse(text) for text in model or [])
    for name, folder in folders.items():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"--model {name}={folder}: there is no config.json in that folder")
    disable_progress_bar()
    # What they warn of has a line of its own.
    with quiet(logging.CRITICAL, "tinker", "huggingface_hub"), warnings.catch_warnings(action="ignore"):
        found = asyncio.run(
            examine(
                url, student=student, folders=folders, only=only or [], rank=rank, tolerance=tolerance, case_s=timeout,
                whole_s=60 * minutes, watcher=_Lines(),
            )
        )  # fmt: skip
    if as_json is not None:
        as_json.parent.mkdir(parents=True, exist_ok=True)
        as_json.write_text(json.dumps(found.to_json(), indent=1) + "\n")
    _show(found)
    if not found.fit:
        raise typer.Exit(1)


def parse(text: str) -> tuple[str, Path]:
    """NAME=FOLDER of `--model`."""
    from rtl_core.errors import ConfigError

    name, _, folder = text.partition("=")
    if not name or not folder:
        raise ConfigError(f"--model {text}: must be NAME=FOLDER")
    return name, Path(folder).expanduser()


class _Lines:
    """A line for each case; on a terminal the one under way is shown below them."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console()
        self._status = self._console.status("")

    def begins(self, case: Case, number: int, count: int) -> None:
        self._status.update(f"{number} of {count}: {case.name}")
        self._status.start()

    def ended(self, result: Result) -> None:
        from rich.text import Text

        self._status.stop()
        line = Text(f"{result.outcome:<10}", style=STYLES[result.outcome])
        line.append(f"{result.case.name}", style="bold").append(f": {result.found}", style="not bold default")
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()  # where the output is no terminal, too


def _show(found: Examination) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if found.lacks:
        table = Table(box=box.SIMPLE_HEAD)
        for column in ("case", "", "consequence for a run, and what was found"):
            table.add_column(column, overflow="fold")
        for one in found.lacks:
            outcome = Text(one.outcome, style=STYLES[one.outcome])
            consequence = one.case.without if one.case.needed else f"(an option) {one.case.without}"
            table.add_row(one.case.name, outcome, Text(f"{consequence}\n{one.case.promise}\nFound: {one.found}"))
        console.print(table)
    counts = {outcome: sum(one.outcome == outcome for one in found.results) for outcome in STYLES}
    words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    verdict = "everything that each run needs works" if found.fit else "no run should begin on this server"
    console.print(
        f"{found.url}, student {found.student}, SDK {found.sdk}: {words}; {verdict}", soft_wrap=True, highlight=False
    )
