"""Later turns: who gets one, what it is trained on, and what the history says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtl_core.algorithms.grpo import Grpo
from rtl_core.config import load_config
from rtl_core.history.named_queries import named_query
from rtl_core.history.records import EvaluationRecord, StoredRollout
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import build_datums, credited
from rtl_core.rollouts.turns import parents, passed_by_turn, turn_metrics
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import Outcome, Verdict


def stored(sample: int, passed: bool, reward: float, **place: Any) -> StoredRollout:
    rollout = Rollout(
        run="r",
        epoch=0,
        step=5,
        problem_id="p",
        sample=sample,
        prompt_P=(1, 2),
        tokens_T=(3, place.get("turn", 1), 5 + sample),
        logprobs_T=(-0.5, -0.25, -0.75),
        stop_reason="stop",
        text="x",
        policy_step=5,
        **{"purpose": "train", **place},
    )
    outcome = Outcome.PASSED if passed else Outcome.TESTS_FAILED
    verdict = Verdict(outcome=outcome, stages=(), executor="test")
    return StoredRollout(rollout, verdict, Reward(total=reward, terms={"tests": (1.0, reward)}))


def batch_of(*answers: StoredRollout, **more) -> Batch:
    made = Batch(purpose="train", epoch=0, step=5, policy_step=5, problem_ids=("p",), group_size=3, **more)
    made.take_up(answers)
    return made


@pytest.fixture
def batch() -> Batch:
    """Three answers, of which the first passed; the failed ones were followed up, one with success."""
    first = batch_of(stored(0, True, 1.6), stored(1, False, 0.6), stored(2, False, 0.1))
    later = {"purpose": "refinement", "turn": 2}
    first.later[2] = batch_of(
        stored(1, False, 0.6, **later),
        stored(2, True, 1.6, **later),
        before=first,
    )
    return first


def test_only_answers_that_failed_are_followed_up(batch):
    assert [one.rollout.sample for one in parents(batch, 2, "p")] == [1, 2]
    assert [one.rollout.sample for one in parents(batch, 3, "p")] == [1]


def test_each_turn_is_centred_on_its_own_and_a_later_one_is_paid_for_its_improvement(batch):
    config = load_config(
        "demo",
        ["learning.kl_weight=0.0", "learning.normalise_std=false", "evaluation.teacher=false", "refinement.turns=2"],
    )
    firsts = [one for _, one in credited(batch, "p", Grpo(config))]
    laters = [one for _, one in credited(batch.later[2], "p", Grpo(config))]
    assert [one.reward for one in firsts] == [1.6, 0.6, 0.1]
    assert [one.reward for one in laters] == pytest.approx([0.6, 2.35])
    assert [one.advantage for one in firsts] == pytest.approx(list(np.array([1.6, 0.6, 0.1]) - 2.3 / 3))
    assert [one.advantage for one in laters] == pytest.approx([-0.875, 0.875])
    assert len(build_datums(batch, Grpo(config), 0.0)) == 5


def test_rates_by_turn_count_what_passed_until_then(batch):
    assert passed_by_turn(batch) == {1: {"p": pytest.approx(1 / 3)}, 2: {"p": pytest.approx(2 / 3)}}
    metrics = turn_metrics(batch)
    assert metrics == {
        "turn-2/answers": 2.0,
        "turn-2/tests_passed": 0.5,
        "turn-2/passed_by_then": pytest.approx(2 / 3),
    }


def test_the_history_knows_turn_and_parent(tmp_path):
    history = History(tmp_path / "h.duckdb")
    key = "r/student/00000/testx2"
    again = {"purpose": "refinement"}
    before = (f"r/eval/{key}/p/1", "r/step/00005/p/0", "r/eval/step 5/turn-2/p/0")
    answers = [stored(i, i == 0, float(i == 0), evaluation=key, purpose="evaluation") for i in range(2)]
    answers.append(stored(1, True, 1.0, evaluation=key, turn=2, parent=before[0], **again))
    answers.append(stored(0, False, 0.0))
    answers.append(stored(0, False, 0.0, turn=2, parent=before[1], **again))
    answers.append(stored(0, False, 0.0, turn=3, parent=before[2], **again))
    history.record_rollouts([one.rollout for one in answers])
    history.record_verdicts([(one.rollout.key, one.verdict, one.reward) for one in answers])
    history.record_evaluation(EvaluationRecord(key=key, run="r", policy="student", step=0, split="test", status="done"))
    rows = history.query("SELECT turn, parent, purpose, base FROM rollout_turns ORDER BY base NULLS LAST, turn, sample")
    found = [tuple(row.values()) for row in rows.to_pylist()]
    assert found == [
        (1, None, "evaluation", key),
        (1, None, "evaluation", key),
        (2, f"r/eval/{key}/p/1", "evaluation", key),
        (1, None, "train", None),
        (2, "r/step/00005/p/0", "train", None),
        (3, "r/eval/step 5/turn-2/p/0", "train", None),
    ]
    known = {one.rollout.key for one in answers}
    assert {row[1] for row in found if row[1]} <= known
    turns = history.query(named_query("turns").sql, {"run": "r"}).to_pylist()
    assert [(t["turn"], t["answers"], t["passed_by_then"]) for t in turns] == [(1, 2, 0.5), (2, 1, 1.0)]
    assert [one.rollout.sample for one in history.rollouts_of("r", key)] == [0, 1]
    assert [one.rollout for one in history.rollouts_of("r", key, "refinement", turn=2)] == [answers[2].rollout]
    assert [one.rollout for one in history.rollouts_of("r", 5, "refinement", turn=3)] == [answers[5].rollout]
