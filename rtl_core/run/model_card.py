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
from rtl_core.reporting.evaluations import (
    ALL_SOURCES,
    EvaluationView,
    by_source,
    paired,
    run_result,
    view_of,
)
from rtl_core.reporting.text import paired_in_words, rate_in_words
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_grader.problems.fetch import KNOWN_SETS
from rtl_grader.prompts import TEMPLATES, build_messages
from rtl_grader.types.problem import Problem

_WORK = """
SELECT count(*) FILTER (WHERE purpose = 'train') AS answers, coalesce(sum(n_tokens), 0) AS tokens
FROM rollouts WHERE run = ? AND policy = 'student' AND evaluation IS NULL AND step <= ?
"""
_COUNTS = "SELECT split, source, count(*) AS n FROM run_problems WHERE run = ? GROUP BY ALL ORDER BY ALL"
"""Problems by split and source."""
_PLACEHOLDER = Problem(
    id="shown",
    source="",
    category="",
    difficulty="easy",
    prompt="{specification}",
    targets=("rtl/{file}",),
    harness={},
)
"""The problem for which the card shows the prompt."""


def model_card(
    history: History,
    config: RunConfig,
    state: StepState,
    *,
    merged_from: Path | None = None,
    check: str = "",
) -> str:
    """Return a model card in Markdown: training, data, results, use and limits.

    Args:
        merged_from: the folder of the base model that the adapter was merged into; None: the adapter only.
        check: result of comparing the files with what was served, in words.
    """
    run, steps = config.run.name, state.step + 1
    result = run_result(history, run)
    these = next((view for view in result.student if view.record.step == steps), None)
    (work,) = history.rows(_WORK, [run, state.step])
    counts = history.rows(_COUNTS, [run])
    licence, merged = base_licence(config, merged_from), merged_from is not None
    parts = by_source(history, these) if these else {}
    template = config.prompting.template
    return (
        _templates()
        .get_template("model_card.md.jinja")
        .render(
            config=config,
            record=history.run(run),
            steps=steps,
            merged=merged,
            check=check,
            front_matter=_front_matter(
                config, parts, licence, {row["source"] for row in counts}, merged=merged
            ).to_yaml(),
            licence=licence,
            work=work,
            these=these,
            result=result,
            gain=paired(result.before, these) if result.before and these else None,
            counts=counts,
            known_sets=KNOWN_SETS,
            shown=build_messages(_PLACEHOLDER, template)
            if template in TEMPLATES.entries
            else [],
            evaluations="\n".join(results_table(history, run)),
        )
    )


def _templates() -> Environment:
    """The templates beside this file."""
    loader = PackageLoader("rtl_core.run", ".")
    templates = Environment(
        loader=loader, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    templates.filters.update(
        g="{:g}".format, n="{:,}".format, rate=rate_in_words, paired=paired_in_words
    )
    return templates


def results_table(history: History, run: str) -> list[str]:
    """Lines of a Markdown table of a run's finished evaluations, each by source of problems if there are several."""
    evaluations = [
        (record, by_source(history, view_of(history, record)))
        for record in history.evaluations(run)
        if record.status == "done"
    ]
    template = _templates().get_template("evaluations.md.jinja")
    return template.render(evaluations=evaluations, whole=ALL_SOURCES).splitlines()


def _front_matter(
    config: RunConfig,
    parts: dict[str, EvaluationView],
    licence: str | None,
    sources: set[str],
    *,
    merged: bool,
) -> ModelCardData:
    student = config.tinker.student
    results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=KNOWN_SETS[source].repository if source in KNOWN_SETS else source,
            dataset_name=f"{source}, {part.record.split}",
            dataset_split=part.record.split,
            metric_type="pass@1",
            metric_name=f"pass@1, {part.record.kind}, 95 % interval {part.pass_at_1.lo:.3f} to {part.pass_at_1.hi:.3f}",
            metric_value=round(part.pass_at_1.mean, 4),
        )
        for source, part in parts.items()
    ]
    # A name without an owner is a local model, which the hub does not have.
    on_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", student) is not None
    return ModelCardData(
        base_model=student if on_hub else None,
        base_model_relation=None if not on_hub else "finetune" if merged else "adapter",
        library_name="transformers" if merged else "peft",
        pipeline_tag="text-generation",
        license=licence,
        datasets=sorted(
            known.repository for name, known in KNOWN_SETS.items() if name in sources
        )
        or None,
        tags=["rtl", "verilog", "reinforcement-learning", "distillation"],
        model_name=config.run.name,
        eval_results=results or None,
    )


def base_licence(config: RunConfig, folder: Path | None) -> str | None:
    """Return the hub's short name of the base model's licence, from its card or known for fetched and
    shipped models; None: unknown."""
    name = config.tinker.student
    folder = folder or config.tinker.local_models.get(name)
    if name in MODELS and folder in (None, models_folder() / name):
        return MODELS[name].licence.lower()
    if folder is None:
        return "apache-2.0" if config.tinker.is_local else None
    if folder.resolve() in [model_path(name).resolve() for name in MODEL_NAMES]:
        return "apache-2.0"
    if not (folder / "README.md").is_file():
        return None
    try:
        card = ModelCard.load(folder / "README.md", ignore_metadata_errors=True)
    except ValueError:  # no readable front matter
        return None
    licence = card.data.get("license")
    return licence if isinstance(licence, str) else None
