"""A golden answer is found among a teacher's samples only if they pass under every seed and agree."""

import pytest

from rtl_core.history.records import EvaluationRecord, RunRecord
from rtl_core.history.store import History
from rtl_core.learning.reward import Reward
from rtl_core.rollouts.survey import teacher_samples
from rtl_grader.types.verdict import Outcome
from rtl_grader.validation.found_golden import find_golden, with_golden
from rtl_grader.validation.level import Level
from rtl_grader.validation.validate import validate_problem
from tests.nouns import a_rollout, a_verdict
from tests.validation.conftest import HONEST, inverter

RIGHT, ALSO_RIGHT, WRONG = (
    f"Here it is:\n```verilog\n{inverter(y)}```\n" for y in ("~a", "4'd15 - a", "a")
)


@pytest.fixture
def withheld(planted):
    return planted(golden=None)


def test_samples_that_pass_and_agree_give_a_golden_answer(grader, withheld):
    samples = [WRONG, RIGHT, ALSO_RIGHT, "I do not know."]
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


BY_SEED = 'import os, sys\nsys.exit(int(os.environ["COCOTB_RANDOM_SEED"]) % 2)\n'


@pytest.mark.parametrize(
    ("harness", "samples", "seeds", "reason"),
    [
        (HONEST, [RIGHT], (1,), "2 are needed"),
        (HONEST, [RIGHT, WRONG, WRONG], (1,), "2 are needed"),
        (HONEST, [], (1,), "2 are needed"),
        ("pass\n", [RIGHT, WRONG], (1,), "do not agree"),
        (BY_SEED, [RIGHT, ALSO_RIGHT], (2, 1), "2 are needed"),
    ],
    ids=["one sample", "one passes", "no sample", "they differ", "they flip"],
)
def test_other_samples_give_none(grader, planted, harness, samples, seeds, reason):
    found, why = find_golden(planted(harness, golden=None), samples, grader, seeds)
    assert found is None
    assert reason in why


def test_the_teachers_passing_samples_are_read_from_the_history(tmp_path, withheld):
    history = History(tmp_path / "history.duckdb")
    history.start_run(RunRecord(name="r"))
    history.record_problems("r", [(withheld, "heldout", None)])
    for policy in ("teacher", "student"):
        key = f"r/{policy}/00000"
        history.record_evaluation(
            EvaluationRecord(key=key, run="r", policy=policy, step=0, split="heldout")
        )
        rollouts = [
            a_rollout(
                purpose="evaluation",
                evaluation=key,
                epoch=-1,
                problem_id=withheld.id,
                sample=i,
                policy=policy,
                text=f"{policy} {i}",
            )
            for i in range(2)
        ]
        history.record_rollouts(rollouts)
        outcomes = (Outcome.PASSED, Outcome.TESTS_FAILED)
        history.record_verdicts(
            [
                (r.key, a_verdict(o), Reward(total=0.0, terms={}))
                for r, o in zip(rollouts, outcomes, strict=True)
            ]
        )
    assert teacher_samples(history) == {withheld.fingerprint: ["teacher 0"]}
