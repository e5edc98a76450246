"""RTLLM's own benches judge; what their verdict lets through is for validation to find."""

import shutil

import pytest

from rtl_core.errors import ProblemError
from rtl_core.problems.sources.rtllm import read_rtllm
from rtl_core.types.answer import Answer
from rtl_core.validation.level import Level
from rtl_core.validation.validate import validate_problem


@pytest.fixture(scope="module")
def problems(data):
    found = read_rtllm(data / "RTLLM")
    assert not found.broken
    return {problem.id: problem for problem in found.problems}


def test_every_design_is_read_with_its_golden_answer_renamed(problems):
    assert len(problems) == 16
    for problem in problems.values():
        assert f"module {problem.interface.module}" in next(iter(problem.golden.values()))
        assert f"rtl/{problem.interface.module}.v" == problem.targets[0]
    assert "src/tdata.txt" in problems["rtllm_asyn_fifo"].harness


def test_at_least_85_percent_of_the_verified_designs_pass_and_the_others_are_known(grader, problems):
    failed = {}
    for problem in problems.values():
        verdict = grader.grade(problem, Answer(files=problem.golden or {}))
        if not verdict.passed:
            failed[problem.id] = verdict.reasons
    # Two benches use what Icarus 11 does not know: an initialised array, and `break`.
    assert set(failed) <= {"rtllm_ring_counter", "rtllm_asyn_fifo"}, failed
    assert 1 - len(failed) / len(problems) >= 0.85


def test_a_bench_that_icarus_cannot_compile_is_unsupported_or_broken_with_its_words(grader, problems):
    level = Level("quick", 0, (1,), ())
    found = validate_problem(problems["rtllm_asyn_fifo"], grader, level=level)
    if not grader.executor.tools()["iverilog"].startswith("11."):
        assert found.status in ("fit", "unsupported", "broken")
        return
    assert found.status == "unsupported"
    assert "break statements not supported" in found.evidence["reason"]


def test_a_bench_that_pays_its_input_passed_through_is_found_weak(grader, problems):
    found = validate_problem(problems["rtllm_sequence_detector"], grader, level=Level("full", 0, (1,), ("inputs",)))
    assert found.status == "weak"
    assert "inputs passed through" in found.evidence["reason"]


def test_a_bench_that_never_says_passed_is_named(data, tmp_path):
    folder = tmp_path / "RTLLM" / "Control" / "counter_12"
    shutil.copytree(data / "RTLLM" / "Control" / "Counter" / "counter_12", folder)
    bench = folder / "testbench.v"
    bench.chmod(0o644)
    bench.write_text(bench.read_text().replace("Passed", "Fine"))
    found = read_rtllm(tmp_path)
    assert not found.problems
    assert found.broken[0].id == "counter_12"
    assert "never says" in found.broken[0].reason
    assert found.broken[0].source == "rtllm"


def test_a_folder_without_designs_is_refused_with_what_to_give(tmp_path):
    with pytest.raises(ProblemError, match="clone of RTLLM"):
        read_rtllm(tmp_path)
