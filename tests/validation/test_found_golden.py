"""A golden answer is found among a teacher's samples only when they pass, keep passing, and agree."""

from collections.abc import Callable

import pytest

from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict
from rtl_core.validation.found_golden import find_golden, teacher_samples, with_golden
from rtl_core.validation.level import Level
from rtl_core.validation.validate import validate_problem
from tests.nouns import a_rollout
from tests.validation.conftest import inverter

Make = Callable[..., Problem]
RIGHT, WRONG = (inverter(), inverter("4'd15 - a")), inverter("a")
ANYTHING = "pass\n"


def said(code: str) -> str:
    return f"Here it is:\n```verilog\n{code}```\n"


@pytest.fixture
def withheld(planted):
    return planted(golden=None)


def test_samples_that_pass_and_agree_give_a_golden_answer(grader, withheld):
    samples = [said(WRONG), said(RIGHT[0]), said(RIGHT[1]), "I do not know."]
    found, why = find_golden(withheld, samples, grader, (1, 2))
    assert found is not None, why
    assert "2 of 2 passing samples behave alike" in why
    record = validate_problem(
        with_golden(withheld, found, grader),
        grader,
        level=Level("full", 4, (1, 2), ("zeros",)),
        found_golden=True,
    )
    assert record.status == "fit"
    assert record.evidence["golden"]["source"] == "found"
    assert record.fingerprint == withheld.fingerprint


@pytest.mark.parametrize("samples", [[RIGHT[0]], [RIGHT[0], WRONG, WRONG], []])
def test_one_passing_sample_is_not_enough(grader, withheld, samples):
    found, why = find_golden(withheld, [said(s) for s in samples], grader, (1,))
    assert found is None
    assert "2 are needed" in why


def test_samples_that_pass_but_disagree_give_none(grader, planted):
    found, why = find_golden(planted(ANYTHING, golden=None), [said(RIGHT[0]), said(WRONG)], grader, (1,))
    assert found is None
    assert "do not agree" in why


def test_samples_that_flip_give_none(grader, planted):
    by_seed = 'import os, sys\nsys.exit(int(os.environ["COCOTB_RANDOM_SEED"]) % 2)\n'
    found, _ = find_golden(planted(by_seed, golden=None), [said(RIGHT[0]), said(RIGHT[1])], grader, (2, 1))
    assert found is None


def test_the_teachers_passing_samples_are_read_from_the_history(tmp_path, withheld):
    history = History(tmp_path / "history.duckdb")
    history.start_run(RunRecord(name="r"))
    history.record_problems("r", [(withheld, "heldout", None)])
    for policy in ("teacher", "student"):
        key = f"r/{policy}/00000"
        history.record_evaluation(EvaluationRecord(key=key, run="r", policy=policy, step=0, split="heldout"))
        rollouts = [
            a_rollout(
                purpose="evaluation", evaluation=key, epoch=-1, problem_id=withheld.id, sample=i, text=f"{policy} {i}"
            )
            for i in range(2)
        ]
        history.record_rollouts(rollouts)
        outcomes = (Outcome.PASSED, Outcome.TESTS_FAILED)
        history.record_verdicts(
            [(r.key, verdict(o), Reward(total=0.0, terms={})) for r, o in zip(rollouts, outcomes, strict=True)]
        )
    assert teacher_samples(history) == {withheld.fingerprint: ["teacher 0"]}


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(
        outcome=outcome, stages=(StageResult(stage=Stage.TESTS, status="passed"),), executor="bubblewrap", tests_total=1
    )
