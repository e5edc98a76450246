"""Grade RTL that a model wrote: from a problem and a response to a verdict, in a sandbox with real simulators.

The names in `PUBLIC` are for other programs; everything else may change with any version. Each is imported
on its first use, so that `import rtl_grader` is cheap:

    from contextlib import closing
    from rtl_grader import Grader, answer_to, load_problems, make_executor, source_of

    problem = load_problems([source_of("rtllm=../RTLLM")], seed=0).every[0]
    with make_executor("bubblewrap") as executor, closing(Grader(executor)) as grader:
        verdict = grader.grade(problem, answer_to(problem, response))
    print(verdict.outcome, verdict.reasons)
"""

from __future__ import annotations

import importlib
from typing import Any

PUBLIC = {
    # problems
    "load_problems": "rtl_grader.problems.sources",
    "source_of": "rtl_grader.problems.sources",
    "FileSource": "rtl_grader.problems.sources",
    "GeneratedSource": "rtl_grader.problems.sources",
    "SOURCES": "rtl_grader.problems.sources",
    "read_cvdp": "rtl_grader.problems.cvdp",
    "Problem": "rtl_grader.types.problem",
    "Interface": "rtl_grader.types.problem",
    "build_messages": "rtl_grader.prompts",
    # answers and verdicts
    "answer_to": "rtl_grader.extraction.answer_to",
    "Answer": "rtl_grader.types.answer",
    "Grader": "rtl_grader.grading.grader",
    "GraderPool": "rtl_grader.grading.pool",
    "Limits": "rtl_grader.grading.limits",
    "MemoryCache": "rtl_grader.grading.cache",
    "make_executor": "rtl_grader.grading.executors",
    "Verdict": "rtl_grader.types.verdict",
    "Outcome": "rtl_grader.types.verdict",
    "Stage": "rtl_grader.types.verdict",
    # files of answers, and records of verdicts
    "FileGrading": "rtl_grader.records.grade_file",
    "grade_file": "rtl_grader.records.grade_file",
    "reproduce": "rtl_grader.records.reproduce",
    "VerdictRecord": "rtl_grader.grading.verdict_record",
    # how far a verdict can be trusted
    "validate_problem": "rtl_grader.validation.validate",
    "full_level": "rtl_grader.validation.level",
    "ValidationRecord": "rtl_grader.validation.record",
    "compare": "rtl_grader.equivalence.differential",
    "Comparison": "rtl_grader.equivalence.pair",
    "Effort": "rtl_grader.equivalence.effort",
    # errors
    "UserError": "rtl_grader.errors",
    "InfrastructureError": "rtl_grader.errors",
}
"""Public name -> its module, whose docstring describes it."""
__all__ = list(PUBLIC)
OPEN = (
    "cli",
    "equivalence.pair",
    "equivalence.effort",
    "digest",
    "errors",
    "exports.exported",
    "extraction.answer_to",
    "extraction.thoughts",
    "files",
    "grading.answer_file",
    "grading.cache",
    "grading.executors",
    "grading.grader",
    "grading.interface_check",
    "grading.jobs",
    "grading.limits",
    "grading.pool",
    "grading.requirements",
    "grading.vcd",
    "grading.verdict_record",
    "hdl.declared",
    "hdl.interface",
    "http_server",
    "problems",
    "progress",
    "prompts",
    "records.audit_file",
    "records.reproduce",
    "registry",
    "serving.grading_queue",
    "settings",
    "types",
    "validation.doubts",
    "validation.found_golden",
    "validation.level",
    "validation.mutants",
    "validation.record",
    "validation.table",
    "validation.validate",
    "words",
    "work",
)
"""The modules that rtl-distill, which has the same version, may import besides."""


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *PUBLIC]
