"""A trained adapter as files, with a model card written from the history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError
from rtl_core.history.records import EvaluationRecord, StepState
from rtl_core.history.store import History
from rtl_core.reporting.evaluations import ALL_SOURCES, by_source, own_evaluations, view_of
from rtl_core.run.retention import kept, retention_of


def checkpoint_table(history: History, config: RunConfig) -> Table:
    """The trained steps whose weights are kept, with their held-out pass@1."""
    trained, evaluations = history.trained_steps(config.run.name), own_evaluations(history, config.run.name)
    scores = _scores(evaluations)
    keep = kept(trained, evaluations, retention_of(config))
    table = Table(title=f"run {config.run.name!r}: weights on the service", box=box.SIMPLE_HEAD)
    for column in ("after steps", "pass@1", "state"):
        table.add_column(column, justify="right" if column in ("after steps", "pass@1") else "left", overflow="fold")
    for state in trained:
        if state.step in keep:
            score = scores.get(state.step + 1)
            shown = "" if score is None else f"{score:.3f}"
            table.add_row(str(state.step + 1), shown, state.state_path or "")
    return table


def choose(history: History, config: RunConfig, which: str) -> StepState:
    """The trained step that `which` means: `last`, `best` (by held-out pass@1), or a number of train steps.

    Raises:
        HistoryError: there is no such step.
    """
    trained = history.trained_steps(config.run.name)
    run = config.run.name
    if not trained:
        raise HistoryError(f"run {run!r} has trained no step yet")
    if which == "last":
        return trained[-1]
    by_count = {state.step + 1: state for state in trained}
    if which == "best":
        scores = {n: score for n, score in _scores(own_evaluations(history, run)).items() if n in by_count}
        if not scores:
            raise HistoryError(f"run {run!r} has evaluated none of its trained weights", "choose --step last")
        return by_count[max(scores, key=lambda n: (scores[n], -n))]
    if not which.isdigit() or int(which) not in by_count:
        raise HistoryError(f"run {run!r} has no step {which!r}", f"1 to {len(trained)}, last or best")
    return by_count[int(which)]


async def export_adapter(
    history: History, config: RunConfig, which: str, folder: Path, tell: Callable[[str], None]
) -> list[Path]:
    """Write the adapter of a step and its model card into `folder`. Returns the files.

    Raises:
        HistoryError: there is no such step.
        PolicyError: its weights are not on the service any more.
    """
    state = choose(history, config, which)
    if state.state_path is None:
        raise HistoryError(f"step {state.step} of run {config.run.name!r} has no saved state")
    tell(f"the adapter after {state.step + 1} steps: {state.state_path}")
    name = f"{config.run.name}-{state.step + 1:06d}"
    files = await backend_of(config).export(config, state.state_path, name, folder)
    card = folder / "README.md"
    card.write_text(model_card(history, config, state), encoding="utf-8")
    return [*files, card]


def model_card(history: History, config: RunConfig, state: StepState) -> str:
    """A model card in Markdown: what was trained on what, how, with which result, and what it is not."""
    record = history.run(config.run.name)
    assert record is not None
    learning, tinker_section = config.learning, config.tinker
    counts = history.query(
        "SELECT split, source, count(*) AS n FROM run_problems WHERE run = ? GROUP BY ALL ORDER BY ALL",
        [config.run.name],
    ).to_pylist()
    lines = [
        "---",
        f"base_model: {json.dumps(tinker_section.student)}",
        "library_name: peft",
        "tags: [rtl, verilog, reinforcement-learning, distillation]",
        "---",
        "",
        f"# {config.run.name}: a LoRA adapter for {tinker_section.student}",
        "",
        f"Trained to write RTL by rtl-distill {record.versions.get('rtl-distill', '')}: {state.step + 1} optimizer steps"
        f" on simulator verdicts (reward weights {_words(config.reward.weights)}; factor {learning.reward_weight:g}), {_teacher(config)}.",
        "",
        f"- LoRA rank {tinker_section.lora_rank}, {learning.loss}, learning rate {learning.learning_rate:g}, groups of"
        f" {config.sampling.group_size}, {config.curriculum.problems_per_step} problems a step, seed {config.run.seed}",
        *([f"- started from the weights at {tinker_section.start_from}"] if tinker_section.start_from else []),
        f"- begun {record.created_at:%Y-%m-%d}; configuration {record.config_hash[:12]}, problems {record.problems_hash[:12]}",
        "",
        "## Problems",
        "",
        "| split | source | problems |",
        "|---|---|---|",
        *(f"| {row['split']} | {row['source']} | {row['n']} |" for row in counts),
        "",
        "## Held-out results",
        "",
        *results_table(history, config.run.name),
        "",
        "Graded by simulation in a sandbox; a problem passes if and only if its whole harness does.",
        "",
        "## Limits",
        "",
        "The figures hold for problems of these kinds and for these test benches. Code that passes them can still be wrong: verify"
        " it as you would any other RTL. The licence of the base model and of the problem sets apply.",
        "",
    ]
    return "\n".join(lines)


def results_table(history: History, run: str) -> list[str]:
    """The lines of a Markdown table of a run's finished evaluations, each by source of problems where there are several."""
    lines = [
        "| policy | train steps | split and conditions | source | pass@1 | 95 % interval over problems | problems × samples |",
        "|---|---|---|---|---|---|---|",
    ]
    for e in history.evaluations(run):
        if e.status != "done":
            continue
        where = ", ".join([e.split, *e.conditions])
        parts = {source: view.record for source, view in by_source(history, view_of(history, e)).items()}
        for source, r in [*parts.items(), (ALL_SOURCES, e)] if len(parts) > 1 else [(next(iter(parts), ""), e)]:
            interval = "" if r.lo is None or r.hi is None else f"{r.lo:.3f} to {r.hi:.3f}"
            lines.append(
                f"| {e.policy} | {e.step} | {where} | {source} | {r.pass_at_1:.3f} | {interval} | {r.n_problems} × {e.samples} |"
            )
    return lines


def _teacher(config: RunConfig) -> str:
    """What the student learnt from a teacher, in words."""
    learning, section = config.learning, config.tinker
    teacher = ", ".join([section.teacher or "", *(f"{name} ({source})" for source, name in section.teachers.items())])
    parts = []
    if learning.uses_kl:
        weight = f"λ = {learning.kl_weight:g}"
        if learning.kl_schedule == "target":
            weight = f"λ from {learning.kl_weight:g} on, held to a KL of {learning.kl_target:g} nats per token"
        elif learning.kl_follows_schedule:
            weight = f"λ from {learning.kl_weight:g} to {learning.final_kl_weight:g}, {learning.kl_schedule}"
        parts.append(f"on-policy distillation from {teacher} ({weight})")
    if learning.imitates_teacher:
        parts.append(f"a warm start of {learning.warm_start_steps} steps on answers of {teacher}")
    return ", ".join(parts) or "no teacher"


def _words(weights: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in weights.items() if value)


def _scores(evaluations: list[EvaluationRecord]) -> dict[int, Any]:
    """Number of train steps -> held-out pass@1 of the student."""
    return {
        e.step: e.pass_at_1
        for e in evaluations
        if e.policy == "student" and e.status == "done" and e.pass_at_1 is not None
    }
