"""Metrics of a train step, under the community's names where there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from rtl_core.backend.base import StepResult
from rtl_core.history.records import StoredRollout
from rtl_core.learning.curriculum import difficulty_key
from rtl_core.learning.equal_difficulty import (
    SUFFIX,
    Groups,
    base_rates,
    equal_difficulty,
    stratum,
)
from rtl_core.learning.kl import FloatArray
from rtl_core.learning.spans import one_to_one
from rtl_core.reporting.evaluations import scheduled_evaluations
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import has_signal
from rtl_core.run.session import Session
from rtl_core.types.numbers import Floats
from rtl_grader.types.verdict import Stage


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Metrics of a credited batch of the student's answers and of its groups. Quarantined groups do not count."""
    problems = [p for p in batch.problem_ids if p not in batch.quarantined]
    groups = [batch.group(p) for p in problems]
    stored = [s for group in groups for s in group]
    rollouts = [s.rollout for s in stored]
    verdicts = [s.verdict for s in stored if s.verdict is not None]
    mix = Counter(_mix([s.passed for s in group]) for group in groups)
    behind = [batch.step - r.policy_step for r in rollouts]
    distinct = {(r.problem_id, r.text) for r in rollouts}
    n_own = sum(r.n_own for r in rollouts)

    def valid(stage: Stage) -> list[bool]:
        return [v.stage(stage).status == "passed" for v in verdicts]

    means: dict[str, Sequence[Any]] = {
        "env/all/reward/total": [s.reward.total for s in stored if s.reward is not None],
        "env/all/format_valid": valid(Stage.FORMAT),
        "env/all/interface_valid": valid(Stage.INTERFACE),
        "env/all/syntax_valid": valid(Stage.SYNTAX),
        "env/all/tests_passed": [v.passed for v in verdicts],
        "env/all/ac_tokens_per_turn": [r.n_own / (r.n_turns or 1) for r in rollouts],
        "env/all/truncated": [r.stop_reason == "length" for r in rollouts],
        "groups/no_signal": [not has_signal(batch, p) for p in problems],
        "staleness/mean": behind,
        "grade/cached": [v.cached for v in verdicts],
    }
    metrics: dict[str, Any] = {
        # Over all answers; the datums lack groups without signal and merge equal answers. Tokens from tools
        # have log-probability 0.
        "optim/entropy": -sum(sum(r.logprobs_T) for r in rollouts) / max(1, n_own),
        "env/all/duplicates": 1 - len(distinct) / len(rollouts),
        **{
            f"groups/{kind}": mix[kind] / len(groups)
            for kind in ("all_good", "mixed", "all_bad")
        },
        "groups/replaced": len(batch.substitutes),
        "groups/quarantined": len(batch.quarantined),
        "staleness/max": max(behind),
    }
    if doubts := [s.audit == "different" for s in stored if s.audit is not None]:
        metrics["passes/looked_at"] = len(doubts) / sum(v.passed for v in verdicts)
        means["passes/doubtful"] = doubts
    if episodes := [r for r in rollouts if r.ended is not None]:
        means |= {
            "episodes/turns": [r.n_turns for r in episodes],
            "episodes/submitted": [r.ended == "submitted" for r in episodes],
            "episodes/tokens": [r.n_own for r in episodes],
            "episodes/tool_tokens": [len(r.tokens_T) - r.n_own for r in episodes],
        }
    metrics |= {name: np.mean(values) for name, values in means.items()}
    metrics |= span_metrics(stored)
    if teacher := [s.teacher for s in stored if s.teacher is not None and s.teacher.n_tokens]:
        tokens = [t.n_tokens for t in teacher]
        names = {
            "teacher_kl": "k1_mean",
            "teacher_kl/k2": "k2_mean",
            "teacher_kl/k3": "k3_mean",
        }
        for name, mean in names.items():
            metrics[name] = np.average([getattr(t, mean) for t in teacher], weights=tokens)
    return {name: float(value) for name, value in metrics.items()}


def span_metrics(stored: Sequence[StoredRollout]) -> dict[str, float]:
    """Metrics of the answers that a teacher with other tokens read; empty without any.

    `teacher_kl/span`: nats per span; `spans/one_to_one`: share of spans with one token on both sides; `spans/unheard`:
    share of the sampled tokens in no span; `spans/unread`: share of answers without a span, which learn
    from their reward alone.
    """
    spans, heard, sampled, kl = [], 0, 0, 0.0
    for one in stored:
        if one.teacher is not None and one.teacher.reading is not None:
            spans.append(one.teacher.reading.spans_S4)
            heard += one.teacher.n_tokens
            sampled += one.rollout.n_own
            kl += one.teacher.k1_mean * one.teacher.n_tokens
    if not spans:
        return {}
    total = sum(map(len, spans))
    metrics = {
        "spans/unheard": 1 - heard / max(1, sampled),
        "spans/unread": sum(not len(one) for one in spans) / len(spans),
    }
    if total:
        metrics["teacher_kl/span"] = kl / total
        metrics["spans/one_to_one"] = sum(map(one_to_one, spans)) / total
    return metrics


def _mix(passes: list[bool]) -> str:
    if all(passes):
        return "all_good"
    return "mixed" if any(passes) else "all_bad"


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
    the step (nats), and the pass rate of the answers of the teacher or the endpoint."""
    verdicts = [s.verdict for s in batch.rollouts.values() if s.verdict is not None]
    metrics = {"warm_start/examples": float(trained.examples)}
    if verdicts:
        passed = float(np.mean([verdict.passed for verdict in verdicts]))
        metrics[f"warm_start/{batch.sampler}_passed"] = passed
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
    config, history, run, step = session.config, session.history, session.run, batch.step
    shuffled = config.curriculum.order == "shuffled"
    if shuffled or config.grading.last_stage("train", step) != "tests":
        return {}
    evaluations = [
        e.key
        for e in scheduled_evaluations(history, run)
        if e.policy == "student"
        and e.step <= step
        and (e.step == 0 or config.evaluates_after(e.step))
    ]
    weights = config.reward.weights.values()
    low, span = sum(min(weight, 0.0) for weight in weights), sum(map(abs, weights))
    rows = history.rows(
        _ANSWERS, run=run, step=step, evaluations=evaluations, low=low, span=span
    )
    last = rows[-1] if rows else {}
    if last.get("purpose") != "train" or last["step"] != step:
        return {}
    strata = _strata(session)
    passed, reward = (
        _last_rate(session, strata, rows, column) for column in ("passed", "reward")
    )
    if passed is None or reward is None:
        return {}
    return {
        f"env/all/tests_passed{SUFFIX}": passed,
        f"env/all/reward/total{SUFFIX}": low + span * reward,
    }


def _strata(session: Session) -> dict[str, int]:
    """Problem id -> its fifth of the training problems, for the problems of both splits."""
    training = sorted(map(difficulty_key, session.train))
    return {
        problem_id: stratum(difficulty_key(problem), training)
        for problem_id, problem in session.problems.items()
    }


def _last_rate(
    session: Session, strata: Mapping[str, int], rows: list[dict[str, Any]], column: str
) -> float | None:
    """Rate of the last step; None if there is nothing to compare with."""
    places = {problem.id: place for place, problem in enumerate(session.train)}
    stratum_P = [strata[problem_id] for problem_id in places]
    bases: dict[int, Floats] = {}
    steps: list[Groups] = []
    for (purpose, step), group in groupby(rows, lambda row: (row["purpose"], row["step"])):
        if purpose == "train" and session.config.grading.last_stage("train", step) != "tests":
            continue
        problems = strata if purpose == "evaluation" else places
        counted = [row for row in group if row["problem_id"] in problems]
        ids = [row["problem_id"] for row in counted]
        answers = np.array([row["answers"] for row in counted], dtype=np.float64)
        score = np.array([row[column] for row in counted], dtype=np.float64)
        # Rewards from before the weights were changed may be out of range.
        score = score.clip(0, answers)
        if purpose != "train":
            stratum_E = [strata[problem_id] for problem_id in ids]
            bases[step] = base_rates(stratum_E, score, answers)[stratum_P]
        newest = max((base for base in bases if base <= step), default=None)
        if purpose != "evaluation" and newest is not None and ids:
            numbers = [places[problem_id] for problem_id in ids]
            steps.append(Groups(bases[newest], numbers, score, answers))
    return equal_difficulty(steps)[-1] if steps else None
