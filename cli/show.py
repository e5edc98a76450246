"""`rtl-distill show`: one rollout, whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.database import DbOption, open_history

if TYPE_CHECKING:
    from rtl_core.history.records import RunRecord


def show(
    rollout: Annotated[str, typer.Argument(help="Key of a rollout, or its end where that is enough to tell it.")],
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", help="Folder or name of the tokenizer (default: the student's, as the run has it)."
        ),
    ] = None,
    db: DbOption = None,
) -> None:
    """Print a rollout: problem, answer, verdict with reasons, reward by term, KL by token.

    Examples:

        rtl-distill show demo/step/00012/adder_w8_03/2

        rtl-distill query "SELECT rollout FROM verdicts WHERE outcome = 'timeout' LIMIT 1" -o csv
    """
    from rich.console import Console

    from rtl_core.reporting.rollout import rollout_view

    history = open_history(db)
    stored = history.find_rollout(rollout)
    problems = history.query(
        "SELECT p.record FROM run_problems r JOIN problems p USING (fingerprint) WHERE r.run = $run AND r.problem_id = $problem",
        {"run": stored.rollout.run, "problem": stored.rollout.problem_id},
    ).column(0).to_pylist()  # fmt: skip
    import json

    record = history.run(stored.rollout.run)
    pieces = _pieces(record, tokenizer, stored.rollout.tokens_T) if stored.teacher else None
    console = Console()
    console.print(rollout_view(stored, json.loads(problems[0]) if problems else None, pieces))
    if stored.teacher and pieces is None:
        console.print("no tokenizer is at hand, so tokens are shown by number; name one with --tokenizer", style="dim")


def _pieces(run: RunRecord | None, tokenizer: str | None, tokens_T: tuple[int, ...]) -> list[str] | None:
    """The text of each token, or None where no tokenizer can be found on this machine."""
    from tokenizers import Tokenizer

    source = tokenizer or _tokenizer_of(run)
    if source is None:
        return None
    file = Path(source) / "tokenizer.json"
    if not file.exists():
        return _from_hub(source, tokens_T)
    found = Tokenizer.from_file(str(file))
    return [found.decode([t], skip_special_tokens=False) for t in tokens_T]


def _tokenizer_of(run: RunRecord | None) -> str | None:
    """Where the run's student has its tokenizer: a local folder, or the hub's name for it."""
    if run is None or not run.student:
        return None
    tinker = run.config.get("tinker") or {}
    local = (tinker.get("local_models") or {}).get(run.student)
    if local:
        return str(local)
    if tinker.get("base_url") == "local" and run.student in ("student", "teacher"):
        from rtl_core.tinymodels import model_path

        return str(model_path(run.student))  # type: ignore[arg-type]
    return run.student


def _from_hub(name: str, tokens_T: tuple[int, ...]) -> list[str] | None:
    """Tokens by a tokenizer that an earlier run has downloaded; nothing is downloaded here."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        return None
    return [str(found.decode([t])) for t in tokens_T]
