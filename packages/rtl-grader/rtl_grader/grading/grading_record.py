"""One grading as far as it has come: the jobs that it runs, its stages, and the verdict that they make."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from rtl_grader.grading import evidence
from rtl_grader.grading.design import as_graded
from rtl_grader.grading.evidence import (
    TOO_OLD,
    Reasons,
    Results,
    overrun_reason,
)
from rtl_grader.grading.executors.base import (
    SOURCE_MOUNTS,
    Environment,
    Job,
    Mounts,
    StepResult,
    Steps,
)
from rtl_grader.grading.interface_check import (
    Mismatches,
)
from rtl_grader.grading.jobs import (
    witness_environment,
    workspace_files,
)
from rtl_grader.grading.judging import (
    judged_harness,
    proof_s,
)
from rtl_grader.grading.limits import Budget
from rtl_grader.grading.requirements import cocotb_generation
from rtl_grader.problems.judged import is_judged
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Port, Problem
from rtl_grader.types.verdict import (
    MOST_LISTED,
    Outcome,
    Stage,
    StageResult,
    StageStatus,
    Verdict,
    shortened,
)

if TYPE_CHECKING:
    from rtl_grader.grading.grader import Grader


_FAILURES = {Stage.INTERFACE: Outcome.INTERFACE_MISMATCH, Stage.SYNTAX: Outcome.COMPILE_FAILED}
"""The outcome when grading stops after a stage that failed."""


@dataclass
class GradingRecord:
    """What is known of one answer under one seed. `stages.Grading` adds the stages."""

    grader: Grader
    problem: Problem
    answer: Answer
    until: Stage
    seed: int
    stages: dict[Stage, StageResult] = field(default_factory=dict)
    mismatches: Mismatches = ()
    ports: tuple[Port, ...] | None = None
    """Ports that the answer's text declares; None before the analysis, or if no interface is demanded."""
    failed_tests: bool = False
    """Whether a simulation completed with a failing test, although no port that it needs is missing."""
    steps: list[StepResult] = field(default_factory=list)
    """Results of all steps so far."""
    faults: list[str] = field(default_factory=list)
    """Reasons of failing services that may be the harness' own fault, see `evidence.own_faults`."""
    not_run: Reasons = ()
    """A sentence for each service that did not run because one before it exceeded a limit."""

    @property
    def files(self) -> Files:
        """The answer's files at the problem's target paths, as every tool gets them; no other file is written."""
        return self._design[0]

    @cached_property
    def _design(self) -> tuple[Files, list[str]]:
        files = self.answer.files
        targets = {path: files[path] for path in files if path in self.problem.targets}
        return as_graded(self.problem, targets)

    # Jobs

    def _run(
        self,
        steps: Steps,
        mounts: Mounts = SOURCE_MOUNTS,
        harness: Files | None = None,
    ) -> tuple[StepResult, ...]:
        """Run steps in the answer's workspace, with the problem's harness by default."""
        problem = self.problem
        if harness is None:
            harness = problem.harness
        job = Job(
            files={**problem.context, **self.files},
            harness=workspace_files(harness),
            steps=tuple(replace(step, env={**step.env, **self._environment}) for step in steps),
            mounts=mounts,
            limits=self.grader.limits,
            budget_s=None if self._budget is None else self._budget.cpu_s,
            seed=self.seed,
            cocotb=cocotb_generation(harness),
            dockerfile=problem.harness.get("Dockerfile"),
        )
        results = self.grader.executor.run(job).steps
        self.steps += results
        return results

    @property
    def _harness(self) -> Files:
        """The problem's harness as it runs: with what the grader adds where the golden answer judges."""
        harness = self.problem.harness
        if not is_judged(harness):
            return harness
        return judged_harness(self.grader, self.problem, self.files)

    @cached_property
    def _budget(self) -> Budget | None:
        budget = self.grader.budget(self.problem, self.answer)
        more_s = proof_s(self.problem)
        return budget and replace(budget, cpu_s=budget.cpu_s + more_s)

    @cached_property
    def _environment(self) -> Environment:
        return witness_environment(
            self.problem, self.ports, self.grader.demanded_values(self.problem)
        )

    def _overrun(self, result: StepResult) -> str:
        return overrun_reason(result, self.grader.limits, self._budget)

    # Verdicts

    @property
    def _interface_reasons(self) -> Reasons:
        return self.stages[Stage.INTERFACE].reasons

    def _fail(
        self, outcome: Outcome, reasons: Reasons, results: Results, total: int = 0
    ) -> Verdict:
        """The verdict on an answer that fails although it compiled, whatever the harness reported."""
        self._add(Stage.SYNTAX, "passed")
        self._add(Stage.TESTS, "failed", reasons, wall_s(results))
        return self._verdict(outcome, reasons, 0, total)

    def _not_tested(self) -> Verdict:
        """The verdict when grading was asked to stop before the tests."""
        for stage, outcome in _FAILURES.items():
            result = self.stages.get(stage)
            if result and result.status == "failed":
                return self._verdict(outcome, result.reasons)
        return self._verdict(Outcome.NOT_TESTED, (f"graded until {self.until.value} only",))

    def _explained(self, reasons: Reasons, output: str) -> Reasons:
        """The reasons, headed by the tool whose output this is if it does not understand a valid text."""
        if not evidence.is_unreadable(output) or not self.grader.is_valid(
            self.problem, self.files
        ):
            return reasons
        tool = "iverilog"
        if "%Error" in output:
            tool = "verilator"
        return (f"{tool} {self.grader.tools.get(tool)} {TOO_OLD}", *reasons)

    def _add(
        self, stage: Stage, status: StageStatus, reasons: Reasons = (), wall_s: float = 0.0
    ) -> None:
        if stage is Stage.SYNTAX:
            reasons = self._explained(reasons, "\n".join(reasons))
        self.stages[stage] = StageResult(
            stage=stage, status=status, reasons=shortened(reasons), wall_s=wall_s
        )

    def _add_mismatches(self, more: Mismatches) -> None:
        self.mismatches = tuple(dict.fromkeys(self.mismatches + more))
        self._amend_interface("failed", tuple(map(str, self.mismatches)))

    def _amend_interface(self, status: StageStatus, reasons: Reasons) -> None:
        self._add(Stage.INTERFACE, status, reasons, self.stages[Stage.INTERFACE].wall_s)

    def _verdict(
        self, outcome: Outcome, reasons: Reasons, passed: int = 0, total: int = 0
    ) -> Verdict:
        ran_out = any(step.overrun in ("cpu", "asleep") for step in self.steps)
        skipped = (StageResult(stage=stage, status="skipped") for stage in Stage)
        return Verdict(
            outcome=outcome,
            stages=tuple(self.stages.get(result.stage, result) for result in skipped),
            tests_passed=passed,
            tests_total=total,
            # Reasons of two stages, of which each may have a long list.
            reasons=(*shortened(reasons, 2 * MOST_LISTED), *self.not_run),
            mismatches=self.mismatches[:MOST_LISTED],
            executor=self.grader.executor.name,
            tools=self.grader.tools,
            seed=self.seed,
            # The time that a step slept counts like CPU time.
            cpu_s=sum(step.cpu_s + step.asleep_s for step in self.steps),
            cpu_limit_s=self.grader.limit_s(self._budget) if ran_out else None,
        )


def wall_s(results: Results) -> float:
    """Seconds that all steps took."""
    return sum(result.wall_s for result in results)
