"""A history with failing answers to a starter, a VerilogEval and a CVDP problem: golden answers with one operator changed."""

import shutil

import pytest

from rtl_core.config import load_config
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.starter import starter_problems
from rtl_grader.extraction.answer_to import answer_to
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.problems.sources.verilog_eval import read_verilog_eval
from rtl_grader.settings import grader_of
from rtl_grader.types.verdict import Outcome
from tests.nouns import a_rollout

RUN = "mutants"


@pytest.fixture(scope="session")
def problems(data, tmp_path_factory):
    """Name -> problem and an answer that fails its tests."""
    few = tmp_path_factory.mktemp("verilog-eval")
    for path in (data / "verilog-eval" / "dataset_spec-to-rtl").glob("Prob039_*"):
        shutil.copy(path, few)
    examples = (
        "cvdp_v1.1.0_example_nonagentic_code_generation_no_commercial_with_solutions.jsonl"
    )
    starters = starter_problems("train", 12, 1)
    return {
        "starter": _mutated(next(p for p in starters if p.family == "adder"), "+", "-"),
        "verilog-eval": _mutated(
            read_verilog_eval(few).problems[0], "sel_b1 & sel_b2", "sel_b1 | sel_b2"
        ),
        "cvdp": _mutated(
            read_cvdp(data / "cvdp" / examples).problems[0], "lfsr_out[6] ^", "lfsr_out[6] &"
        ),
    }


def _mutated(problem, was, now):
    (text,) = problem.golden.values()
    assert was in text, text
    return problem, f"```verilog\n{text.replace(was, now, 1)}\n```"


@pytest.fixture(scope="session")
def keys(problems):
    """Name -> key of the stored rollout."""
    return {name: f"{RUN}/step/00000/{problem.id}/0" for name, (problem, _) in problems.items()}


@pytest.fixture(scope="session")
def history(problems, executor, tmp_path_factory):
    """The history, opened read-only."""
    return written(tmp_path_factory.mktemp("debugging") / "h.duckdb", problems, executor)


def written(path, problems, executor, outcome=Outcome.TESTS_FAILED):
    """A history of a run whose first step has each answer with the executor's verdict, which must have this outcome."""
    overrides = [
        f'run.name="{RUN}"',
        f'run.history="{path}"',
        f'grading.executor="{executor.name}"',
    ]
    config = load_config("demo", overrides, environment={})
    history = History(path)
    history.start_run(
        RunRecord(name=RUN, config=config.model_dump(mode="json"), seed=1, student="student")
    )
    history.record_problems(
        RUN, [(problem, "train", i) for i, (problem, _) in enumerate(problems.values())]
    )
    grader = grader_of(config.grading, executor)
    for problem, text in problems.values():
        rollout = a_rollout(run=RUN, problem_id=problem.id, text=text)
        verdict = grader.grade(problem, answer_to(problem, text))
        assert verdict.outcome is outcome, (problem.id, verdict)
        history.record_rollouts([rollout])
        history.record_verdicts([(rollout.key, verdict, None)])
    grader.close()
    return History(path, read_only=True)
