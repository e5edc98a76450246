"""The model card of exported weights, from what the history holds of their run, with the front matter that the Hugging Face hub reads."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from rtl_core.config import RunConfig
from rtl_core.history.records import RunRecord, StepState
from rtl_core.history.store import History
from rtl_core.pretrained import MODELS, models_folder
from rtl_core.problems.known_sets import KNOWN_SETS
from rtl_core.prompting.messages import build_messages
from rtl_core.prompting.templates import TEMPLATES
from rtl_core.reporting.evaluations import (
    ALL_SOURCES,
    EvaluationView,
    by_source,
    evaluations_of_rhythm,
    paired,
    run_result,
    view_of,
)
from rtl_core.reporting.text import p_in_words, rate_in_words
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.types.problem import Problem

_WORK = """
SELECT count(*) FILTER (WHERE purpose = 'train') AS answers, count(*) FILTER (WHERE purpose = 'refinement') AS further,
       coalesce(sum(n_tokens), 0) AS tokens
FROM rollouts WHERE run = ? AND policy = 'student' AND evaluation IS NULL AND step <= ?
"""


def model_card(
    history: History, config: RunConfig, state: StepState, *, merged_from: Path | None = None, check: str = ""
) -> str:
    """A model card in Markdown: what was trained on what, how, with which result, how to use it, and what it is not.

    Args:
        merged_from: the folder of the base model that the adapter was merged into; None: the adapter alone.
        check: how the files were compared with what was served, in words.
    """
    record = history.run(config.run.name)
    assert record is not None
    student = config.tinker.student
    what = f"{student} with a merged LoRA adapter" if merged_from else f"a LoRA adapter for {student}"
    version = record.versions.get("rtl-distill", "")
    sections = [
        f"---\n{_front_matter(history, config, state, merged_from).to_yaml()}\n---",
        f"# {config.run.name}: {what}",
        f"Trained to write RTL by rtl-distill {version}: {state.step + 1} optimizer steps"
        f" on simulator verdicts (reward weights {_words(config.reward.weights)}; factor {config.learning.reward_weight:g}), {_teacher(config)}.",
        "## Result",
        *_result(history, config, state),
        "## Base model",
        _base(config, merged_from),
        "## Training",
        "\n".join(f"- {line}" for line in _training(history, config, record, state)),
        "## Problems",
        "\n".join(_problems(history, config.run.name)),
        "## Prompt and sampling",
        *_prompt(config),
        "## Use",
        _use(config, merged=merged_from is not None),
        *([f"The weights of these files: {check}."] if check else []),
        "## All evaluations",
        "\n".join(results_table(history, config.run.name)),
        "Graded by simulation in a sandbox; a problem passes if and only if its whole harness does.",
        "## Limits",
        "The figures hold for problems of these kinds and for these test benches. Code that passes them can still be wrong: verify"
        " it as you would any other RTL. The licences of the base model and of the problem sets apply.",
    ]
    return "\n\n".join(sections) + "\n"


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


def _of_these_weights(history: History, run: str, steps: int) -> EvaluationView | None:
    """The run's own evaluation of the student after so many steps; None where there is none."""
    own = (e for e in evaluations_of_rhythm(history, run) if e.policy == "student" and e.step == steps)
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
    # A name without an owner is of this machine, which the hub would look for in vain.
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
    """The licence of the base model by the hub's short name: as its own card has it, or known of models that were fetched or are this
    package's; None: not known."""
    folder = folder or config.tinker.local_models.get(config.tinker.student)
    name = config.tinker.student
    if name in MODELS and folder in (None, models_folder() / name):
        return MODELS[name].licence.lower()
    shipped = [model_path(name).resolve() for name in MODEL_NAMES]
    if (config.tinker.is_local and folder is None) or (folder is not None and folder.resolve() in shipped):
        return "apache-2.0"
    if folder is None or not (folder / "README.md").is_file():
        return None
    try:
        found = ModelCard.load(folder / "README.md", ignore_metadata_errors=True).data.get("license")
    except ValueError:  # no front matter that can be read
        return None
    return found if isinstance(found, str) else None


def _base(config: RunConfig, folder: Path | None) -> str:
    licence = base_licence(config, folder)
    known = f"Its licence: {licence}." if licence else "Its licence is not known here: see its own card."
    return f"`{config.tinker.student}`. {known}"


def _result(history: History, config: RunConfig, state: StepState) -> list[str]:
    """Before, these weights, and the teacher, on the held-out problems."""
    result = run_result(history, config.run.name)
    these = _of_these_weights(history, config.run.name, state.step + 1)
    if these is None:
        return [
            "These weights were not evaluated on held-out problems; the other steps of the run that were are below."
        ]
    named = [
        ("before", result.before),
        (f"after {state.step + 1} steps, these weights", these),
        ("teacher", result.teacher),
    ]
    lines = ["| policy | pass@1 [95 % interval] | right interface |", "|---|---|---|"]
    lines += [
        f"| {name} | {rate_in_words(view.pass_at_1)} | {rate_in_words(view.interface)} |"
        for name, view in named
        if view
    ]
    about = (
        f"{these.record.n_problems} held-out problems × {these.record.samples} samples; intervals are over problems."
    )
    if result.before and (gain := paired(result.before, these)):
        about += (
            f" Gain: {100 * gain.gain:+.1f} points [{100 * gain.lo:.1f}, {100 * gain.hi:.1f}], p {p_in_words(gain.p_value)},"
            " paired by problem."
        )
    return ["\n".join(lines), about]


def _training(history: History, config: RunConfig, record: RunRecord, state: StepState) -> list[str]:
    learning, sampling = config.learning, config.sampling
    (work,) = history.query(_WORK, [config.run.name, state.step]).to_pylist()
    further = f" and {work['further']:,} in further turns" if work["further"] else ""
    start = [f"started from the weights at {config.tinker.start_from}"] if config.tinker.start_from else []
    clip = f", gradients clipped to a norm of {learning.grad_clip_norm:g}" if learning.grad_clip_norm else ""
    return [
        f"{state.step + 1} steps on {work['answers']:,} answers of the student's own{further}, {work['tokens']:,} sampled tokens",
        f"algorithm {learning.algorithm}, loss {learning.loss}, groups of {sampling.group_size},"
        f" {config.curriculum.problems_per_step} problems a step, curriculum {config.curriculum.order}",
        f"LoRA rank {config.tinker.lora_rank}, Adam, learning rate {learning.learning_rate:g}"
        f" (at the last step {learning.learning_rate * learning.final_learning_rate_share:g}),"
        f" betas {learning.beta1:g} and {learning.beta2:g}{clip}, seed {config.run.seed}",
        f"teacher: {_teacher(config)}",
        *start,
        f"begun {record.created_at:%Y-%m-%d}; configuration {record.config_hash[:12]}, problems {record.problems_hash[:12]}",
        "versions: " + (", ".join(f"{name} {version}" for name, version in record.versions.items()) or "not recorded"),
    ]


def _counts(history: History, run: str) -> list[dict[str, str | int]]:
    sql = "SELECT split, source, count(*) AS n FROM run_problems WHERE run = ? GROUP BY ALL ORDER BY ALL"
    found: list[dict[str, str | int]] = history.query(sql, [run]).to_pylist()
    return found


def _problems(history: History, run: str) -> list[str]:
    lines = ["| split | source | problems | licence |", "|---|---|---|---|"]
    for row in _counts(history, run):
        known = KNOWN_SETS.get(str(row["source"]))
        licence = (
            f"[{known.repository}](https://huggingface.co/datasets/{known.repository}): {known.licence}"
            if known
            else ""
        )
        lines.append(f"| {row['split']} | {row['source']} | {row['n']} | {licence} |")
    return lines


def _prompt(config: RunConfig) -> list[str]:
    """The settings of prompts and answers, and how the template puts a problem."""
    prompting, sampling, evaluation = config.prompting, config.sampling, config.evaluation
    thinking = {None: "as the chat template does by itself", True: "on", False: "off"}[prompting.thinking]
    effort = f", reasoning effort {prompting.reasoning_effort}" if prompting.reasoning_effort else ""
    temperature, longest = evaluation.temperature or sampling.temperature, evaluation.max_tokens or sampling.max_tokens
    settings = [
        f"- template `{prompting.template}`, through the model's own chat template; thinking: {thinking}{effort}",
        f"- training: temperature {sampling.temperature:g}, top_p 1, up to {sampling.max_tokens:,} tokens; prompts of up to"
        f" {prompting.max_prompt_tokens:,} tokens",
        f"- evaluation: temperature {temperature:g}, top_p {evaluation.top_p:g}, up to {longest:,} tokens",
    ]
    if config.refinement.turns > 1:
        settings.append(
            f"- up to {config.refinement.turns} turns: an answer that fails is shown what failed and may be mended"
        )
    shown = []
    if prompting.template in TEMPLATES.entries:
        problem = Problem(
            id="shown",
            source="",
            category="",
            difficulty="easy",
            prompt="{specification}",
            targets=("rtl/{file}",),
            harness={},
        )
        turns = (f"[{turn['role']}]\n{turn['content']}" for turn in build_messages(problem, prompting.template))
        shown = ["````\n" + "\n\n".join(turns) + "\n````"]
    return ["\n".join(settings), *shown]


def _use(config: RunConfig, *, merged: bool) -> str:
    temperature = config.evaluation.temperature or config.sampling.temperature
    thinking = "" if config.prompting.thinking is None else f", enable_thinking={config.prompting.thinking}"
    load = [
        'model = AutoModelForCausalLM.from_pretrained("FOLDER", dtype="auto")',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
    ]
    if not merged:
        load = [
            "from peft import PeftModel",
            'base = AutoModelForCausalLM.from_pretrained("BASE", dtype="auto")  # see "Base model"',
            'model = PeftModel.from_pretrained(base, "FOLDER")',
            'tokenizer = AutoTokenizer.from_pretrained("BASE")',
        ]
    lines = [
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        *load,
        'messages = [{"role": "user", "content": "..."}]  # as shown above',
        f'inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"{thinking})',
        f"answer = model.generate(**inputs, do_sample=True, temperature={temperature}, top_p={config.evaluation.top_p}, top_k=0,"
        f" max_new_tokens={config.longest_answer})",
        'print(tokenizer.decode(answer[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))',
        "```",
    ]
    return "\n".join(lines)


def _teacher(config: RunConfig) -> str:
    """What the student learnt from a teacher, in words."""
    learning, section = config.learning, config.tinker
    teacher = ", ".join([section.teacher or "", *(f"{name} ({source})" for source, name in section.teachers.items())])
    if learning.self_taught:
        whose = "sampled the answer" if learning.self_weights == "current" else "it had after the warm start"
        teacher = f"itself with a hint ({learning.self_hint}) in its prompt, by the weights that {whose}"
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


def _words(weights: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in weights.items() if value)
