"""One grading: the stages format, screen and interface, syntax, tests, and the resulting verdict.

The verdict is CVDP's: an answer passes if and only if every service of the harness exits with 0, provided that the
simulators report the same over a channel that HDL cannot reach. The earlier stages decide which outcome a
failing answer gets. The harness is skipped only if its top level is missing. If all of it passes, only
certain interface differences fail the answer (interface_check.py); their stage lists all.
"""

from __future__ import annotations

import time
from functools import partial

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading import evidence
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.evidence import (
    CONSTANT,
    FORGEABLE,
    NO_TEST,
    Reasons,
    Results,
    compile_reasons,
    test_reasons,
)
from rtl_grader.grading.executors.base import StepResult
from rtl_grader.grading.grading_record import GradingRecord, wall_s
from rtl_grader.grading.interface_check import (
    certain_differences,
    compare,
    demanded_values,
    is_fatal,
    is_hopeless,
    names_of,
    unnamed_ports,
)
from rtl_grader.grading.jobs import (
    activity_check,
    compile_step,
    sources,
    stop_at_first_failure,
)
from rtl_grader.grading.judging import proof_notes
from rtl_grader.grading.requirements import is_scripted
from rtl_grader.hdl.interface import hdl_files
from rtl_grader.types.verdict import MismatchKind, Outcome, Stage, Verdict

NO_DEMAND = "the problem demands no interface that could be derived"


class Grading(GradingRecord):
    """Grades one answer under one seed; `run` adds stages until one decides."""

    def run(self) -> Verdict:
        foreign = sorted(self.answer.files.keys() - self.problem.targets)
        notes = tuple(
            f"{path[:200]!a} is no target of this problem, it was left out" for path in foreign
        )
        if not self.files:
            reasons = notes or (self.answer.error or "the answer holds no file",)
            self._add(Stage.FORMAT, "failed", reasons)
            return self._verdict(Outcome.REJECTED if foreign else Outcome.NO_ANSWER, reasons)
        self._add(Stage.FORMAT, "passed", (*notes, *self._design[1]))
        if self.until is Stage.FORMAT:
            return self._not_tested()
        if objections := self._analyse():
            return self._verdict(Outcome.REJECTED, objections)
        if self.until is Stage.INTERFACE:
            return self._not_tested()
        files = {**self.problem.context, **self.files, **self.problem.harness}
        if is_fatal(self.mismatches, self.problem.harness, hdl_files(files).values()):
            self._compile()
            return self._verdict(Outcome.INTERFACE_MISMATCH, self._interface_reasons)
        if self.until is Stage.SYNTAX:
            self._compile()
            return self._not_tested()
        return self._test()

    def trial(self) -> list[str]:
        """Run the harness with these files and grade nothing; return its possible own faults."""
        services, mounts = read_services(self.problem.harness)
        return evidence.own_faults(self._run(services, mounts, self._harness), self.problem)

    # Screen and interface

    def _analyse(self) -> Reasons:
        """Add the interface stage. Return the reasons to reject the answer, empty if there are none."""
        start = time.monotonic()
        analysis = self.grader.analyse(self.problem, self.files)
        wall_s = time.monotonic() - start
        objections = tuple(map(str, analysis.findings))
        if analysis.failed:
            objections = (analysis.failed,)
        if objections:
            self._add(Stage.INTERFACE, "skipped", (), wall_s)
        elif self.problem.interface is None:
            self._add(Stage.INTERFACE, "passed", (NO_DEMAND,), wall_s)
        else:
            got = analysis.interface
            self.ports = got.ports if got else ()
            self.mismatches = compare(self.problem.interface, got, self.files)
            reasons = tuple(map(str, self.mismatches))
            if ports := names_of(MismatchKind.MISSING_PORT, self.mismatches):
                ports.intersection_update(unnamed_ports(self.problem))
                unnamed = (
                    f"the specification does not name the port {p}" for p in sorted(ports)
                )
                reasons = (*unnamed, *reasons)
            self._add(Stage.INTERFACE, "failed" if reasons else "passed", reasons, wall_s)
        return objections

    # Syntax

    def _compile(self) -> bool:
        """Compile the answer ourselves and add the syntax stage; return whether it compiles."""
        # If the interface differs or is unknown, the module that the harness names may be missing.
        step = compile_step(self.problem, self.files, top_level=not self._interface_reasons)
        (result,) = self._run((step,))
        reasons: Reasons = ()
        if result.overrun:
            reasons = (self._overrun(result),)
        elif result.exit_code != 0:
            reasons = compile_reasons(result.output)
        self._add(Stage.SYNTAX, "failed" if reasons else "passed", reasons, result.wall_s)
        return not reasons

    def _compiles(self, failures: Results, overrun: StepResult | None) -> bool:
        """Whether the answer compiles: by the harness' build commands if it ran any, else by our own compile.

        A harness that exceeded a limit before any simulation was still compiling.
        """
        builds = [build for result in failures for build in result.builds]
        for build in builds:
            if build["exit_code"] == 0:
                continue
            self._add(
                Stage.SYNTAX, "failed", compile_reasons(build["output"] or failures[0].output)
            )
            if mismatches := evidence.refused_parameters(build):
                self._add_mismatches(mismatches)
            return False
        if builds:
            return True
        if overrun:
            self._add(Stage.SYNTAX, "failed", (self._overrun(overrun),))
            return False
        return self._compile()

    # Tests

    def _test(self) -> Verdict:
        if lacking := self.grader.lacking(self.problem):
            raise InfrastructureError(f"the harness needs {', '.join(lacking)}")
        # If a port that the harness drives is missing, one failing test is enough.
        hopeless = is_hopeless(self.mismatches, self.problem.harness)
        services, mounts = read_services(self.problem.harness)
        if hopeless:
            services = stop_at_first_failure(services)
        results = self._run(services, mounts, self._harness)
        if is_scripted(self.problem.harness) and not all(
            result.is_attested for result in results
        ):
            raise InfrastructureError(
                f"{FORGEABLE}; use rtl_grader.problems.testbench, or cocotb"
            )
        rest = services[len(results) :]
        self.not_run = tuple(f"the service {step.name} was not run" for step in rest)
        cheat = evidence.refusals(results) or evidence.cheating(results, self.problem.harness)
        if cheat:
            return self._fail(Outcome.REJECTED, cheat, results)
        if any(result.exit_code != 0 for result in results):
            return self._a_service_failed(results, hopeless)
        return self._all_services_passed(results)

    def _all_services_passed(self, results: Results) -> Verdict:
        """Pass the answer unless its interface is certainly wrong or the harness cannot tell it from a constant."""
        problem = self.problem
        certain = evidence.parameter_mismatches(results, partial(demanded_values, problem))
        if self.ports is not None:
            certain += tuple(
                certain_differences(problem, self.mismatches, self.ports, self.files)
            )
        if certain:
            self._add_mismatches(certain)
            return self._fail(Outcome.INTERFACE_MISMATCH, tuple(map(str, certain)), results)
        passed, total = evidence.count_tests(results)
        if not total:
            return self._fail(Outcome.TESTS_FAILED, (NO_TEST,), results)
        if evidence.never_changed(results) and not self._is_active(evidence.pacer(results)):
            return self._fail(Outcome.TESTS_FAILED, (CONSTANT,), results, total)
        self._add(Stage.SYNTAX, "passed")
        self._add(Stage.TESTS, "passed", (), wall_s(results))
        if self.mismatches:
            notes = tuple(
                f"{mismatch}, but the harness accepts it" for mismatch in self.mismatches
            )
            self._amend_interface("passed", notes)
        return self._verdict(Outcome.PASSED, proof_notes(results), passed, total)

    def _a_service_failed(self, results: Results, hopeless: bool) -> Verdict:
        """Return the verdict on an answer that does not compile or fails tests, unless the harness fails
        for every answer."""
        failures = [result for result in results if result.exit_code != 0]
        overrun = next((result for result in failures if result.overrun), None)
        has_simulation = any(result.sessions for result in results)
        if overrun is None and not hopeless:
            self.failed_tests = any(result.failed_tests for result in failures)
        if not has_simulation and not self._compiles(failures, overrun):
            if self.mismatches:
                return self._verdict(Outcome.INTERFACE_MISMATCH, self._interface_reasons)
            if overrun:
                return self._verdict(Outcome.TIMEOUT, (self._overrun(overrun),))
            return self._verdict(Outcome.COMPILE_FAILED, self.stages[Stage.SYNTAX].reasons)
        self.faults = evidence.own_faults(results, self.problem)
        if Stage.SYNTAX not in self.stages:
            self._add(Stage.SYNTAX, "passed")
        reasons: Reasons = ()
        for result in failures:
            reasons += (self._overrun(result),) if result.overrun else test_reasons(result)
        if hopeless:
            self._add(Stage.TESTS, "skipped", reasons, wall_s(results))
            return self._verdict(Outcome.INTERFACE_MISMATCH, self._interface_reasons)
        if not has_simulation:
            reasons = self._explained(reasons, "\n".join(result.output for result in failures))
        self._add(Stage.TESTS, "failed", reasons, wall_s(results))
        outcome = Outcome.TESTS_FAILED
        if self.mismatches:
            outcome = Outcome.INTERFACE_MISMATCH
            reasons = self._interface_reasons + reasons
        elif overrun and overrun.overrun in ("wall", "cpu", "asleep"):
            outcome = Outcome.TIMEOUT
        return self._verdict(outcome, reasons, *evidence.count_tests(results))

    def _is_active(self, pacer: str) -> bool:
        """Whether an output changes when the inputs are driven at random; True if this cannot be checked."""
        interface = self.problem.interface
        assert interface is not None, "without an interface nothing is watched"
        paths = sources(self.problem, self.files)
        check = activity_check(interface.module, paths, self.ports or (), pacer)
        if check is None:
            return True
        harness, step = check
        (result,) = self._run((step,), harness=harness)
        if any(build["exit_code"] != 0 for build in result.builds):
            return True
        return any(test["status"] == "passed" for test in result.tests)
