"""The model card of exported weights, from the run's history, with the front matter that the Hugging Face hub reads."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, PackageLoader

from rtl_core.config import RunConfig
from rtl_core.history.records import StepState
from rtl_core.history.store import History
from rtl_core.pretrained import MODELS, models_folder
from rtl_core.problems.fetch import KNOWN_SETS
from rtl_core.prompting.templates import TEMPLATES, Message, build_messages
from rtl_core.reporting.evaluations import (
    ALL_SOURCES,
    EvaluationView,
    by_source,
    paired,
    run_result,
    scheduled_evaluations,
    view_of,
)
from rtl_core.reporting.text import p_in_words, rate_in_words
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.types.problem import Problem

_WORK = """
SELECT count(*) FILTER (WHERE purpose = 'train') AS answers, coalesce(sum(n_tokens), 0) AS tokens
FROM rollouts WHERE run = ? AND policy = 'student' AND evaluation IS NULL AND step <= ?
"""


def model_card(
    history: History, config: RunConfig, state: StepState, *, merged_from: Path | None = None, check: str = ""
) -> str:
    """Return a model card in Markdown: training, data, results, use and limits.

    Args:
        merged_from: the folder of the base model that the adapter was merged into; None: the adapter only.
        check: result of comparing the files with what was served, in words.
    """
    run = config.run.name
    record, steps = history.run(run), state.step + 1
    assert record is not None
    result, these = run_result(history, run), _of_these_weights(history, run, steps)
    compared = ("before", result.before), (f"after {steps} steps, these weights", these), ("teacher", result.teacher)
    (work,) = history.query(_WORK, [run, state.step]).to_pylist()
    loader = PackageLoader("rtl_core.run", ".")
    templates = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    templates.filters.update(g="{:g}".format, n="{:,}".format, rate=rate_in_words, p=p_in_words)
    return templates.get_template("model_card.md.jinja").render(
        config=config,
        record=record,
        student=config.tinker.student,
        learning=config.learning,
        sampling=config.sampling,
        prompting=config.prompting,
        evaluation=config.evaluation,
        temperature=config.evaluation.temperature or config.sampling.temperature,
        steps=steps,
        merged=merged_from is not None,
        check=check,
        front_matter=_front_matter(history, config, state, merged_from).to_yaml(),
        reward_weights=", ".join(f"{name} {value:g}" for name, value in config.reward.weights.items() if value),
        teacher=_teacher(config),
        licence=base_licence(config, merged_from),
        work=work,
        these=these,
        compared=compared,
        gain=paired(result.before, these) if result.before and these else None,
        counts=_counts(history, run),
        known_sets=KNOWN_SETS,
        shown=_turns(config.prompting.template),
        evaluations="\n".join(results_table(history, run)),
    )


def results_table(history: History, run: str) -> list[str]:
    """Lines of a Markdown table of a run's finished evaluations, each by source of problems if there are several."""
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


def _of_these_weights(history: History, run: str, steps: int) -> EvaluationView | None:
    """Return the run's own evaluation of the student after `steps` steps; None if there is none."""
    own = (e for e in scheduled_evaluations(history, run) if e.policy == "student" and e.step == steps)
    return next((view_of(history, e) for e in own), None)


def _front_matter(history: History, config: RunConfig, state: StepState, merged_from: Path | None) -> ModelCardData:
    run, student = config.run.name, config.tinker.student
    view = _of_these_weights(history, run, state.step + 1)
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=KNOWN_SETS[source].repository if source in KNOWN_SETS else source,
            dataset_name=f"{source}, {part.record.split}",
            dataset_split=part.record.split,
            metric_type="pass@1",
            metric_name=f"pass@1, 95 % interval {part.pass_at_1.lo:.3f} to {part.pass_at_1.hi:.3f}",
            metric_value=round(part.pass_at_1.mean, 4),
        )
        for source, part in (by_source(history, view).items() if view else ())
    ]
    sources = {str(row["source"]) for row in _counts(history, run)}
    # A name without an owner is a local model, which the hub does not have.
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", student) is not None
    return ModelCardData(
        base_model=student if on_hub else None,
        base_model_relation=None if not on_hub else "finetune" if merged_from else "adapter",
        library_name="transformers" if merged_from else "peft",
        pipeline_tag="text-generation",
        license=base_licence(config, merged_from),
        datasets=sorted(KNOWN_SETS[source].repository for source in sources & set(KNOWN_SETS)) or None,
        tags=["rtl", "verilog", "reinforcement-learning", "distillation"],
        model_name=run,
        eval_results=results or None,
    )


def base_licence(config: RunConfig, folder: Path | None) -> str | None:
    """Return the hub's short name of the base model's licence, from its card or known for fetched and shipped models; None: unknown."""
    name = config.tinker.student
    folder = folder or config.tinker.local_models.get(name)
    if name in MODELS and folder in (None, models_folder() / name):
        return MODELS[name].licence.lower()
    shipped = [model_path(name).resolve() for name in MODEL_NAMES]
    if (config.tinker.is_local and folder is None) or (folder is not None and folder.resolve() in shipped):
        return "apache-2.0"
    if folder is None or not (folder / "README.md").is_file():
        return None
    try:
        found = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.get("license")
    except ValueError:  # no readable front matter
        return None
    return found if isinstance(found, str) else None


def _teacher(config: RunConfig) -> str:
    """How the student learned from a teacher, in words."""
    learning, section = config.learning, config.tinker
    teacher = ", ".join([section.teacher or "", *(f"{name} ({source})" for source, name in section.teachers.items())])
    if learning.self_taught:
        which = "that sampled the answer" if learning.self_weights == "current" else "after the warm start"
        teacher = f"itself with a hint ({learning.self_hint}) in its prompt, with the weights {which}"
    parts = []
    if learning.uses_kl:
        weight = f"λ = {learning.kl_weight:g}"
        if learning.kl_schedule == "target":
            weight = f"λ from {learning.kl_weight:g} on, held to a KL of {learning.kl_target:g} nats per token"
        elif learning.kl_follows_schedule:
            weight = f"λ from {learning.kl_weight:g} to {learning.final_kl_weight:g}, {learning.kl_schedule}"
        parts.append(f"on-policy distillation from {teacher} ({weight})")
    if learning.imitates_teacher:
        parts.append(
            f"a warm start of {learning.warm_start_steps} steps of {config.problems_of_step(0)} problems on answers of {teacher}"
        )
    return ", ".join(parts) or "no teacher"


def _counts(history: History, run: str) -> list[dict[str, str | int]]:
    """Problems by split and source."""
    sql = "SELECT split, source, count(*) AS n FROM run_problems WHERE run = ? GROUP BY ALL ORDER BY ALL"
    found: list[dict[str, str | int]] = history.query(sql, [run]).to_pylist()
    return found


def _turns(template: str) -> list[Message]:
    """Return a template's messages for a placeholder problem; empty if the template is not registered here."""
    if template not in TEMPLATES.entries:
        return []
    problem = Problem(
        id="shown",
        source="",
        category="",
        difficulty="easy",
        prompt="{specification}",
        targets=("rtl/{file}",),
        harness={},
    )
    return build_messages(problem, template)
