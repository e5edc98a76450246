"""Answers that a warm start imitates."""

import numpy as np

from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.backend.base import Datum
from rtl_core.backend.tinker.training import to_datum
from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout
from rtl_core.learning.reward import Reward
from rtl_core.prompting.extraction import extract_answer
from rtl_core.rollouts.batch import Batch
from rtl_core.rollouts.datums import algorithm_of, build_datums, credited, golden_response
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome
from tests.nouns import a_problem, a_rollout, a_verdict


def problem(**golden: str) -> Problem:
    files = {f"rtl/{name}.sv": text for name, text in golden.items()}
    return a_problem(targets=tuple(files), golden=files)


def test_a_known_good_answer_is_extracted_as_its_files_in_both_forms():
    one = problem(a="module a;\nendmodule\n")
    assert extract_answer(golden_response(one), one.targets).files == {"rtl/a.sv": "module a;\nendmodule\n"}
    two = problem(a='module a;\n  // "quoted"\nendmodule\n', b="module b;\nendmodule\n")
    assert extract_answer(golden_response(two), two.targets).files == two.golden


def test_complete_passing_answers_are_imitated_once_each():
    batch = Batch("warm_start", 0, 0, 0, ("p",), 5, sampler="teacher")
    answers = [(7, "stop", True), (7, "stop", True), (8, "stop", False), (9, "length", True), (5, "stop", True)]
    for sample, (token, reason, passed) in enumerate(answers):
        rollout = a_rollout(
            purpose="warm_start", policy="teacher", sample=sample, tokens_T=(token,), stop_reason=reason
        )
        outcome = Outcome.PASSED if passed else Outcome.TESTS_FAILED
        batch.add([StoredRollout(rollout, verdict=a_verdict(outcome), reward=Reward(total=0.5, terms={}))])

    def imitated(*overrides):
        # A control experiment for later steps has no effect here.
        settings = ["learning.permute_advantages=true", *overrides]
        algorithm = algorithm_of(load_config("demo", settings, environment={}), batch)
        found = [one for _, one in credited(batch, "p", algorithm)]
        assert {(one.reward, one.advantage) for one in found if one.counts} == {(0.5, 1.0)}
        return [tuple(datum.tokens_T) for datum in build_datums(batch, algorithm, 0.0)]

    assert imitated() == [(7,), (5,)]
    assert imitated("learning.warm_start_passing_only=false") == [(7,), (8,), (5,)]


def test_a_supervised_datum_is_shifted_by_one_and_weights_only_the_answer():
    datum = to_datum(Datum([11, 12, 13], [21, 22], WarmStart.inputs_of(2)))
    assert datum.model_input.to_ints() == [11, 12, 13, 21]
    assert datum.loss_fn_inputs["target_tokens"].to_numpy().tolist() == [12, 13, 21, 22]
    assert np.array_equal(datum.loss_fn_inputs["weights"].to_numpy(), [0.0, 0.0, 1.0, 1.0])
