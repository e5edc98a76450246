"""From an answer to a verdict: one grading (stages.py), with the cache, the seeds and what is known of a problem."""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rtl_core.errors import InfrastructureError
from rtl_core.grading.analysis import Analysis, AnalysisRequest, Analyst
from rtl_core.grading.cache import MemoryCache, cache_key
from rtl_core.grading.executors.base import Executor
from rtl_core.grading.interface_check import demanded_values
from rtl_core.grading.limits import Budget, KnownGood, Limits
from rtl_core.grading.requirements import draws_random, missing_requirements, uses_several_tools
from rtl_core.grading.stages import Grading
from rtl_core.grading.stand_in import stand_in
from rtl_core.problems.interface import HDL_SUFFIXES
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Stage, StageResult, Verdict

MUCH = 2.0
"""A cached verdict on an answer that ran out of CPU time is not served where it may use more than so many times as much."""
PATIENCE = 0.25
"""An answer is tried with further seeds only when the first took no more than this part of the limit of CPU time."""
_T = TypeVar("_T")


class Grader:
    """Grades answers. Thread-safe: call it from as many threads as there are cores.

    `until` is the last stage to be graded (`Stage.SYNTAX` compiles only, for early training); an answer that gets
    through all graded stages is `passed` only when that stage is TESTS, else `not_tested`.

    `seed` is what harnesses draw their random numbers from. Some fail right designs under some seeds. A golden answer shows
    that when the problem is validated; without one, an answer whose tests fail is tried with further seeds until a
    majority of `seeds` says the same. 1 asks the first seed alone, as the public runner does.

    `known_good` tells what CPU time known-good answers took, by which others are limited (limits.py). The grader adds what
    it sees pass.
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
        self._known: dict[tuple[object, ...], Any] = {}
        """What was looked up of problems, see `_once`."""

    def but(self, **changes: Any) -> Grader:
        """A grader with other settings or another executor, which shares the analysis processes and all else with this one."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    def grade(self, problem: Problem, answer: Answer, until: Stage | None = None) -> Verdict:
        """The verdict on one answer, graded to the stage `until` (None: the grader's own).

        Never raises for what a model wrote or for what fails underneath.
        """
        started = time.monotonic()
        until = until or self.until
        cache = self.cache if answer.files else None
        key = "" if cache is None else self.key(problem, answer, until)
        known = None if cache is None else cache.get(key)
        if known is not None and self._still_holds(known, problem, answer):
            self._learn(problem, answer, known)
            return known.model_copy(update={"cached": True, "wall_s": time.monotonic() - started})
        try:
            verdict = self._under_seeds(problem, answer, until)
        except InfrastructureError as error:
            verdict = self._infrastructure_error(error.message)
        except Exception as error:
            verdict = self._infrastructure_error(f"the grader failed: {type(error).__name__}: {error}")
        verdict = verdict.model_copy(update={"wall_s": time.monotonic() - started})
        self._learn(problem, answer, verdict)
        if cache is not None:
            cache.put(key, verdict)
        return verdict

    def key(self, problem: Problem, answer: Answer, until: Stage | None = None) -> str:
        """See `cache_key`: a hash over all that decides this grader's verdict on the answer's files."""
        return cache_key(
            problem,
            answer.files,
            executor=self.executor.name,
            tools=self.tools,
            seed=self.seed,
            seeds=seeds_for(problem, self.seeds),
            limits=self.limits,
            until=until or self.until,
        )

    def _under_seeds(self, problem: Problem, answer: Answer, until: Stage) -> Verdict:
        """The verdict under the first seed or, where that may hang on the seed, what the majority of seeds says."""
        first = Grading(self, problem, answer, until, self.seed)
        verdict = first.run()
        if not first.failed_tests or verdict.cpu_s > PATIENCE * self.limits.cpu_s:
            return verdict
        seeds = seeds_for(problem, self.seeds)
        verdicts = [verdict]
        needed = seeds // 2 + 1
        for number in range(1, seeds):
            passed = sum(found.passed for found in verdicts)
            if needed in (passed, len(verdicts) - passed):
                break
            verdicts.append(Grading(self, problem, answer, until, self.seed + number).run())
        passes = [found for found in verdicts if found.passed]
        if not passes:
            return verdict
        said = f"the tests pass under {len(passes)} of {len(verdicts)} seeds"
        verdict = passes[0] if len(passes) >= needed else verdict
        return verdict.model_copy(update={"reasons": (*verdict.reasons, said)})

    def budget(self, problem: Problem, answer: Answer) -> Budget | None:
        """What an answer may use of CPU time, as far as known-good answers tell."""
        return self.known_good.budget(problem, answer, self.limits)

    def limit_s(self, budget: Budget | None) -> float:
        """The CPU seconds of an answer with that budget."""
        return self.limits.cpu_s if budget is None else budget.cpu_s

    def _learn(self, problem: Problem, answer: Answer, verdict: Verdict) -> None:
        if verdict.passed:
            self.known_good.learn(problem, answer, verdict.cpu_s)

    def _still_holds(self, known: Verdict, problem: Problem, answer: Answer) -> bool:
        """Whether grading would say the same as a cached verdict: where CPU time ran out, only if there is not much more of it now."""
        return known.cpu_limit_s is None or self.limit_s(self.budget(problem, answer)) <= MUCH * known.cpu_limit_s

    def close(self) -> None:
        """Ends the helpers of the grader; the executor belongs to the caller."""
        self._analyst.close()

    def lacking(self, problem: Problem) -> list[str]:
        """What the harness needs and the executor lacks, in words; looked up once a problem."""
        return self._once(
            "lacking",
            problem,
            lambda: missing_requirements(problem.harness, self.tools, self._has_module(problem)),
        )

    def demanded(self, problem: Problem) -> dict[str, list[int]]:
        """See `demanded_values`; looked up once a problem."""
        return self._once("demanded", problem, lambda: demanded_values(problem))

    def reach(self, problem: Problem) -> int:
        """How far the harness comes with an answer that no model wrote (`StepResult.reach`); looked up once a problem.

        It tells the harness' own failure from one that an answer brought about.
        """
        return self._once(
            "reach",
            problem,
            lambda: Grading(self, problem, Answer(files=stand_in(problem)), Stage.TESTS, self.seed).reach(),
        )

    def _once(self, what: str, problem: Problem, find: Callable[[], _T]) -> _T:
        """What `find` returns, remembered for the problem. Two threads may both look; they find the same."""
        # A golden answer that was found in samples brings an interface with it, and changes no fingerprint.
        key = (what, problem.fingerprint, problem.interface, problem.golden is None)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _has_module(self, problem: Problem) -> Callable[[str], bool]:
        """Modules that the executor has; where it derives images, what the harness' Dockerfile installs is found out then."""
        if self.executor.derives_images and re.search(
            r"^\s*RUN\b.*\binstall\b", problem.harness.get("Dockerfile", ""), re.M
        ):
            return lambda name: name != "cocotb.runner" or self.executor.has_module(name)
        return self.executor.has_module

    def analyse(self, problem: Problem, files: Mapping[str, str]) -> Analysis:
        python = "\n".join(text for path, text in problem.harness.items() if path.endswith((".py", ".env")))
        return self._analyst.analyse(
            AnalysisRequest(
                answer=dict(files),
                context={p: text if p.endswith(HDL_SUFFIXES) else "" for p, text in problem.context.items()},
                top=problem.interface.module if problem.interface else None,
                # A testbench that no harness compiles may do what testbenches do.
                design=tuple(p for p in files if p.startswith("rtl/") or p.rsplit("/", 1)[-1] in python),
                harness=tuple(path.rsplit("/", 1)[-1] for path in problem.harness),
                several_tools=uses_several_tools(problem.harness),
            )
        )

    def _infrastructure_error(self, reason: str) -> Verdict:
        return Verdict(
            outcome=Outcome.INFRASTRUCTURE_ERROR,
            stages=tuple(StageResult(stage=stage, status="skipped") for stage in Stage),
            reasons=(reason,),
            executor=self.executor.name,
            tools=self.tools,
            seed=self.seed,
        )


def seeds_for(problem: Problem, seeds: int) -> int:
    """Under how many of `seeds` an answer may be tried: one, where a golden answer has shown that the seed decides nothing."""
    return seeds if problem.golden is None and draws_random(problem.harness) else 1


async def grade_all(
    grader: Grader, pool: ThreadPoolExecutor, problem: Problem, answers: Sequence[Answer], until: Stage | None = None
) -> list[Verdict]:
    """Verdicts on answers to one problem, in order. Equal answers are graded once; the verdicts of all but the first are `cached`.

    `until` is the last stage that is graded (None: the grader's own). Does not raise: a failure of grading is a verdict, too.
    """
    names = [repr(answer) for answer in answers]
    distinct = dict(zip(names, answers, strict=True))
    loop = asyncio.get_running_loop()
    gradings = (loop.run_in_executor(pool, grader.grade, problem, answer, until) for answer in distinct.values())
    by_name = dict(zip(distinct, await asyncio.gather(*gradings), strict=True))
    verdicts = []
    for name in names:
        verdicts.append(by_name[name])
        by_name[name] = by_name[name].model_copy(update={"cached": True, "wall_s": 0.0})
    return verdicts
