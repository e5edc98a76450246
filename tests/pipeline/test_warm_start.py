"""What a warm start imitates."""

from __future__ import annotations

from rtl_core.config import load_config
from rtl_core.history.records import StoredRollout
from rtl_core.pipeline.batch import Batch
from rtl_core.pipeline.examples import answers_to_imitate
from rtl_core.pipeline.warm_start import golden_response
from rtl_core.prompting.extraction import extract_answer
from rtl_core.types.problem import Problem
from rtl_core.types.rollout import Rollout
from rtl_core.types.verdict import Outcome, Verdict


def problem(**golden: str) -> Problem:
    files = {f"rtl/{name}.sv": text for name, text in golden.items()}
    return Problem(
        id="p", source="test", category="cid003", difficulty="easy", prompt="p", targets=tuple(files), harness={}, golden=files
    )  # fmt: skip


def test_a_known_good_answer_reads_back_as_its_files_in_either_form() -> None:
    one = problem(a="module a;\nendmodule\n")
    assert extract_answer(golden_response(one), one.targets).files == {"rtl/a.sv": "module a;\nendmodule\n"}
    two = problem(a='module a;\n  // "quoted"\nendmodule\n', b="module b;\nendmodule\n")
    assert extract_answer(golden_response(two), two.targets).files == two.golden


def test_whole_passing_answers_are_imitated_each_once() -> None:
    batch = Batch("warm_start", 0, 0, 0, ("p",), 5, evaluation="r/teacher/warm start 00000", sampler="teacher")
    answers = [
        ((7,), "stop", True),
        ((7,), "stop", True),
        ((8,), "stop", False),
        ((9,), "length", True),
        ((5,), "stop", True),
    ]
    for sample, (tokens, reason, passed) in enumerate(answers):
        rollout = Rollout(
            run="r", purpose="warm_start", evaluation=batch.evaluation, epoch=0, step=0, problem_id="p", sample=sample,
            prompt_P=(1, 2), tokens_T=tokens, logprobs_T=(-0.1,), stop_reason=reason, text="x", policy_step=0,
        )  # fmt: skip
        outcome = Outcome.PASSED if passed else Outcome.TESTS_FAILED
        verdict = Verdict(outcome=outcome, stages=(), executor="bubblewrap", tools={}, seed=1)
        batch.take_up([StoredRollout(rollout, verdict=verdict)])
    passing = load_config("demo", environment={})
    every = load_config("demo", ["learning.warm_start_passing_only=false"], environment={})
    assert [tokens for _, tokens in answers_to_imitate(batch, passing)] == [(7,), (5,)]
    assert [tokens for _, tokens in answers_to_imitate(batch, every)] == [(7,), (8,), (5,)]
