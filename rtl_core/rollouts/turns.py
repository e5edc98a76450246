"""What further turns of episodes without tools bring: each turn is an answer, the first a single-shot one."""

from __future__ import annotations

import numpy as np

from rtl_core.config.episode import Bounds
from rtl_core.rollouts.batch import Batch


def passed_by_turn(batch: Batch, bounds: Bounds) -> dict[int, dict[str, float]]:
    """Turn -> problem -> share of its answers that had passed by the end of that turn; empty where turns are no answers."""
    if bounds.tools != () or not any(stored.rollout.n_turns for stored in batch.rollouts.values()):
        return {}
    turns = range(1, bounds.most_turns + 1)
    return {turn: {problem_id: _rate(batch, problem_id, turn) for problem_id in batch.problem_ids} for turn in turns}


def _rate(batch: Batch, problem_id: str, turn: int) -> float:
    group = batch.group(problem_id)
    passed = [s for s in group if s.verdict is not None and s.verdict.passed and (s.rollout.n_turns or 1) <= turn]
    return len(passed) / max(len(group), 1)


def turn_metrics(batch: Batch, bounds: Bounds) -> dict[str, float]:
    """Metrics of a step of such episodes: `turn-2/passed_by_then` and so on."""
    found = passed_by_turn(batch, bounds).items()
    return {f"turn-{turn}/passed_by_then": float(np.mean(list(rates.values()))) for turn, rates in found}
