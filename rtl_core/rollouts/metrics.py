"""What a step measures of its batch, under the community's names where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rtl_core.backend.base import Datum, StepResult
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Tokens
from rtl_core.observe.usage import PaidGroup, usage_of
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.credit import has_signal
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Stage


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Metrics of a credited batch of the student's answers, and what the groups look like. Quarantined groups do not count."""
    problems = [problem_id for problem_id in batch.problem_ids if problem_id not in batch.quarantined]
    stored = [s for problem_id in problems for s in batch.group(problem_id)]
    verdicts = [s.verdict for s in stored if s.verdict is not None]
    groups = [[s.verdict.passed for s in batch.group(p) if s.verdict is not None] for p in problems]
    mix = Counter("all_good" if all(g) else "mixed" if any(g) else "all_bad" for g in groups)
    stages = {
        name: np.mean([v.stage(stage).status == "passed" for v in verdicts])
        for name, stage in (
            ("format_valid", Stage.FORMAT),
            ("interface_valid", Stage.INTERFACE),
            ("syntax_valid", Stage.SYNTAX),
        )
    }
    behind = [batch.step - s.rollout.policy_step for s in stored]
    metrics: dict[str, Any] = {
        "env/all/reward/total": np.mean([s.reward.total for s in stored if s.reward is not None]),
        **{f"env/all/{name}": value for name, value in stages.items()},
        "env/all/tests_passed": np.mean([v.passed for v in verdicts]),
        "env/all/ac_tokens_per_turn": np.mean([len(s.rollout.tokens_T) for s in stored]),
        "env/all/truncated": np.mean([s.rollout.stop_reason == "length" for s in stored]),
        "env/all/duplicates": 1 - len({(s.rollout.problem_id, s.rollout.text) for s in stored}) / len(stored),
        **{f"groups/{kind}": mix[kind] / len(groups) for kind in ("all_good", "mixed", "all_bad")},
        "groups/no_signal": np.mean([not has_signal(batch, p) for p in problems]),
        "groups/replaced": len(batch.substitutes),
        "groups/quarantined": len(batch.quarantined),
        "staleness/mean": np.mean(behind),
        "staleness/max": max(behind),
        "grade/cached": np.mean([v.cached for v in verdicts]),
    }
    teacher = [s.teacher for s in stored if s.teacher is not None]
    if teacher:
        tokens = sum(t.n_tokens for t in teacher)
        metrics |= {
            "teacher_kl": sum(t.k1_mean * t.n_tokens for t in teacher) / tokens,
            "teacher_kl/k2": sum(t.k2_mean * t.n_tokens for t in teacher) / tokens,
            "teacher_kl/k3": sum(t.k3_mean * t.n_tokens for t in teacher) / tokens,
        }
    return {name: float(value) for name, value in metrics.items()}


def drift_metrics(datums: Sequence[Datum], trained: StepResult) -> dict[str, float]:
    """How far trainer and sampler are apart on the action tokens of a step, in nats; nothing without datums.

    `optim/kl_sample_train_v1`: mean of sampler − trainer log-probability; `v2`: half the mean of its square; `optim/entropy`: mean of
    − sampler log-probability.
    """
    if not datums:
        return {}
    sampler = np.concatenate([datum.inputs["logprobs"] for datum in datums]).astype(np.float64)
    apart = sampler - np.concatenate(trained.logprobs)
    return {
        "optim/kl_sample_train_v1": float(np.mean(apart)),
        "optim/kl_sample_train_v2": float(np.mean(apart**2) / 2),
        "optim/entropy": float(np.mean(-sampler)),
    }


def warm_start_metrics(batch: Batch, trained: StepResult) -> dict[str, float]:
    """Metrics of a supervised step: how many answers it trained on, the mean of − log-probability of their tokens before the step (nats),
    and how many of the teacher's passed."""
    verdicts = [s.verdict for s in batch.rollouts.values() if s.verdict is not None]
    metrics = {"warm_start/examples": float(trained.examples)}
    if verdicts:
        metrics["warm_start/teacher_passed"] = float(np.mean([v.passed for v in verdicts]))
    if trained.examples:
        metrics["warm_start/nll"] = float(-np.concatenate(trained.logprobs).mean())
    return metrics


def batch_usage(
    batch: Batch, train_tokens: int, config: RunConfig, problems: Mapping[str, Problem] | None = None
) -> dict[str, Tokens]:
    """Tokens of one training batch: sampled and scored in all its turns, and the `train_tokens` that were trained on. `problems`, by id,
    tell whose teacher it was where there are several."""
    groups: dict[tuple[str, str, tuple[int, ...]], PaidGroup] = {}
    scored: set[tuple[object, ...]] = set()
    for turn in (batch, *batch.later.values()):
        for stored in turn.rollouts.values():
            rollout = stored.rollout
            place = turn.key, rollout.problem_id, rollout.prompt_P
            source = problems[rollout.problem_id].source if problems else None
            group = groups.setdefault(place, PaidGroup(turn.sampler == "teacher", len(rollout.prompt_P), source))
            group.completions.append(len(rollout.tokens_T))
            if stored.teacher is None:
                continue
            read = stored.teacher.n_prompt or len(rollout.prompt_P)
            if (text := (place, read, rollout.tokens_T)) not in scored:
                scored.add(text)
                group.scorer = stored.teacher.teacher
                group.scored.append((read, len(rollout.tokens_T)))
    return usage_of(groups.values(), train_tokens, config)
