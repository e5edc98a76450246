"""Export of trained weights, as an adapter or a merged model, with a model card from the history.

A merged model is first checked against what was served: it scores recorded answers of these weights, and
its log-probabilities are compared with those that the sampler reported. Summation order differs between
programs, so the figures differ slightly even for equal weights.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rtl_core.backend.base import Provider, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig
from rtl_core.errors import HistoryError, PolicyError, UserError
from rtl_core.history.records import StepState
from rtl_core.history.store import History
from rtl_core.reporting.blocks import Table
from rtl_core.reporting.evaluations import own_evaluations
from rtl_core.run.lock import lock_path, run_lock
from rtl_core.run.merging import Dtype, base_folder, dtype_of, load_model, merged, save_model
from rtl_core.run.model_card import model_card
from rtl_core.run.retention import best_steps, kept_in_run
from rtl_core.types.numbers import Floats32
from rtl_core.types.tell import Tell
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.words import counted

COMPARED = 8
"""Number of answers that are compared."""
LONGEST = 4096
"""Tokens of prompt and answer above which shorter answers are preferred."""
MOST_EXACT = 1e-4
"""Nats by which one token may differ if service and folder both compute in float32."""
_RECORDED = """
SELECT p.tokens_P AS prompt_P, t.tokens_T, t.logprobs_T, t.own_T
FROM rollouts r
JOIN tokens t USING (rollout)
JOIN prompts p USING (prompt)
LEFT JOIN evaluations e ON e.evaluation = r.evaluation
WHERE r.run = $run AND len(t.tokens_T) > 0 AND ($steps IS NULL OR r.policy = 'student' AND r.policy_step = $steps
  AND ($any OR 1 = coalesce(e.temperature, CASE WHEN r.evaluation IS NULL THEN $training ELSE $evaluation END)))
ORDER BY r.n_prompt + r.n_tokens > $longest, hash(r.rollout) LIMIT $compared
"""
MOST_ROUNDED = 0.05
"""Nats by which tokens may differ on average if one of them rounds to 16 bits or is an external service."""


@dataclass(frozen=True)
class ServedAnswer:
    """One answer as served: P prompt tokens, T tokens, the service's T log-probabilities, and which tokens
    were sampled (None: all)."""

    prompt_P: TokenIds
    tokens_T: TokenIds
    logprobs_T: Sequence[float] | Floats32
    own_T: Sequence[bool] | None = None


@dataclass(frozen=True)
class Difference:
    """Absolute differences of log-probabilities, in nats, over the tokens of some answers."""

    largest: float
    mean: float
    tokens: int
    answers: int

    def __str__(self) -> str:
        over = f"{self.tokens} tokens of {self.answers} answers"
        return f"{self.largest:.1e} nats at most, {self.mean:.1e} on average over {over}"


def recorded_answers(
    history: History, config: RunConfig, steps: int | None, *, any_temperature: bool = True
) -> list[ServedAnswer]:
    """Return a few answers of the run, always the same.

    Args:
        steps: only those that the weights after `steps` train steps sampled; None: by any weights, so
            log-probabilities must be recomputed.
        any_temperature: also use temperatures other than 1, at which some services do not report the
            model's own log-probabilities.
    """
    training, evaluation = config.sampling.temperature, config.evaluation.temperature
    rows = history.rows(
        _RECORDED,
        run=config.run.name,
        steps=steps,
        any=any_temperature,
        training=training,
        evaluation=training if evaluation is None else evaluation,
        longest=LONGEST,
        compared=COMPARED,
    )
    return [ServedAnswer(**row) for row in rows]


def difference(model: Any, served: Sequence[ServedAnswer]) -> Difference:
    """Return how much a transformers model differs from what was served."""
    import torch

    differences = []
    for answer in served:
        tokens = torch.tensor([[*answer.prompt_P, *answer.tokens_T]])
        first = len(answer.prompt_P)
        with torch.inference_mode():
            logits = model(input_ids=tokens, use_cache=False).logits[0, first - 1 : -1].float()
            all_TV = logits.log_softmax(-1)
            logprobs_T = all_TV.gather(1, tokens[0, first:, None])[:, 0]
        served_T = np.asarray(answer.logprobs_T, np.float32)
        difference_T = np.abs(logprobs_T.numpy() - served_T)
        if answer.own_T is not None:
            difference_T = difference_T[np.array(answer.own_T)]
        differences.append(difference_T)
    all_T = np.concatenate(differences)
    largest, mean = float(all_T.max()), float(all_T.mean())
    return Difference(largest, mean, len(all_T), len(served))


def require_same(measured: Difference, *, exact: bool) -> None:
    """Raise PolicyError if the weights are not those that were served. `exact`: service and model both
    compute in float32."""
    if exact:
        value, most, kind = measured.largest, MOST_EXACT, "for one token"
    else:
        value, most, kind = measured.mean, MOST_ROUNDED, "on average"
    if not value <= most:  # also for NaN
        raise PolicyError(
            "the merged model is not the one that was served: log-probabilities differ by "
            f"{measured}; rounding explains up to {most:g} {kind}",
            "nothing was written; check that the base is exactly the model that was trained "
            "(revision, tokenizer), then its dtype",
        )


async def checkpoint_table(history: History, config: RunConfig) -> Table:
    """Table of the weights that a run has on its service, also those that an interrupted attempt saved and
    no step records, with their held-out pass@1. If the service does not answer, the title says so, and the
    weights that the run keeps by its history are shown."""
    run = config.run.name
    trained, evaluations = history.trained_steps(run), own_evaluations(history, run)
    scores = best_steps(trained, evaluations, len(trained))
    steps = {state.state_path or "": state.step for state in trained}
    title = f"run {run!r}: weights on the service"
    try:
        there = set(await backend_of(config).stored(config))
    except UserError as error:
        keep = kept_in_run(trained, evaluations, config)
        there = {path for path, step in steps.items() if step in keep}
        title += f", by the history alone: {error.message}"
    rows = []
    for path in there:
        if path in steps:
            step = steps[path]
            rate = f"{scores[step].pass_at_1:.3f}" if step in scores else ""
            rows.append([str(step + 1), rate, path])
        elif match := re.fullmatch(rf".*/weights/{re.escape(run)}-(\d+)", path):
            rows.append([str(int(match[1])), "", f"{path} (of an interrupted attempt)"])
    rows.sort(key=lambda row: int(row[0]))
    return Table("", title, "", "after steps: | pass@1: | state", rows)


def choose(history: History, config: RunConfig, which: str) -> StepState:
    """Return the trained step named by `which`: `last`, `best` (by held-out pass@1), or a number of train steps.

    Raises:
        HistoryError: there is no such step.
    """
    run = config.run.name
    trained = history.trained_steps(run)
    if not trained:
        raise HistoryError(f"run {run!r} has trained no step yet")
    if which == "last":
        return trained[-1]
    by_count = {str(state.step + 1): state for state in trained}
    if which == "best":
        scores = best_steps(trained, own_evaluations(history, run), 1)
        if not scores:
            raise HistoryError(
                f"run {run!r} has evaluated none of its trained weights", "choose --step last"
            )
        which = str(next(iter(scores)) + 1)
    if which not in by_count:
        raise HistoryError(
            f"run {run!r} has no step {which!r}", f"1 to {len(trained)}, last or best"
        )
    return by_count[which]


async def _adapter(
    config: RunConfig, state: StepState, folder: Path, tell: Tell
) -> Sequence[Path]:
    """Write the adapter of a step into `folder`. Returns the files."""
    if state.state_path is None:
        raise HistoryError(f"step {state.step} of run {config.run.name!r} has no saved state")
    tell(f"the adapter after {counted(state.step + 1, 'step')}: {state.state_path}")
    name = f"{config.run.name}-{state.step + 1:06d}"
    return await backend_of(config).export(config, state.state_path, name, folder)


async def export_adapter(
    history: History, config: RunConfig, which: str, folder: Path, tell: Tell
) -> list[Path]:
    """Write the adapter of a step and its model card into `folder`. Returns the files.

    Raises:
        HistoryError: there is no such step.
        PolicyError: its weights are no longer on the service, or the folder has another README.md.
    """
    state = choose(history, config, which)
    card = folder / "README.md"
    if card.exists() and not (folder / "adapter_config.json").exists():
        raise PolicyError(
            f"{card} exists and is no model card of an adapter", "name another folder"
        )
    files = await _adapter(config, state, folder, tell)
    card.write_text(model_card(history, config, state), encoding="utf-8")
    return [*files, card]


async def export_merged(
    history: History,
    config: RunConfig,
    which: str,
    folder: Path,
    tell: Tell,
    *,
    base: Path | None = None,
    dtype: Dtype | None = None,
) -> list[Path]:
    """Merge base and adapter of a step into one transformers model in the new `folder`, after checking that
    it computes what was served.

    Args:
        base: the folder of the base model, if the configuration does not name it.
        dtype: of the weights; None: the base's own.

    Raises:
        HistoryError: there is no such step.
        PolicyError: the base is missing, the adapter does not fit it, or the result differs from what was
            served. Nothing is written then.
    """
    state = choose(history, config, which)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PolicyError(f"{folder} exists already", "name another folder, or empty it")
    provider = backend_of(config)
    source = base_folder(config, provider, base)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        adapter, whole = Path(place, "adapter"), Path(place, "merged")
        await _adapter(config, state, adapter, tell)
        embedded = provider.embedded(config)
        served = recorded_answers(history, config, state.step + 1, any_temperature=embedded)
        if not served and embedded:
            served = await _scored_now(history, config, state, provider, tell)
        exact = embedded and config.tinker.local_dtype == "float32"
        check = _merge(source, adapter, whole, dtype or dtype_of(source), served, exact=exact)
        tell(check)
        card = model_card(history, config, state, merged_from=source, check=check)
        (whole / "README.md").write_text(card, "utf-8")
        if folder.exists():
            folder.rmdir()
        whole.rename(folder)
    return sorted(file for file in folder.iterdir() if file.is_file())


def _merge(
    source: Path,
    adapter: Path,
    whole: Path,
    dtype: Dtype,
    served: Sequence[ServedAnswer],
    *,
    exact: bool,
) -> str:
    """Write the merged folder. Returns in words how much it differs from what was served; PolicyError if it
    is not the same model.

    Args:
        exact: the service computes in float32, so the merge is compared in float32 before rounding to
            `dtype`, and the folder afterwards.
    """
    model = load_model(source, "float32" if exact else dtype)
    base_difference = difference(model, served) if served else None
    model = merged(model, adapter)
    if base_difference is not None and exact:
        require_same(difference(model, served), exact=True)
    save_model(model, source, whole, dtype)
    del model  # only one model in memory at a time
    model = load_model(whole)
    if base_difference is None:
        return "not compared with what was served: the history has no answer that these weights sampled"
    measured = difference(model, served)
    require_same(measured, exact=exact and dtype == "float32")
    words = (
        f"log-probabilities in {dtype} and the served ones differ by {measured}; "
        f"those of the base model by {base_difference}"
    )
    if base_difference.mean < 2 * measured.mean:
        words += "; training changed them too little to tell whether the adapter is included"
    return words


async def _scored_now(
    history: History,
    config: RunConfig,
    state: StepState,
    provider: Provider,
    tell: Tell,
) -> list[ServedAnswer]:
    """Start the embedded service and return answers of the run, scored by the weights of a step."""
    tell(
        "no answer of these weights is in the history; the embedded service is started to score others"
    )
    weights = Weights(path=state.sampler_path)
    async with run_lock(lock_path(config), {}, tell), provider.open(config, tell) as backend:
        answers = []
        for answer in recorded_answers(history, config, None):
            logprobs_T = await backend.logprobs(weights, answer.prompt_P, answer.tokens_T)
            answers.append(replace(answer, logprobs_T=logprobs_T))
        return answers
