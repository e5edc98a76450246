"""Three published harnesses pay wrong answers. Consensus with right answers, without golden ones, finds them and their inputs."""

import pytest

from benchmarks.equivalence import renamed, reordered
from rtl_grader.equivalence.consensus import by_consensus
from rtl_grader.hdl.tree import SourceTree
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.problems.sources.rtllm import read_rtllm
from rtl_grader.types.answer import Answer
from rtl_grader.validation.doubts import EFFORT
from rtl_grader.validation.stubs import stubs

INDEX_NOT_RESET = (
    "grant_index <= 3'b000;\n        end \n        else begin\n            if (priority_override",
    "end \n        else begin\n            if (priority_override",
)
LOWEST_OF_OVERRIDE = (
    "grant <= priority_override;",
    "grant <= priority_override & -priority_override;",
)


@pytest.fixture(scope="module")
def problems(data):
    found = [*(data / "cvdp").glob("*v1.1.0_example*no_commercial*.jsonl")]
    sets = [*map(read_cvdp, found), read_rtllm(data / "RTLLM")]
    return {problem.id: problem for one in sets for problem in one.problems}


def changed(before, after):
    def change(problem):
        ((path, text),) = problem.golden.items()
        assert before in text
        return {path: text.replace(before, after)}

    return change


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cvdp_copilot_lfsr_0001", lambda problem: stubs(problem).files["one step"]),
        ("cvdp_agentic_fixed_arbiter_0001", changed(*INDEX_NOT_RESET)),
        ("cvdp_agentic_fixed_arbiter_0001", changed(*LOWEST_OF_OVERRIDE)),
    ],
)
def test_a_wrong_answer_that_a_weak_harness_pays_is_doubtful(problems, grader, name, wrong):
    problem = problems[name]
    ((path, text),) = problem.golden.items()
    right = [
        {path: form}
        for form in dict.fromkeys([text, *(f(SourceTree(text)) for f in (renamed, reordered))])
    ]
    right += [
        {path: text.replace("endmodule", f"wire unused{i};\nendmodule")}
        for i in range(3 - len(right))
    ]
    answers = [*right, wrong(problem)]
    assert [grader.grade(problem, Answer(files=files)).outcome.value for files in answers] == [
        "passed"
    ] * len(answers)

    def with_golden(files):
        return problem.model_copy(update={"golden": dict(files)})

    found = by_consensus(grader.executor, with_golden, answers, grader.limits, EFFORT)
    assert [one.result for one in found] == ["same"] * len(right) + ["different"]
    assert found[-1].trace or "; after " in found[-1].detail or "times X" in found[-1].detail, (
        "what separates them"
    )
