"""A student that is its own teacher: which weights score, after which prompt, and that hints reach neither sampling nor training."""

import asyncio
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from rtl_core.algorithms.self_distillation import SelfDistillation
from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout, TeacherRecord
from rtl_core.history.store import History
from rtl_core.starter import starter_problems
from rtl_core.tinymodels import model_path
from tests.flows.conftest import QUICK
from tests.nouns import a_rollout

SELF = (
    "learning.algorithm=self_distillation",
    "learning.kl_weight=0.1",
    "learning.truncated=keep",
    *QUICK,
    "prompting.max_prompt_tokens=900",
    "backend.name=tests.backend.scripted:BACKEND",
)


def without_teacher(settings: list[str], folder: Path) -> str:
    """Write the demo's configuration without a teacher, which no override can remove."""
    from rtl_core.config.load import shipped_configs

    lines = shipped_configs()["demo"].read_text(encoding="utf-8").splitlines()
    file = folder / "alone.toml"
    file.write_text(
        "\n".join(line for line in lines if not line.startswith("teacher =")), encoding="utf-8"
    )
    return str(file)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_only_the_scorer_sees_the_golden_answer(small_run, tmp_path, script):
    from rtl_distill.flows.train import train

    settings = small_run(
        "own", *SELF, "learning.warm_start_steps=1", "learning.warm_start_source=golden"
    )
    asyncio.run(train(without_teacher(settings, tmp_path), settings))
    history, tokenizer = (
        History(tmp_path / "history.duckdb"),
        AutoTokenizer.from_pretrained(model_path("student")),
    )
    golden = {
        p.id: "".join((p.golden or {}).values()).strip()
        for p in starter_problems("train", 4, 0)
    }  # `small_run` trains on four
    rows = history.query(
        "SELECT r.rollout, r.problem_id, r.n_prompt, t.hint, t.n_prompt AS shown, t.teacher, r.step FROM rollouts r"
        " LEFT JOIN teacher_scores t USING (rollout) WHERE r.purpose = 'train'"
    ).to_pylist()
    assert rows
    assert all(
        row["hint"] == "golden"
        and row["teacher"] == "student"
        and row["shown"] > row["n_prompt"]
        for row in rows
    )

    # The frozen weights are the student's after the warm start and are kept until the end.
    first, *_ = history.trained_steps("own")
    assert {weights.path for weights, _, _ in script.scored} == {first.sampler_path}
    assert {weights.policy for weights, _, _ in script.scored} == {"student"}
    assert first.sampler_path is not None

    texts = [tokenizer.decode(prompt) for _, prompt, _ in script.scored]
    assert all(any(code in text for code in golden.values()) for text in texts)
    trained = [datum for loss, datum in script.trained if loss != "cross_entropy"]
    assert trained
    unhinted = {one["prompt"] for one in script.sampled}
    for datum in trained:
        assert tuple(datum.prompt_P) in unhinted
    for prompt in unhinted:
        text = tokenizer.decode(prompt)
        assert not any(code in text for code in golden.values())


@pytest.mark.slow
@pytest.mark.usefixtures("prefect")
def test_a_verdict_is_the_hint_if_none_of_the_group_passed(small_run, tmp_path, script):
    from rtl_distill.flows.train import train

    settings = small_run(
        "told",
        *SELF,
        "learning.self_hint=verdict",
        "learning.self_weights=current",
        "sampling.group_size=4",
    )
    asyncio.run(train(without_teacher(settings, tmp_path), settings))
    history = History(tmp_path / "history.duckdb")
    rows = history.query(
        "SELECT r.step, r.problem_id, v.outcome = 'passed' AS passed, t.hint FROM rollouts r JOIN verdicts v USING (rollout)"
        " LEFT JOIN teacher_scores t USING (rollout) WHERE r.purpose = 'train'"
    ).to_pylist()
    groups = defaultdict(list)
    for row in rows:
        groups[row["step"], row["problem_id"]].append(row)
    for group in groups.values():
        solved = any(row["passed"] for row in group)
        for row in group:
            assert row["hint"] == (None if row["passed"] else "passed" if solved else "verdict")
    assert {"passed", "verdict"} <= {row["hint"] for row in rows}
    paths = {state.step: state.sampler_path for state in history.trained_steps("told")}
    assert {weights.path for weights, _, _ in script.scored} == {
        None,
        *list(paths.values())[:-1],
    }


def test_without_a_hint_an_answer_has_only_its_reward():
    config = load_config("demo", ["learning.algorithm=self_distillation"], environment={})
    rollout = a_rollout(tokens_T=(2, 3), logprobs_T=(-0.5, -1.0), text="")
    alone = StoredRollout(rollout)
    taught = StoredRollout(
        rollout, teacher=TeacherRecord(rollout.key, np.array([-0.1, -2.0]), 0.0, 0.0, 0.0, 2)
    )
    own = SelfDistillation(config)
    advantages = [
        own.advantages_T(answer, 0.25, own.kl_weight_of(answer, 0.5))
        for answer in (alone, taught)
    ]
    assert advantages[0].tolist() == [0.25, 0.25]
    assert advantages[1] == pytest.approx([0.25 - 0.5 * (-0.4), 0.25 - 0.5 * 1.0])
