"""The student's likeliest tokens, scored by the teacher (`learning.choices_of`)."""

import asyncio

import numpy as np
import pytest

from rtl_core.backend.base import SamplingParams, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout
from rtl_core.rollouts.scoring import Scorer, _scores_of_own_choices
from tests.nouns import a_rollout

PROMPT = (40, 41, 42)
TEACHER = Weights("teacher")


@pytest.mark.parametrize("restarted", [False, True], ids=["with the sample", "after a restart"])
def test_choices_are_the_students_and_sorted_by_the_teacher(tmp_path, restarted):
    overrides = [
        f"run.directory={tmp_path}",
        f"run.history={tmp_path / 'h.duckdb'}",
        "backend.name=tests.backend.inprocess:BACKEND",
    ]

    config = load_config("demo", overrides, environment={})

    async def scored():
        async with backend_of(config).open(config, print) as backend:
            params = SamplingParams(8, 1.0, [], likeliest=6)
            (answer,) = await backend.sample(Weights(), PROMPT, 1, params, seeds=[3])
            tokens = tuple(answer.tokens_T)
            rollout = a_rollout(
                prompt_P=PROMPT, tokens_T=tokens, logprobs_T=tuple(answer.logprobs_T)
            )
            stored = StoredRollout(rollout, choices=None if restarted else answer.choices)
            scorer = Scorer(TEACHER, PROMPT, tokens, "teacher")
            scores = await _scores_of_own_choices(backend, 6, Weights(), stored, scorer)
            return answer, scores, await backend.logprobs(TEACHER, PROMPT, tokens)

    answer, scores, teacher_T = asyncio.run(scored())
    assert scores.logprobs_T == pytest.approx(teacher_T, abs=1e-4)
    assert (np.diff(scores.choices.logprobs_TK) <= 0).all()
    assert np.array_equal(scores.choices.tokens_TK, scores.own.tokens_TK)
    own = [dict(zip(*row, strict=True)) for row in zip(*answer.choices, strict=True)]
    found = [dict(zip(*row, strict=True)) for row in zip(*scores.own, strict=True)]
    assert len(found) == len(answer.tokens_T)
    for expected, row in zip(own, found, strict=True):
        assert row == pytest.approx(expected, abs=1e-4)


def test_the_trainer_reads_the_students_choices_only_for_weights_that_lag_behind():
    def learning(*more):
        return load_config("demo", ["learning.algorithm=distribution_distillation", *more], environment={}).learning  # fmt: skip

    assert (learning().sampled_choices, learning().reads_trainer) == (0, True)
    own = learning("learning.choices_of=student", "learning.teacher_choices=7")
    assert (own.sampled_choices, own.asked_choices, own.reads_trainer) == (7, 7, False)
    assert learning("learning.choices_of=student", "learning.staleness=1").reads_trainer
