"""Pass rate and reward of a train step at equal difficulty (learning/equal_difficulty.py), from what the history holds of the run.

All groups of the student's first answers count that were graded whole and to the tests, replaced ones and those that replaced them alike:
why a group was replaced, its answers say themselves. Supervised steps do not count; a measurement before the run counts as a step.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from rtl_core.learning.curriculum import difficulty_key
from rtl_core.learning.equal_difficulty import SUFFIX, Floats, Groups, base_rates, equal_difficulty, stratum
from rtl_core.reporting.evaluations import evaluations_of_rhythm
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.evaluation import is_due
from rtl_core.run.session import Session

_ANSWERS = """
SELECT r.purpose, r.step, r.problem_id, count(*) AS answers, count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
       (sum(w.total) - $low * count(*)) / $span AS reward -- as shares of the way from the smallest to the largest, as it were passes
FROM rollouts r LEFT JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout)
WHERE r.run = $run AND r.policy = 'student' AND (r.purpose = 'measurement' OR r.purpose = 'train' AND r.step <= $step
      OR r.purpose = 'evaluation' AND list_contains($evaluations, r.evaluation))
GROUP BY ALL HAVING count(w.rollout) = count(*) -- a group that is not whole was quarantined
ORDER BY r.purpose, r.step, r.problem_id -- evaluations, measurement, train steps
"""


def equal_difficulty_metrics(session: Session, batch: Batch) -> dict[str, float]:
    """The two metrics of a step whose answers are stored. None where neither an evaluation nor a measurement came before it, and with the
    order `shuffled`, whose steps are of equal difficulty as they are."""
    config = session.config
    if config.curriculum.order == "shuffled" or config.grading.last_stage("train", batch.step) != "tests":
        return {}
    own = [e for e in evaluations_of_rhythm(session.history, session.run) if e.policy == "student"]
    keys = [e.key for e in own if e.step <= batch.step and (e.step == 0 or is_due(config, e.step))]
    weights = config.reward.weights.values()
    low, span = sum(min(weight, 0.0) for weight in weights), sum(map(abs, weights))
    asked = {"run": session.run, "step": batch.step, "evaluations": keys, "low": low, "span": span}
    rows = session.history.query(_ANSWERS, asked).to_pylist()
    passed, reward = (_last_rate(session, rows, column) for column in ("passed", "reward"))
    if passed is None or reward is None or (rows[-1]["purpose"], rows[-1]["step"]) != ("train", batch.step):
        return {}
    return {f"env/all/tests_passed{SUFFIX}": passed, f"env/all/reward/total{SUFFIX}": low + span * reward}


def _last_rate(session: Session, rows: list[dict[str, Any]], column: str) -> float | None:
    """Rate of the last step; None without anything to compare with."""
    difficulty = {problem_id: difficulty_key(problem) for problem_id, problem in session.problems.items()}
    places = {problem.id: place for place, problem in enumerate(session.usable(session.loaded.train))}
    training = sorted(difficulty[problem_id] for problem_id in places)
    stratum_P = [stratum(difficulty[problem_id], training) for problem_id in places]
    bases: dict[int, Floats] = {}
    steps: list[Groups] = []
    for (purpose, step), groups in groupby(rows, lambda row: (row["purpose"], row["step"])):
        if purpose == "train" and session.config.grading.last_stage("train", step) != "tests":
            continue
        found = [row for row in groups if row["problem_id"] in (difficulty if purpose == "evaluation" else places)]
        answers, score = (np.array([row[name] for row in found], dtype=np.float64) for name in ("answers", column))
        score = score.clip(0, answers)  # rewards of other weights, before they were changed, may be outside
        if purpose != "train":
            strata = [stratum(difficulty[row["problem_id"]], training) for row in found]
            bases[step] = base_rates(strata, score, answers)[stratum_P]
        newest = max((seen for seen in bases if seen <= step), default=None)
        if purpose != "evaluation" and newest is not None and found:
            steps.append(Groups(bases[newest], [places[row["problem_id"]] for row in found], score, answers))
    return equal_difficulty(steps)[-1] if steps else None
