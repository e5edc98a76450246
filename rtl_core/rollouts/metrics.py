"""Metrics of a train step, under the community's names where there are any."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

import numpy as np

from rtl_core.backend.base import StepResult
from rtl_core.learning.curriculum import difficulty_key
from rtl_core.learning.equal_difficulty import (
    SUFFIX,
    Floats,
    Groups,
    base_rates,
    equal_difficulty,
    stratum,
)
from rtl_core.learning.kl import FloatArray
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import has_signal
from rtl_core.rollouts.evaluation import is_due
from rtl_core.run.session import Session
from rtl_grader.types.verdict import Stage


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Metrics of a credited batch of the student's answers and of its groups. Quarantined groups do not count."""
    problems = [
        problem_id for problem_id in batch.problem_ids if problem_id not in batch.quarantined
    ]
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
        "env/all/ac_tokens_per_turn": np.mean(
            [s.rollout.n_own / (s.rollout.n_turns or 1) for s in stored]
        ),
        # Over all answers; the datums lack groups without signal and merge equal answers. Tokens from tools
        # have log-probability 0.
        "optim/entropy": -sum(sum(s.rollout.logprobs_T) for s in stored)
        / max(1, sum(s.rollout.n_own for s in stored)),
        "env/all/truncated": np.mean([s.rollout.stop_reason == "length" for s in stored]),
        "env/all/duplicates": 1
        - len({(s.rollout.problem_id, s.rollout.text) for s in stored}) / len(stored),
        **{f"groups/{kind}": mix[kind] / len(groups) for kind in ("all_good", "mixed", "all_bad")},
        "groups/no_signal": np.mean([not has_signal(batch, p) for p in problems]),
        "groups/replaced": len(batch.substitutes),
        "groups/quarantined": len(batch.quarantined),
        "staleness/mean": np.mean(behind),
        "staleness/max": max(behind),
        "grade/cached": np.mean([v.cached for v in verdicts]),
    }
    if audited := [s.audit == "different" for s in stored if s.audit is not None]:
        metrics |= {
            "passes/looked_at": len(audited) / sum(v.passed for v in verdicts),
            "passes/doubtful": np.mean(audited),
        }
    if episodes := [s.rollout for s in stored if s.rollout.ended is not None]:
        metrics |= {
            "episodes/turns": np.mean([r.n_turns for r in episodes]),
            "episodes/submitted": np.mean([r.ended == "submitted" for r in episodes]),
            "episodes/tokens": np.mean([r.n_own for r in episodes]),
            "episodes/tool_tokens": np.mean([len(r.tokens_T) - r.n_own for r in episodes]),
        }
    if teacher := [s.teacher for s in stored if s.teacher is not None]:
        tokens = sum(t.n_tokens for t in teacher)
        for name, mean in (
            ("teacher_kl", "k1_mean"),
            ("teacher_kl/k2", "k2_mean"),
            ("teacher_kl/k3", "k3_mean"),
        ):
            metrics[name] = sum(getattr(t, mean) * t.n_tokens for t in teacher) / tokens
    return {name: float(value) for name, value in metrics.items()}


def drift_metrics(sampler_T: FloatArray, trainer_T: FloatArray) -> dict[str, float]:
    """Difference between sampler and trainer on the T tokens that the policy sampled of a step's answers, in nats.

    `optim/kl_sample_train_v1`: mean of sampler − trainer log-probability; `v2`: half the mean of its square.
    """
    difference_T = sampler_T - trainer_T
    return {
        "optim/kl_sample_train_v1": float(np.mean(difference_T)),
        "optim/kl_sample_train_v2": float(np.mean(difference_T**2) / 2),
    }


def warm_start_metrics(batch: Batch, trained: StepResult) -> dict[str, float]:
    """Metrics of a supervised step: number of answers, mean negative log-probability of their tokens before
    the step (nats), and the pass rate of the teacher's answers."""
    verdicts = [s.verdict for s in batch.rollouts.values() if s.verdict is not None]
    metrics = {"warm_start/examples": float(trained.examples)}
    if verdicts:
        metrics["warm_start/teacher_passed"] = float(np.mean([v.passed for v in verdicts]))
    if trained.examples:
        metrics["warm_start/nll"] = float(-np.concatenate(trained.logprobs).mean())
    return metrics


_ANSWERS = """
SELECT r.purpose, r.step, r.problem_id, count(*) AS answers, count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
       (sum(w.total) - $low * count(*)) / $span AS reward -- scaled from 0 (smallest) to 1 (largest), like passes
FROM rollouts r LEFT JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout)
WHERE r.run = $run AND r.policy = 'student' AND (r.purpose = 'measurement' OR r.purpose = 'train' AND r.step <= $step
      OR r.purpose = 'evaluation' AND list_contains($evaluations, r.evaluation))
GROUP BY ALL HAVING count(w.rollout) = count(*) -- an incomplete group was quarantined
ORDER BY r.purpose, r.step, r.problem_id -- evaluations, measurement, train steps
"""


def equal_difficulty_metrics(session: Session, batch: Batch) -> dict[str, float]:
    """The two metrics of a step whose answers are stored. Empty if no evaluation or measurement precedes
    it, and with the order `shuffled`, whose steps have equal difficulty anyway."""
    config = session.config
    if (
        config.curriculum.order == "shuffled"
        or config.grading.last_stage("train", batch.step) != "tests"
    ):
        return {}
    own = [e for e in scheduled_evaluations(session.history, session.run) if e.policy == "student"]
    keys = [e.key for e in own if e.step <= batch.step and (e.step == 0 or is_due(config, e.step))]
    weights = config.reward.weights.values()
    low, span = sum(min(weight, 0.0) for weight in weights), sum(map(abs, weights))
    asked = {"run": session.run, "step": batch.step, "evaluations": keys, "low": low, "span": span}
    rows = session.history.query(_ANSWERS, asked).to_pylist()
    passed, reward = (_last_rate(session, rows, column) for column in ("passed", "reward"))
    if (
        passed is None
        or reward is None
        or (rows[-1]["purpose"], rows[-1]["step"]) != ("train", batch.step)
    ):
        return {}
    return {
        f"env/all/tests_passed{SUFFIX}": passed,
        f"env/all/reward/total{SUFFIX}": low + span * reward,
    }


def _last_rate(session: Session, rows: list[dict[str, Any]], column: str) -> float | None:
    """Rate of the last step; None if there is nothing to compare with."""
    difficulty = {
        problem_id: difficulty_key(problem) for problem_id, problem in session.problems.items()
    }
    places = {
        problem.id: place for place, problem in enumerate(session.usable(session.loaded.train))
    }
    training = sorted(difficulty[problem_id] for problem_id in places)
    stratum_P = [stratum(difficulty[problem_id], training) for problem_id in places]
    bases: dict[int, Floats] = {}
    steps: list[Groups] = []
    for (purpose, step), groups in groupby(rows, lambda row: (row["purpose"], row["step"])):
        if purpose == "train" and session.config.grading.last_stage("train", step) != "tests":
            continue
        found = [
            row
            for row in groups
            if row["problem_id"] in (difficulty if purpose == "evaluation" else places)
        ]
        answers, score = (
            np.array([row[name] for row in found], dtype=np.float64) for name in ("answers", column)
        )
        score = score.clip(
            0, answers
        )  # rewards from before the weights were changed may be out of range
        if purpose != "train":
            strata = [stratum(difficulty[row["problem_id"]], training) for row in found]
            bases[step] = base_rates(strata, score, answers)[stratum_P]
        newest = max((seen for seen in bases if seen <= step), default=None)
        if purpose != "evaluation" and newest is not None and found:
            steps.append(
                Groups(bases[newest], [places[row["problem_id"]] for row in found], score, answers)
            )
    return equal_difficulty(steps)[-1] if steps else None
