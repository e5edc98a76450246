"""Two problems in the formats of VerilogEval and RTLLM, without a data set, and a function that runs an answer against a bench."""

from pathlib import Path

from rtl_grader.grading.compose import read_services
from rtl_grader.grading.executors.base import Executor, Job, StepResult
from rtl_grader.grading.limits import Limits
from rtl_grader.problems.sources.rtllm import read_rtllm
from rtl_grader.problems.sources.verilog_eval import read_verilog_eval
from rtl_grader.types.problem import Problem

TINY = Path(__file__).parent / "tiny"
"""A folder like a clone of either set."""


def tiny_problems() -> dict[str, Problem]:
    """The two problems: name -> problem."""
    sets = read_verilog_eval(TINY), read_rtllm(TINY)
    assert not any(found.broken for found in sets), [found.broken for found in sets]
    return dict(
        zip(
            ("times3", "counter"),
            (problem for found in sets for problem in found.problems),
            strict=True,
        )
    )


def judged(executor: Executor, problem: Problem, text: str) -> StepResult:
    """Run the harness alone on an answer, without screening its text."""
    services, mounts = read_services(problem.harness)
    job = Job(
        files={**problem.context, problem.targets[0]: text},
        harness={
            path: text for path, text in problem.harness.items() if path.startswith("src/")
        },
        steps=services,
        mounts=mounts,
        limits=Limits(wall_s=20, cpu_s=3),
    )
    return executor.run(job).steps[0]
