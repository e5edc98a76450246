"""From an answer to a verdict: format, screen, interface, syntax, tests.

The verdict is CVDP's: an answer passes if and only if every service of the harness exits with 0 - provided that the
simulators themselves, over a channel that HDL cannot reach, say the same. What the earlier stages find decides which
word a failing answer gets. Only where the harness' top level is not there at all is it not run. A harness that passes
in full overrules the demanded interface, whatever it was read from; the differences are then still named in their stage.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from rtl_core.errors import InfrastructureError
from rtl_core.grading.activity import activity_check
from rtl_core.grading.analysis import Analysis, Analyst
from rtl_core.grading.cache import VerdictCache, cache_key
from rtl_core.grading.compose import read_services
from rtl_core.grading.executors.base import Executor, Job, JobResult, Mount, Step, StepResult
from rtl_core.grading.interface_check import compare, is_fatal, is_hopeless
from rtl_core.grading.limits import Limits
from rtl_core.grading.neutralise import neutralise
from rtl_core.grading.parameters import demanded_values
from rtl_core.grading.reasons import compile_reasons, overrun_reason, test_reasons
from rtl_core.grading.requirements import cocotb_generation, draws_random, missing_requirements, uses_several_tools
from rtl_core.grading.stand_in import stand_in
from rtl_core.grading.testbenches import without_test_benches
from rtl_core.grading.verdict import InterfaceMismatch, MismatchKind, Outcome, Stage, StageResult, Verdict
from rtl_core.grading.vocabulary import ALLOWED_TASKS
from rtl_core.problems.interface import HDL_SUFFIXES, top_levels
from rtl_core.problems.problem import Port, Problem
from rtl_core.prompting.answer import Answer

_HDL = (".v", ".sv")
CONSTANT = "no output ever changed its value, though the inputs did; the harness cannot tell it from a constant"
"""The reason of an answer that its harness passes and that is refused all the same."""
HARNESS_FAILED = "the harness failed before it ran anything"
"""How the reason of an infrastructure error begins that no other answer and no second try can mend."""
PATIENCE = 0.25
"""An answer is tried with further seeds only when the first took no longer than this part of the wall limit."""
_ORDER = (Stage.FORMAT, Stage.INTERFACE, Stage.SYNTAX, Stage.TESTS)


class Grader:
    """Grades answers. Thread-safe: call it from as many threads as there are cores.

    `until` is the last stage to be graded (`Stage.SYNTAX` compiles only, for early training); an answer that gets
    through all graded stages is `passed` only when that stage is TESTS, else `not_tested`.

    `seed` is what harnesses draw their random numbers from. Some fail right designs under some seeds. A golden answer shows
    that when the problem is validated; without one, an answer whose tests fail is tried with further seeds until a
    majority of `seeds` says the same. 1 asks the first seed alone, as the public runner does.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        seeds: int = 3,
        until: Stage = Stage.TESTS,
        cache: VerdictCache | None = None,
    ) -> None:
        self.executor = executor
        self.limits = limits or Limits()
        self.seed = seed
        self.seeds = seeds
        self.until = until
        self.cache = cache
        self._analyst = Analyst()
        self._tools = executor.tools()
        self._lacking: dict[str, list[str]] = {}
        self._reach: dict[str, int] = {}
        self._demanded: dict[str, dict[str, list[int]]] = {}

    def grade(self, problem: Problem, answer: Answer, until: Stage | None = None) -> Verdict:
        """The verdict on one answer, graded to the stage `until` (None: the grader's own).

        Never raises for what a model wrote or for what fails underneath.
        """
        started = time.monotonic()
        until = until or self.until
        key = None
        if self.cache is not None and answer.files:
            key = cache_key(
                problem,
                answer.files,
                executor=self.executor.name,
                tools=self._tools,
                seed=self.seed,
                seeds=self.seeds,
                limits=self.limits,
                until=until,
            )
            known = self.cache.get(key)
            if known is not None:
                return known.model_copy(update={"cached": True, "wall_s": time.monotonic() - started})
        try:
            verdict = self._under_seeds(problem, answer, until)
        except InfrastructureError as error:
            verdict = _infrastructure(self, error.message)
        except Exception as error:
            verdict = _infrastructure(self, f"the grader failed: {type(error).__name__}: {error}")
        verdict = verdict.model_copy(update={"wall_s": time.monotonic() - started})
        if key is not None and self.cache is not None and verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR:
            self.cache.put(key, verdict)
        return verdict

    def _under_seeds(self, problem: Problem, answer: Answer, until: Stage) -> Verdict:
        """The verdict under the first seed or, where that may hang on the seed, what the majority of seeds says."""
        first = _Grading(self, problem, answer, until, self.seed)
        started = time.monotonic()
        verdict = first.run()
        quick = time.monotonic() - started < PATIENCE * self.limits.wall_s
        if not first.failed_tests or not quick or problem.golden is not None or not draws_random(problem.harness):
            return verdict
        verdicts = [verdict]
        needed = self.seeds // 2 + 1
        for number in range(1, self.seeds):
            passed = sum(found.passed for found in verdicts)
            if needed in (passed, len(verdicts) - passed):
                break
            verdicts.append(_Grading(self, problem, answer, until, self.seed + number).run())
        passes = [found for found in verdicts if found.passed]
        if not passes:
            return verdict
        said = f"the tests pass under {len(passes)} of {len(verdicts)} seeds"
        verdict = passes[0] if len(passes) >= needed else verdict
        return verdict.model_copy(update={"reasons": (*verdict.reasons, said)})

    def close(self) -> None:
        """Ends the helpers of the grader; the executor belongs to the caller."""
        self._analyst.close()

    def lacking(self, problem: Problem) -> list[str]:
        """What the harness needs and the executor lacks, in words; looked up once a problem."""
        known = self._lacking.get(problem.fingerprint)
        if known is None:
            known = missing_requirements(problem.harness, self._tools, self._has_module(problem))
            self._lacking[problem.fingerprint] = known
        return known

    def _has_module(self, problem: Problem) -> Callable[[str], bool]:
        """Modules that the executor has; where it derives images, what the harness' Dockerfile installs is found out then."""
        if self.executor.derives_images and re.search(
            r"^\s*RUN\b.*\binstall\b", problem.harness.get("Dockerfile", ""), re.M
        ):
            return lambda name: name != "cocotb.runner" or self.executor.has_module(name)
        return self.executor.has_module

    def analyse(self, problem: Problem, files: Mapping[str, str]) -> Analysis:
        top = problem.interface.module if problem.interface else None
        python = "\n".join(text for path, text in problem.harness.items() if path.endswith((".py", ".env")))
        # A testbench that no harness compiles may do what testbenches do.
        design = [path for path in files if path.startswith("rtl/") or path.rsplit("/", 1)[-1] in python]
        harness = sorted({path.rsplit("/", 1)[-1] for path in problem.harness})
        return self._analyst.analyse(
            files, problem.context, top, design, harness=harness, several_tools=uses_several_tools(problem.harness)
        )

    def demanded(self, problem: Problem) -> dict[str, list[int]]:
        """See `demanded_values`; looked up once a problem."""
        known = self._demanded.get(problem.fingerprint)
        if known is None:
            known = self._demanded[problem.fingerprint] = demanded_values(problem)
        return known

    def reach(self, problem: Problem) -> int:
        """How far the harness comes with an answer that no model wrote (`StepResult.reach`); looked up once a problem.

        It tells the harness' own failure from one that an answer brought about.
        """
        known = self._reach.get(problem.fingerprint)
        if known is None:
            known = _Grading(self, problem, Answer(files=stand_in(problem)), Stage.TESTS, self.seed).reach()
            self._reach[problem.fingerprint] = known
        return known


@dataclass
class _Grading:
    """The course of one grading; each method adds one stage."""

    grader: Grader
    problem: Problem
    answer: Answer
    until: Stage
    seed: int
    stages: dict[Stage, StageResult] = field(default_factory=dict)
    mismatches: tuple[InterfaceMismatch, ...] = ()
    ports: tuple[Port, ...] = ()
    """The answer's own ports, where its interface could be read."""
    failed_tests: bool = False
    """Whether a simulation came to its end and a test of it failed, though no port that it needs is missing."""

    @cached_property
    def files(self) -> dict[str, str]:
        """The answer's files that the problem asks for, the same for every tool; no other is ever written."""
        several = uses_several_tools(self.problem.harness)
        return {path: neutralise(text, several_tools=several) for path, text in self._design[0].items()}

    @cached_property
    def _design(self) -> tuple[dict[str, str], list[str]]:
        """The files without their test benches, and what was left out."""
        asked = {path: text for path, text in self.answer.files.items() if path in self.problem.targets}
        return without_test_benches(self.problem, asked)

    def run(self) -> Verdict:
        files = self.files
        foreign = sorted(set(self.answer.files) - set(self.problem.targets))
        notes = tuple(f"{path[:200]!a} is no target of this problem, it was left out" for path in foreign[:20])
        if not files:
            reasons = notes or (self.answer.error or "the answer holds no file",)
            self._add(Stage.FORMAT, "failed", reasons, 0.0)
            return self._verdict(Outcome.REJECTED if foreign else Outcome.NO_ANSWER, reasons)
        self._add(Stage.FORMAT, "passed", (*notes, *self._design[1][:20]), 0.0)
        if self.until is Stage.FORMAT:
            return self._not_tested()
        rejected = self._analyse(files)
        if rejected is not None:
            return rejected
        if self.until is Stage.INTERFACE:
            return self._not_tested()
        if is_fatal(self.mismatches, self.problem.harness, self._sources()):
            self._compile()
            return self._verdict(Outcome.INTERFACE_MISMATCH, self.stages[Stage.INTERFACE].reasons)
        if self.until is Stage.SYNTAX:
            self._compile()
            return self._not_tested()
        return self._test()

    def _analyse(self, files: Mapping[str, str]) -> Verdict | None:
        """Screen and interface; a verdict only when the answer is rejected."""
        started = time.monotonic()
        found = self.grader.analyse(self.problem, files)
        spent = time.monotonic() - started
        refusals = (found.failed,) if found.failed else tuple(str(finding) for finding in found.findings)
        if refusals:
            self._add(Stage.INTERFACE, "skipped", (), spent)
            return self._verdict(Outcome.REJECTED, refusals[:20])
        expected = self.problem.interface
        if expected is None:
            self._add(Stage.INTERFACE, "passed", ("the problem demands no interface that could be derived",), spent)
            return None
        if found.interface is not None:
            self.ports = found.interface.ports
        self.mismatches = compare(expected, found.interface, files)
        reasons = tuple(str(mismatch) for mismatch in self.mismatches)
        self._add(Stage.INTERFACE, "failed" if reasons else "passed", reasons, spent)
        return None

    def _sources(self) -> list[str]:
        """The texts of all design files that a harness could build."""
        files = {**self.problem.context, **self.files, **self.problem.harness}
        return [text for path, text in files.items() if path.endswith(HDL_SUFFIXES)]

    def _compile(self) -> bool:
        """A compile of our own, where no harness run tells; whether it succeeded."""
        step = _compile_step(self.problem, self.files, bool(self.stages[Stage.INTERFACE].reasons))
        result = self._run((step,)).steps[0]
        reasons: tuple[str, ...] = ()
        if result.overrun:
            reasons = (overrun_reason(result, self.grader.limits.model_dump()),)
        elif result.exit_code != 0:
            reasons = compile_reasons(result.output)
        self._add(Stage.SYNTAX, "failed" if reasons else "passed", reasons, result.wall_s)
        return not reasons

    def _test(self) -> Verdict:
        """Runs the harness and judges what it says."""
        lacking = self.grader.lacking(self.problem)
        if lacking:
            raise InfrastructureError(f"the harness needs {', '.join(lacking)}")
        hopeless = is_hopeless(self.mismatches, self.problem.harness)
        results = self._harness(until_one_fails=hopeless)
        spent = sum(result.wall_s for result in results)
        tests = [test for result in results for session in result.sessions for test in session.tests]
        total = sum(test["status"] != "skipped" for test in tests)
        good = sum(test["status"] == "passed" for test in tests)
        bad_services = [result for result in results if result.exit_code != 0]
        simulated = any(result.sessions for result in results)
        refused = tuple(dict.fromkeys(reason for result in results for reason in result.refused))
        cheat = refused or cheating(results, self.problem.harness)
        if cheat:
            self._add(Stage.SYNTAX, "passed", (), 0.0)
            self._add(Stage.TESTS, "failed", cheat, spent)
            return self._verdict(Outcome.REJECTED, cheat)
        if not bad_services and (changed := changed_parameters(results)):
            self.mismatches += changed
            reasons = tuple(str(mismatch) for mismatch in changed)
            self._add(Stage.INTERFACE, "failed", self.stages[Stage.INTERFACE].reasons + reasons, 0.0)
            self._add(Stage.SYNTAX, "passed", (), 0.0)
            self._add(Stage.TESTS, "failed", reasons, spent)
            return self._verdict(Outcome.INTERFACE_MISMATCH, reasons)
        if not bad_services and never_changed(results) and not self._is_active(results):
            self._add(Stage.SYNTAX, "passed", (), 0.0)
            self._add(Stage.TESTS, "failed", (CONSTANT,), spent)
            return self._verdict(Outcome.TESTS_FAILED, (CONSTANT,), 0, total)
        if not bad_services:
            return self._passed(good, total, simulated, len(results), spent)
        overrun = next((result for result in bad_services if result.overrun), None)
        self.failed_tests = overrun is None and not hopeless and any(_failing_tests(result) for result in bad_services)
        if not simulated and not self._harness_compiled(bad_services, overrun):
            return self._did_not_compile(overrun)
        if not simulated and overrun is None and _uses_cocotb(self.problem.harness):
            # The answer compiles, and still no test began. A simulator that was started refused the design; before that, it
            # is the answer's fault only if another answer comes further.
            reach = max(result.reach for result in results)
            if reach < 2 and self.grader.reach(self.problem) <= reach:
                said = "; ".join(test_reasons(result)[0] for result in bad_services)
                raise InfrastructureError(f"{HARNESS_FAILED}: {said}")
        if Stage.SYNTAX not in self.stages:
            self._add(Stage.SYNTAX, "passed", (), 0.0)
        reasons = tuple(reason for result in bad_services for reason in self._why(result))
        if hopeless:
            self._add(Stage.TESTS, "skipped", reasons, spent)
            return self._verdict(Outcome.INTERFACE_MISMATCH, self.stages[Stage.INTERFACE].reasons)
        self._add(Stage.TESTS, "failed", reasons, spent)
        # A service that failed without a failing test of its own is itself a check that failed.
        total += sum(not _failing_tests(result) for result in bad_services)
        good += sum(result.exit_code == 0 and not result.sessions for result in results)
        total += sum(result.exit_code == 0 and not result.sessions for result in results)
        outcome = Outcome.TIMEOUT if overrun and overrun.overrun in ("wall", "cpu") else Outcome.TESTS_FAILED
        if self.mismatches:
            outcome, reasons = Outcome.INTERFACE_MISMATCH, self.stages[Stage.INTERFACE].reasons + reasons
        return self._verdict(outcome, reasons, good, total)

    def _harness(self, *, until_one_fails: bool = False) -> tuple[StepResult, ...]:
        """Runs the services of the harness, each to its end or, where only the whole counts, to its first failing test."""
        services, mounts = read_services(self.problem.harness)
        services = _until_one_fails(services) if until_one_fails else services
        return self._run(services, mounts).steps

    def reach(self) -> int:
        """How far the harness comes with these files."""
        return max(result.reach for result in self._harness())

    def _passed(self, good: int, total: int, simulated: bool, services: int, spent: float) -> Verdict:
        """The harness passed in full, so the interface did for it."""
        self._add(Stage.SYNTAX, "passed", (), 0.0)
        self._add(Stage.TESTS, "passed", (), spent)
        if self.mismatches:
            reasons = tuple(f"{m}, but the harness accepts it" for m in self.mismatches)
            self.stages[Stage.INTERFACE] = self.stages[Stage.INTERFACE].model_copy(
                update={"status": "passed", "reasons": reasons}
            )
        if not simulated:
            good = total = services
        return self._verdict(Outcome.PASSED, (), good, total)

    def _harness_compiled(self, bad: list[StepResult], overrun: StepResult | None) -> bool:
        """Whether the answer compiles, by the harness' own build commands if it made any, else by one of ours.

        A harness that ran out of a limit before it simulated anything was still compiling.
        """
        builds = [build for result in bad for build in result.builds]
        failed = [build for build in builds if build["exit_code"] != 0]
        if failed:
            output = failed[0]["output"] or bad[0].output
            self._add(Stage.SYNTAX, "failed", compile_reasons(output), 0.0)
            return False
        if builds:
            return True
        if overrun:
            self._add(Stage.SYNTAX, "failed", (overrun_reason(overrun, self.grader.limits.model_dump()),), 0.0)
            return False
        return self._compile()

    def _did_not_compile(self, overrun: StepResult | None) -> Verdict:
        reasons = self.stages[Stage.SYNTAX].reasons
        if self.mismatches:
            return self._verdict(Outcome.INTERFACE_MISMATCH, self.stages[Stage.INTERFACE].reasons)
        if overrun:
            reasons = (overrun_reason(overrun, self.grader.limits.model_dump()),)
            return self._verdict(Outcome.TIMEOUT, reasons)
        return self._verdict(Outcome.COMPILE_FAILED, reasons)

    def _why(self, result: StepResult) -> tuple[str, ...]:
        if result.overrun:
            return (overrun_reason(result, self.grader.limits.model_dump()),)
        return test_reasons(result)

    def _is_active(self, results: tuple[StepResult, ...]) -> bool:
        """Whether an output moves when inputs are driven at random, where the harness moved none; True where it cannot be told."""
        assert self.problem.interface is not None, "without an interface nothing is watched"
        pacer = next((session.pacer for result in results for session in result.sessions if session.pacer), "")
        check = activity_check(self.problem.interface.module, _sources(self.problem, self.files), self.ports, pacer)
        if check is None:
            return True
        harness, step = check
        result = self._run((step,), harness=harness).steps[0]
        compiled = all(build["exit_code"] == 0 for build in result.builds)
        return not compiled or any(t["status"] == "passed" for session in result.sessions for t in session.tests)

    def _run(
        self,
        steps: tuple[Step, ...],
        mounts: tuple[Mount, ...] = (Mount("src", "/src"),),
        harness: Mapping[str, str] | None = None,
    ) -> JobResult:
        """Runs steps in the answer's workspace, with the problem's harness or another."""
        problem = self.problem
        job = Job(
            files={**problem.context, **self.files},
            harness={p: text for p, text in (problem.harness if harness is None else harness).items() if _is_placed(p)},
            steps=tuple(replace(step, env={**step.env, **self._instructions}) for step in steps),
            mounts=mounts,
            limits=self.grader.limits,
            seed=self.seed,
            cocotb=cocotb_generation(problem.harness) if harness is None else 2,
            dockerfile=problem.harness.get("Dockerfile"),
        )
        result = self.grader.executor.run(job)
        # Once: what waits on purpose is as slow the second time, and that is its own fault.
        return self.grader.executor.run(job) if any(step.stalled for step in result.steps) else result

    @cached_property
    def _instructions(self) -> dict[str, str]:
        """What witness and gate are told: ports to watch, tasks that the problem's own files call, values of parameters."""
        given = (*self.problem.context.items(), *self.problem.harness.items())
        tasks = {task for path, text in given if path.endswith(_HDL) for task in re.findall(r"\$([a-z]\w*)", text)}
        forced = {"force" for path, text in given if path.endswith(_HDL) if re.search(r"\bforce\b", text)}
        watch = ";".join(",".join(p.name for p in self.ports if p.direction == d) for d in ("input", "output"))
        top = self.problem.interface.module if self.problem.interface else ""
        return {
            "RTL_WATCH": watch if self.ports else "",
            "RTL_TASKS": ",".join(sorted(tasks - ALLOWED_TASKS | forced)),
            "RTL_PARAMETERS": json.dumps({"top": top, "values": self.grader.demanded(self.problem)}),
        }

    def _not_tested(self) -> Verdict:
        """The verdict when grading was asked to stop before the tests."""
        failed = [stage for stage in _ORDER if stage in self.stages and self.stages[stage].status == "failed"]
        failing = {Stage.INTERFACE: Outcome.INTERFACE_MISMATCH, Stage.SYNTAX: Outcome.COMPILE_FAILED}
        outcome = failing[failed[0]] if failed else Outcome.NOT_TESTED
        reasons = self.stages[failed[0]].reasons if failed else (f"graded until {self.until.value} only",)
        return self._verdict(outcome, reasons)

    def _add(self, stage: Stage, status: str, reasons: tuple[str, ...], wall_s: float) -> None:
        self.stages[stage] = StageResult(stage=stage, status=status, reasons=reasons, wall_s=wall_s)  # type: ignore[arg-type]

    def _verdict(self, outcome: Outcome, reasons: tuple[str, ...], good: int = 0, total: int = 0) -> Verdict:
        stages = tuple(self.stages.get(stage) or StageResult(stage=stage, status="skipped") for stage in _ORDER)
        return Verdict(
            outcome=outcome,
            stages=stages,
            tests_passed=good,
            tests_total=total,
            reasons=reasons,
            mismatches=self.mismatches,
            executor=self.grader.executor.name,
            tools=self.grader.executor.tools(),
            seed=self.seed,
        )


def _infrastructure(grader: Grader, reason: str) -> Verdict:
    return Verdict(
        outcome=Outcome.INFRASTRUCTURE_ERROR,
        stages=tuple(StageResult(stage=stage, status="skipped") for stage in _ORDER),
        reasons=(reason,),
        executor=grader.executor.name,
        tools=grader._tools,
        seed=grader.seed,
    )


def _failing_tests(result: StepResult) -> bool:
    return any(test["status"] == "failed" for session in result.sessions for test in session.tests)


def never_changed(results: tuple[StepResult, ...]) -> bool:
    """Whether no watched output moved through all simulations although the inputs were moved enough.

    An honest design does something under any harness worth the name; a constant passes some weak ones.
    """
    sessions = [session for result in results for session in result.sessions]
    return sum(session.changes for session in sessions) >= 16 and not any(session.moved for session in sessions)


def changed_parameters(results: tuple[StepResult, ...]) -> tuple[InterfaceMismatch, ...]:
    """Parameters that a build of the harness set, or that it reads back, and that have another value in the design."""
    found = {tuple(change): None for result in results for build in result.builds for change in build["parameters"]}
    return tuple(
        InterfaceMismatch(kind=MismatchKind.WRONG_PARAMETER, name=name, expected=wanted, got=got)
        for name, wanted, got in found
    )


def cheating(results: tuple[StepResult, ...], harness: Mapping[str, str]) -> tuple[str, ...]:
    """What shows that the results are not the simulators' own; empty when nothing does."""
    for result in results:
        for session in result.sessions:
            if session.forged:
                return (f"{result.name}: the results file is not the one that cocotb wrote",)
            if any(not test["file"].startswith(("/src/", "/code/src/")) for test in session.tests):
                return (f"{result.name}: a test did not come from the harness",)
    passed = all(result.exit_code == 0 for result in results)
    if passed and _uses_cocotb(harness) and not any(session.complete for r in results for session in r.sessions):
        return ("the harness passed although no simulation brought its tests to an end",)
    return ()


def _until_one_fails(services: tuple[Step, ...]) -> tuple[Step, ...]:
    """The services with pytest told to stop at the first failing test: whether all pass is told all the same."""
    return tuple(
        replace(step, env={**step.env, "PYTEST_ADDOPTS": f"{step.env.get('PYTEST_ADDOPTS', '')} -x".strip()})
        for step in services
    )


def _uses_cocotb(harness: Mapping[str, str]) -> bool:
    return any("@cocotb.test" in text for path, text in harness.items() if path.endswith(".py"))


def _is_placed(path: str) -> bool:
    return path.split("/")[0] in ("src", "rtl", "verif", "docs", "rundir")


def _sources(problem: Problem, files: Mapping[str, str]) -> list[str]:
    """The HDL files that the harness names as sources, or all design files; absolute paths inside."""
    design = {p for p in (*problem.context, *files) if p.endswith(_HDL) and not p.startswith("verif/")}
    named = [
        word.removeprefix("/code/")
        for path, text in sorted(problem.harness.items())
        if ".env" in path
        for line in re.findall(r"^[ \t]*VERILOG_SOURCES[ \t]*=(.*)$", text, re.M)
        for word in line.split()
    ]
    sources = [path for path in dict.fromkeys(named) if path in design or path in problem.harness]
    return [f"/code/{path}" for path in sources or sorted(design)]


def _compile_step(problem: Problem, files: Mapping[str, str], mismatched: bool) -> Step:
    """Elaboration with Icarus, as the harness' runner would: its sources and top level, or all design files."""
    tops = [] if mismatched else list(top_levels(problem.harness)[:1])
    argv = ["iverilog", "-g2012", "-t", "null", "-I", "/code/rtl", *(word for top in tops for word in ("-s", top))]
    return Step("compile", (*argv, *_sources(problem, files)))
