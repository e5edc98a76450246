"""Tokens and cost of a run so far, from the history, by the rules of cost/tokens.py.

The number of trained tokens is not derived here: it is what the train step recorded when it sent them (`StepResult` in
backend/base.py, `steps.train_tokens` in the history).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import (
    Prices,
    Tokens,
    Usage,
    as_billed,
    later_turns,
    sampled,
    scored,
    together,
    total_dollars,
)
from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.types.rollout import Purpose

# A row for each prompt of a step, evaluation or measurement. `cached`: tokens of all its prompts that the service read
# from its cache, where it told so for every answer; `own`: the masks of episodes (`Rollout.own_T`);
# `scored`: (prompt tokens that the teacher read, answer tokens) of the answers that it scored, equal answers once.
_GROUPS = """
SELECT r.policy, any_value(r.n_prompt) AS prompt, CAST(sum(r.n_prompt) AS BIGINT) AS prompts,
       any_value(p.source) AS source, any_value(t.teacher) AS scorer,
       list(r.n_tokens) AS completions,
       CASE WHEN bool_and(r.n_cached IS NOT NULL) THEN CAST(sum(r.n_cached) AS BIGINT) END AS cached,
       coalesce(list(k.own_T) FILTER (WHERE k.own_T IS NOT NULL), []) AS own,
       list_transform(coalesce(list(DISTINCT {'read': coalesce(t.n_prompt, r.n_prompt),
                                              'tokens': coalesce(len(u.tokens_U), len(k.own_T), r.n_tokens),
                                              'text': coalesce(k.tokens_T::VARCHAR, u.tokens_U::VARCHAR, r.text)})
                               FILTER (WHERE t.rollout IS NOT NULL AND coalesce(len(u.tokens_U), 1) > 0), []),
                      lambda one: [one.read, one.tokens]) AS scored
FROM rollouts r
LEFT JOIN (SELECT rollout, tokens_T, own_T FROM tokens WHERE own_T IS NOT NULL) k ON k.rollout = r.rollout
LEFT JOIN teacher_scores t ON t.rollout = r.rollout
LEFT JOIN teacher_readings u ON u.rollout = r.rollout
LEFT JOIN run_problems p ON p.run = r.run AND p.problem_id = r.problem_id
WHERE r.run = $run AND ($evaluation IS NULL OR r.evaluation = $evaluation)
  AND ($step IS NULL OR r.step = $step AND r.purpose = $purpose)
  AND ($every OR r.purpose NOT IN ('train', 'warm_start')
       OR r.step NOT IN (SELECT step FROM step_metrics WHERE run = $run AND name = 'cost/usd'))
GROUP BY r.purpose, r.policy, r.evaluation, r.step, r.problem_id, r.prompt
"""
_EVERYWHERE = {"evaluation": None, "step": None, "purpose": None, "every": True}
_TRAINED = """
SELECT coalesce(sum(train_tokens), 0) AS tokens FROM steps WHERE run = $run AND status = 'trained'
  AND ($every OR step NOT IN (SELECT step FROM step_metrics WHERE run = $run AND name = 'cost/usd'))
"""


def spent(
    history: History, run: str, config: RunConfig, *, every: bool = True
) -> dict[str, Tokens]:
    """Tokens of a run by model, including evaluations; without `every`, excluding steps whose cost is recorded.

    Samples that a crash lost before they were recorded, and repeated train steps, are not counted.
    """
    (trained,) = history.rows(_TRAINED, run=run, every=every)
    return _usage(history, config, int(trained["tokens"]), run=run, every=every)


def dollars_spent(
    history: History, run: str, config: RunConfig, prices: Prices
) -> float | None:
    """USD of a run, including evaluations: recorded costs of steps, everything else by `prices`. None where
    a price is missing."""
    rest = total_dollars(spent(history, run, config, every=False), prices)
    return None if rest is None else rest + sum(step_costs(history, run))


def spent_in_step(
    history: History,
    run: str,
    config: RunConfig,
    purpose: Purpose,
    step: int,
    train_tokens: int,
) -> dict[str, Tokens]:
    """Tokens by model of a step whose answers and scores are recorded and which trained on `train_tokens`."""
    return _usage(history, config, train_tokens, run=run, step=step, purpose=purpose)


def spent_in_evaluation(
    history: History, record: EvaluationRecord, config: RunConfig
) -> dict[str, Tokens]:
    """Tokens by model of one evaluation."""
    return _usage(history, config, 0, run=record.run, evaluation=record.key)


def _usage(
    history: History, config: RunConfig, train_tokens: int, **place: Any
) -> dict[str, Tokens]:
    """Tokens of sampling and scoring the groups that `_GROUPS` selects, and of training on `train_tokens`."""
    student = config.tinker.student
    usages: list[Usage] = [{student: Tokens(train=train_tokens)}] if train_tokens else []
    for group in history.rows(_GROUPS, **{**_EVERYWHERE, **place}):
        teacher = config.tinker.teacher_of(group["source"])
        if group["policy"] == "endpoint":  # each answer is a request of its own, billed in full
            asked = Tokens(prefill=group["prompts"], sample=sum(group["completions"]))
            usages.append({_endpoint(config): asked})
            continue
        sampler = teacher if group["policy"] == "teacher" and teacher else student
        tokens = sampled(group["prompt"], group["completions"])
        for own_T in group["own"]:
            tokens += later_turns(group["prompt"], own_T)
        usages.append({sampler: as_billed(tokens, group["cached"])})
        if group["scored"] and (scorer := group["scorer"] or teacher):
            answers: dict[int, list[int]] = {}
            for prompt, tokens in group["scored"]:
                answers.setdefault(prompt, []).append(tokens)
            usages += ({scorer: scored(prompt, tokens)} for prompt, tokens in answers.items())
    return together(usages)


def _endpoint(config: RunConfig) -> str:
    """Name in the price list of the model behind an endpoint."""
    return config.learning.warm_start_model or "endpoint"


def step_costs(history: History, run: str) -> list[float]:
    """USD of each trained step, in order."""
    sql = "SELECT value FROM step_metrics WHERE run = ? AND name = 'cost/usd' ORDER BY step"
    return history.column(sql, [run])


def cost_metrics(
    usage: Mapping[str, Tokens], config: RunConfig, prices: Prices
) -> dict[str, float]:
    """Metrics of a step: `tokens/student/sample` and so on, and `cost/usd` where every model has a price. A
    teacher for certain sources is named `teacher-SOURCE`, by the first of them, the model behind an endpoint
    `endpoint`."""
    section = config.tinker
    roles = {name: f"teacher-{source}" for source, name in reversed(section.teachers.items())}
    roles[_endpoint(config)] = "endpoint"
    roles[section.student] = "student"
    if section.teacher:
        roles[section.teacher] = "teacher"
    metrics = {
        f"tokens/{roles.get(model, model)}/{kind}": float(count)
        for model, tokens in usage.items()
        for kind, count in tokens.by_kind().items()
        if count
    }
    usd = total_dollars(usage, prices)
    return metrics if usd is None else {**metrics, "cost/usd": usd}
