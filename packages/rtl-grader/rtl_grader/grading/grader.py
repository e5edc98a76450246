"""Turns answers into verdicts: gradings (stages.py) under one or more seeds, a verdict cache, and facts
cached per problem."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from posixpath import basename
from typing import Any, TypeVar

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.analysis import Analysis, AnalysisRequest, Analyst
from rtl_grader.grading.cache import Conditions, MemoryCache, cache_key
from rtl_grader.grading.evidence import HARNESS_FAILED, TOO_OLD
from rtl_grader.grading.executors.base import Executor
from rtl_grader.grading.interface_check import demanded_values
from rtl_grader.grading.judging import proof_s
from rtl_grader.grading.limits import NO_BUDGET, Budget, KnownGood, Limits
from rtl_grader.grading.requirements import (
    draws_random,
    missing_requirements,
    uses_several_tools,
)
from rtl_grader.grading.stages import Grading
from rtl_grader.grading.stand_in import stand_in
from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.problems.harness_use import macro_file
from rtl_grader.traces.stimuli import USUAL
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem
from rtl_grader.types.verdict import Outcome, Stage, StageResult, Verdict

REGRADE_FACTOR = 2.0
"""A cached CPU-time overrun is graded again when the answer may now use more than this multiple of its old limit."""
MORE_SEEDS_SHARE = 0.25
"""Further seeds are tried only when the first grading used at most this share of the CPU limit."""
MOST_FACTS = 4_000
"""Number of newest facts about problems that a grader keeps; a judged problem's has about 100 kB."""
_INSTALLS = re.compile(r"^\s*RUN\b.*\binstall\b", re.M)
_T = TypeVar("_T")


class Grader:
    """Grades answers. Thread-safe: call it from as many threads as there are cores.

    `until` is the last stage to grade (`Stage.SYNTAX` only compiles, for early training). An answer that
    passes all graded stages is `passed` if that stage is TESTS, else `not_tested`.

    `seed` seeds the harness' random numbers. Some harnesses fail right designs under some seeds. Validation
    shows this where there is a golden answer. Without one, an answer whose tests fail is graded under
    further seeds until a majority of `seeds` agrees. With 1, only the first seed is used, as in the public
    runner.

    `known_good` holds the CPU time of known-good answers, which limits other answers (limits.py). The
    grader adds answers that pass.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        limits: Limits | None = None,
        seed: int = 0,
        seeds: int = 3,
        until: Stage = Stage.TESTS,
        cache: MemoryCache | None = None,
        known_good: KnownGood | None = None,
    ) -> None:
        self.executor = executor
        self.limits = limits or Limits()
        self.seed = seed
        self.seeds = seeds
        self.until = until
        self.cache = cache
        self.known_good = known_good or KnownGood()
        self.tools = executor.tools()
        self._analyst = Analyst()
        self.excuses_answers = True
        """Whether an answer whose failure is the harness' own fault gets an infrastructure error."""
        self.judge_effort = USUAL
        """How long golden answers that judge are simulated, and so are the answers that they judge."""
        self._facts: dict[tuple[object, ...], Future[Any]] = {}
        """Facts about problems, see `once`."""

    def but(self, **changes: Any) -> Grader:
        """Return a grader with some attributes replaced. It shares everything else with this one."""
        other = copy.copy(self)
        assert changes.keys() <= vars(other).keys(), changes
        vars(other).update(changes)
        return other

    def grade(self, problem: Problem, answer: Answer, until: Stage | None = None) -> Verdict:
        """Grade one answer up to the stage `until` (default: the grader's own).

        Never raises: a failure of the grader or the sandbox is an `infrastructure_error` verdict.
        """
        start = time.monotonic()
        until = until or self.until
        cache = self.cache if answer.files else None
        key = ""
        earlier = None
        if cache is not None:
            key = self.key(problem, answer, until)
            earlier = cache.get(key)
        if earlier is not None and self._still_holds(earlier, problem, answer):
            verdict = earlier.model_copy(update={"cached": True})
        else:
            verdict = self._without_cache(problem, answer, until)
        verdict = verdict.model_copy(update={"wall_s": time.monotonic() - start})
        if verdict.passed:
            self.known_good.learn(problem, answer, verdict.cpu_s)
        if cache is not None and not verdict.cached:
            cache.put(key, verdict)
        return verdict.noted(answer.notes)

    def _without_cache(self, problem: Problem, answer: Answer, until: Stage) -> Verdict:
        """Grade. An exception becomes an `infrastructure_error` verdict."""
        try:
            verdict = self._under_seeds(problem, answer, until)
            budget = self.budget(problem, answer)
            if budget and not budget.good_s and verdict.cpu_limit_s is not None:
                # Only the golden answer's CPU time tells how much this answer may use.
                self.grade(problem, Answer(files=problem.golden or {}))
                self.known_good.golden.setdefault(problem.fingerprint, NO_BUDGET)
                verdict = self._under_seeds(problem, answer, until)
            return verdict
        except InfrastructureError as error:
            reason = error.message
        except Exception as error:
            reason = f"the grader failed: {type(error).__name__}: {error}"
        return Verdict(
            outcome=Outcome.INFRASTRUCTURE_ERROR,
            stages=tuple(StageResult(stage=stage, status="skipped") for stage in Stage),
            reasons=(reason,),
            executor=self.executor.name,
            tools=self.tools,
            seed=self.seed,
        )

    def key(self, problem: Problem, answer: Answer, until: Stage | None = None) -> str:
        """Return the cache key of this grader's verdict on the answer's files, see `cache_key`."""
        conditions = self.conditions(problem, until)
        return cache_key(problem, answer.files, conditions, self.executor.name, self.tools)

    def conditions(
        self, problem: Problem, until: Stage | None = None, repeat: int = 1
    ) -> Conditions:
        """The conditions under which answers to a problem are graded."""
        return Conditions(
            seed=self.seed,
            seeds=seeds_for(problem, self.seeds),
            limits=self.limits,
            until=until or self.until,
            repeat=repeat,
        )

    def _under_seeds(self, problem: Problem, answer: Answer, until: Stage) -> Verdict:
        """Return the verdict of the first seed or, where the seed may decide, the verdict of the majority."""
        first = Grading(self, problem, answer, until, self.seed)
        verdict = first.run()
        verdicts = [verdict]
        may_vary = first.failed_tests and verdict.cpu_s <= MORE_SEEDS_SHARE * self.limits.cpu_s
        seeds = 1
        if may_vary:
            seeds = seeds_for(problem, self.seeds)
        majority = seeds // 2 + 1
        for seed in range(self.seed + 1, self.seed + seeds):
            passed = sum(each.passed for each in verdicts)
            if majority in (passed, len(verdicts) - passed):
                break
            verdicts.append(Grading(self, problem, answer, until, seed).run())
        passes = [each for each in verdicts if each.passed]
        if not passes:
            self._raise_if_the_harness_failed(first, verdict)
        if not passes or seeds == 1:
            return verdict
        note = f"the tests pass under {len(passes)} of {len(verdicts)} seeds"
        if len(passes) >= majority:
            verdict = passes[0]
        return verdict.model_copy(update={"reasons": (*verdict.reasons, note)})

    def _raise_if_the_harness_failed(self, grading: Grading, verdict: Verdict) -> None:
        """Blame the harness if an answer that no model wrote fails alike."""
        faults = [fault for fault in grading.faults if fault in self._faults(grading.problem)]
        if faults and self.excuses_answers:
            too_old = [reason for reason in verdict.reasons if TOO_OLD in reason]
            listed = "; ".join([*too_old, *faults][:8])
            raise InfrastructureError(f"{HARNESS_FAILED}: {listed}")

    def _faults(self, problem: Problem) -> list[str]:
        """The harness' possible faults (`own_faults`) with a stand-in for the answer; cached per problem."""
        if self.known_good.golden.get(problem.fingerprint, NO_BUDGET) != NO_BUDGET:
            return []
        grading = Grading(
            self, problem, Answer(files=stand_in(problem)), Stage.TESTS, self.seed
        )
        return self.once("faults", problem, grading.trial)

    def budget(self, problem: Problem, answer: Answer) -> Budget | None:
        """Return the CPU budget of an answer; None when no known-good answer sets one."""
        return self.known_good.budget(problem, answer, self.limits)

    def limit_s(self, budget: Budget | None) -> float:
        """CPU seconds that an answer with this budget may use."""
        if budget is None:
            return self.limits.cpu_s
        return budget.cpu_s

    def _still_holds(self, verdict: Verdict, problem: Problem, answer: Answer) -> bool:
        """Whether a cached verdict is still valid: it did not run out of CPU time, or the limit has not grown much."""
        if verdict.cpu_limit_s is None:
            return True
        return (
            self.limit_s(self.budget(problem, answer)) <= REGRADE_FACTOR * verdict.cpu_limit_s
        )

    def close(self) -> None:
        """End the analysis processes. The executor belongs to the caller."""
        self._analyst.close()

    def lacking(self, problem: Problem) -> list[str]:
        """Descriptions of what the harness needs and the executor lacks; cached per problem."""
        return self.once(
            "lacking",
            problem,
            lambda: missing_requirements(
                problem.harness, self.tools, self._has_module(problem)
            ),
        )

    def demanded_values(self, problem: Problem) -> dict[str, list[int]]:
        """See `interface_check.demanded_values`; cached per problem."""
        return self.once("demanded", problem, lambda: demanded_values(problem))

    def once(self, what: str, problem: Problem, find: Callable[[], _T]) -> _T:
        """Return the result of `find`, computed once per problem: other threads wait for it. What the latest
        problems need is kept."""
        # A golden answer found among samples comes with an interface but does not change the fingerprint.
        key = (what, problem.fingerprint, problem.interface, problem.golden is None)
        own: Future[_T] = Future()
        fact = self._facts.setdefault(key, own)
        if fact is own:
            try:
                own.set_result(find())
            except BaseException as error:
                self._facts.pop(key, None)
                own.set_exception(error)
        while len(self._facts) > MOST_FACTS:
            self._facts.pop(next(iter(self._facts)), None)
        return fact.result()

    def _has_module(self, problem: Problem) -> Callable[[str], bool]:
        """Return a check for the executor's modules. It accepts any module where an image with the harness'
        own is built later."""
        has_module = self.executor.has_module
        dockerfile = problem.harness.get("Dockerfile", "")
        if self.executor.derives_images and _INSTALLS.search(dockerfile):
            return lambda name: name != "cocotb.runner" or has_module(name)
        return has_module

    def is_valid(self, problem: Problem, files: Files) -> bool:
        """Whether slang finds no error in an answer's files with all HDL of the problem."""
        sources = {**problem.context, **files, **problem.harness}
        request = AnalysisRequest(answer=sources, top=None, design=(), validity=True)
        return self._analyst.analyse(request).valid

    def analyse(self, problem: Problem, files: Files) -> Analysis:
        """Read the interface of the requested module and screen the design, in an analysis process."""
        harness = problem.harness
        paths = [path for path in harness if path.endswith((".py", ".env"))]
        scripts = "\n".join(harness[path] for path in paths)
        context = macro_file(harness)
        for path, text in problem.context.items():
            context[path] = text if path.endswith(HDL_SUFFIXES) else ""
        # Testbenches that no harness compiles are not screened.
        design = [p for p in files if p.startswith("rtl/") or basename(p) in scripts]
        request = AnalysisRequest(
            answer=dict(files),
            context=context,
            top=problem.interface.module if problem.interface else None,
            design=tuple(design),
            harness=tuple(map(basename, harness)),
            several_tools=uses_several_tools(harness),
            constructs=proof_s(problem) > 0,
        )
        return self._analyst.analyse(request)


def seeds_for(problem: Problem, seeds: int) -> int:
    """Number of seeds to try: one if the harness draws no random numbers or the problem has a golden answer."""
    if problem.golden is None and draws_random(problem.harness):
        return seeds
    return 1
