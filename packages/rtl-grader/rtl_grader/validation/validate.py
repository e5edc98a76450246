"""Validation of one problem: can its harness tell right from wrong?

Cheap checks come first, and the first one that decides ends the validation:

1. The harness needs something that the executor lacks or cannot do: `unsupported`.
2. The harness itself or the golden answer fails: `broken`; only under some seeds: `flaky`. Without a golden
   answer, a stub or an empty module shows whether the harness starts at all.
3. No answer, the unmodified context or a stub passes: `weak`, unless the stub behaves like the golden answer.
4. Too many mutants of the golden answer that behave differently pass: `weak`.

All other problems are `fit`, or `fit_without_golden` if there is no golden answer, in which case less could be checked.
The mutation score is killed / (killed + survived). It ignores mutants that do not compile, and mutants that no input
distinguishes from the golden answer (`differential.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from rtl_grader.equivalence.differential import Comparison, compare
from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.compose import read_services
from rtl_grader.grading.evidence import CONSTANT, FORGEABLE, HARNESS_FAILED, TOO_OLD
from rtl_grader.grading.grader import Grader
from rtl_grader.grading.stand_in import stand_in
from rtl_grader.problems.interface import describe_interface
from rtl_grader.types.answer import Answer
from rtl_grader.types.files import Files
from rtl_grader.types.problem import MASKED, Problem
from rtl_grader.types.verdict import Outcome, Verdict
from rtl_grader.validation.level import Level, golden_digest, tools_key
from rtl_grader.validation.mutants import mutants
from rtl_grader.validation.record import ValidationRecord, ValidationStatus
from rtl_grader.validation.stubs import WITHOUT_DESIGN, in_words, kind_of, stubs

MOST = 0.5
"""Largest share of mutants with different behaviour that a harness may accept without being weak."""
MOST_GENERATED = 0.01
"""The same for generated problems, whose harnesses know the specification."""
WRONG_S = 60.0
"""Timeout in seconds of wrong answers to problems without a golden answer. The slowest known-good answer of
the public CVDP problems takes 59 s, and some harnesses wait forever for an output that a stub never sets,
so that 600 s for each would take hours."""
Finding = tuple[ValidationStatus, str]
"""A status, and its reason in words."""
_NOT_TESTED = {
    Outcome.COMPILE_FAILED,
    Outcome.INTERFACE_MISMATCH,
    Outcome.REJECTED,
    Outcome.NO_ANSWER,
}
_MISSING = (
    "ModuleNotFoundError",
    "No module named",
    "ImportError",
    "command not found",
    ": not found",
    "sorry:",
    TOO_OLD,
)


def validate_problem(
    problem: Problem, grader: Grader, *, level: Level, found_golden: bool = False
) -> ValidationRecord:
    """Validate one problem. Blocking; call it from a pool thread.

    Args:
        problem: the problem, with its golden answer if there is one.
        grader: a grader, which is copied for other seeds.
        level: what to check.
        found_golden: whether the golden answer is a verified sample and not the problem set's own.

    Raises:
        InfrastructureError: the executor failed for a reason unrelated to the problem; retry.
    """
    started = time.monotonic()
    # No cache, because verdicts may flip.
    first = grader.but(seed=level.seeds[0], cache=None)
    work = _Validation(problem, first, level)
    work.evidence["golden"] = {
        "source": None if problem.golden is None else "found" if found_golden else "given",
        "digest": golden_digest(problem),
    }
    try:
        status, reason = work.run()
    except _HarnessFailed as failure:
        status, reason = "unsupported" if work.missed else "broken", str(failure)
    tools = first.executor.tools()
    about = {
        "reason": reason,
        "level": level.name,
        "source": problem.source,
        "family": problem.family,
    }
    return ValidationRecord(
        fingerprint=problem.fingerprint,
        tools_key=tools_key(first.executor.name, tools, level),
        problem_id=problem.id,
        status=status,
        evidence={**about, **work.evidence},
        tools=tools,
        wall_s=time.monotonic() - started,
    )


def unsupported(problem: Problem, grader: Grader) -> str | None:
    """Why the executor cannot run the problem's harness; None if it can. Nothing is simulated."""
    if lacking := grader.lacking(problem):
        return f"its harness needs {', '.join(lacking)}"
    try:
        read_services(problem.harness)
    except InfrastructureError as error:
        return error.message
    return None


class _HarnessFailed(Exception):
    """The harness cannot run at all, or a design can forge its verdict."""


@dataclass
class _Validation:
    problem: Problem
    first: Grader
    """Grader with the level's first seed."""
    level: Level
    evidence: dict[str, Any] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    """Messages in verdicts about missing tools."""

    def run(self) -> Finding:
        golden = self.problem.golden
        self.evidence["interface"] = describe_interface(self.problem)
        if reason := unsupported(self.problem, self.first):
            return "unsupported", reason
        golden_fails = None if golden is None else self._golden(golden)
        if unfit := golden_fails or self._trivial_answers() or self._stubs():
            return unfit
        if golden is None:
            if self.missed:
                return (
                    "unsupported",
                    f"the executor's tools cannot do what the harness needs: {self.missed[0]}",
                )
            return (
                "fit_without_golden",
                "no golden answer: only wrong answers could be tried, and none was paid",
            )
        return self._mutants(golden)

    def _grade(self, files: Files, grader: Grader | None = None) -> Verdict:
        """Grade files. Infrastructure errors are raised, so that the validation can be retried."""
        verdict = (grader or self.first).grade(
            self.problem, Answer(files=dict(files), error=None if files else "nothing answered")
        )
        self.missed += [
            reason for reason in verdict.reasons if any(word in reason for word in _MISSING)
        ]
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR and verdict.reasons[0].startswith(
            (HARNESS_FAILED, FORGEABLE)
        ):
            raise _HarnessFailed(verdict.reasons[0])
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            raise InfrastructureError(
                f"{self.problem.id} cannot be validated: {'; '.join(verdict.reasons)}"
            )
        return verdict

    def _golden(self, golden: Files) -> Finding | None:
        verdicts: list[Verdict] = []
        for seed in self.level.seeds:
            verdicts.append(
                self._grade(golden, self.first.but(seed=seed, excuses_answers=False))
            )
            # If no test ran, seeds make no difference.
            if len({v.passed for v in verdicts}) > 1 or verdicts[-1].outcome in _NOT_TESTED:
                break
        self.evidence["golden"] |= {
            "verdicts": [
                {
                    "seed": v.seed,
                    "outcome": v.outcome.value,
                    "tests": f"{v.tests_passed}/{v.tests_total}",
                }
                for v in verdicts
            ],
            "wall_s": round(verdicts[0].wall_s, 3),
        }
        good = [v for v in verdicts if v.passed]
        bad = [v for v in verdicts if not v.passed]
        if not bad:
            self.evidence["golden"]["cpu_s"] = round(max(v.cpu_s for v in good), 3)
            return None
        outcome = bad[0].outcome.value.replace("_", " ")
        reasons = "; ".join(bad[0].reasons[:3])
        why = f"{outcome}: {reasons or 'no reason given'}"
        if good:
            seeds = f"seed {good[-1].seed} passes, seed {bad[-1].seed} fails"
            return (
                "flaky",
                f"the golden answer passes {len(good)} of {len(verdicts)} gradings ({seeds}); {why}",
            )
        if self.missed:
            return (
                "unsupported",
                f"the executor's tools cannot do what the problem needs; {why}",
            )
        return "broken", f"the golden answer fails: {why}"

    def _trivial_answers(self) -> Finding | None:
        """Grade an empty answer, the unmodified context, and a mask with nothing in its place."""
        empty = self._grade({})
        self.evidence["empty"] = empty.outcome.value
        if empty.passed:
            return "weak", "no answer at all is paid"
        unmodified = {
            path: self.problem.context[path]
            for path in self.problem.targets
            if path in self.problem.context
        }
        if len(unmodified) == len(self.problem.targets):
            verdict = self._grade(unmodified, self._impatient())
            self.evidence["unmodified_context"] = _result(verdict)
            if _accepted(verdict):
                return "weak", "the unmodified context is paid"
        return self._empty_mask()

    def _empty_mask(self) -> Finding | None:
        """A masked part that does nothing for the outputs: a message, an assertion, a branch that is not taken."""
        for text in ("", ";") if self.problem.frame else ():
            files = {}
            for path, frame in self.problem.frame.items():
                files[path] = frame.replace(MASKED, text)
            verdict = self._grade(files, self._impatient())
            self.evidence["empty_mask"] = _result(verdict)
            if _accepted(verdict):
                return "weak", "nothing in place of the masked part is paid"
            if verdict.outcome is not Outcome.COMPILE_FAILED:
                break
        return None

    def _stubs(self) -> Finding | None:
        kinds = self.level.stubs_for(self.problem)
        if not kinds:
            return None
        every, grader = stubs(self.problem), self._impatient()
        files = every.of(kinds)
        results: dict[str, str] = {}
        weak: Finding | None = None
        if not files:
            results["none"] = every.reason
            if empty_module := stand_in(self.problem.model_copy(update={"golden": None})):
                verdict = self._grade(empty_module, grader)
                results["empty module"] = _result(verdict)
                if _accepted(verdict):
                    weak = "weak", "a module without contents is paid"
        for name, answer in files.items():
            verdict = self._grade(answer, grader)
            results[name] = _result(verdict)
            if _accepted(verdict) and weak is None:
                # The pulse only decorates a constant; the constant is compared.
                compared = self._compare(every.files["zeros"] if name == "blip" else answer)
                results[name] += f" ({compared.result}: {compared.detail})" if compared else ""
                if _counts_as_weak(name, compared):
                    witness = ""
                    if compared and compared.result == "different":
                        witness = f"; it differs from the golden answer {compared.detail}"
                    weak = "weak", f"a stub is paid: {in_words(name)}{witness}"
        self.evidence["stubs"] = results
        return weak

    def _impatient(self) -> Grader:
        """Grader for wrong answers, with a short timeout. If there is a golden answer, its time limits them anyway."""
        if self.problem.golden is not None:
            return self.first
        limits = self.first.limits
        most = {name: min(getattr(limits, name), WRONG_S) for name in ("wall_s", "cpu_s")}
        return self.first.but(limits=limits.model_copy(update=most))

    def _compare(self, answer: Files) -> Comparison | None:
        if self.problem.golden is None:
            return None
        return compare(
            self.first.executor, self.problem, self.problem.golden, answer, self.first.limits
        )

    def _mutants(self, golden: Files) -> Finding:
        limit = self.level.mutants
        if not limit:
            return "fit", "the golden answer passes and wrong ones fail; no mutant was tried"
        if self.problem.interface is None:
            self.evidence["mutants"] = {"note": "the interface of the top module is not known"}
            return (
                "fit",
                "the golden answer passes and wrong ones fail; no mutant could be made",
            )
        grader = self._impatient()
        void = 0
        tried, killed = Counter[str](), Counter[str]()
        survivors: list[dict[str, str]] = []
        same: list[str] = []
        candidates = mutants(
            golden,
            self.problem.interface.module,
            3 * limit,
            int(self.problem.fingerprint[:8], 16),
        )
        for mutant in candidates:
            if tried.total() >= limit:
                break
            verdict = self._grade(mutant.files, grader)
            if verdict.outcome in _NOT_TESTED:
                void += 1
                continue
            if verdict.passed:
                compared = self._compare(mutant.files)
                if compared and compared.agrees:
                    same.append(mutant.description)
                    continue
                witness = compared.detail if compared else ""
                survivors.append(
                    {"mutant": mutant.description, "kind": mutant.kind, "told": witness}
                )
            tried[mutant.kind] += 1
            killed[mutant.kind] += not verdict.passed
        judged = tried.total()
        score = killed.total() / judged if judged else None
        self.evidence["mutants"] = {
            "killed": killed.total(),
            "survived": len(survivors),
            "equivalent": len(same),
            "void": void,
            "score": score,
            "by_kind": {kind: f"{killed[kind]}/{total}" for kind, total in tried.items()},
            "survivors": survivors[:10],
            "equivalents": same[:10],
        }
        if score is None:
            return (
                "fit",
                "the golden answer passes and wrong ones fail; no mutant could be judged",
            )
        most = MOST_GENERATED if self.problem.generated else MOST
        if 1 - score > most:
            paid = f"{len(survivors)} of {judged} mutants are paid"
            return "weak", f"{paid}, for example {survivors[0]['mutant']}"
        return "fit", f"the golden answer passes, {killed.total()} of {judged} mutants fail"


def _counts_as_weak(name: str, compared: Comparison | None) -> bool:
    """Whether an accepted stub makes a problem weak. A stub without design does unless it agrees with the
    golden answer; any other stub only if it is known to differ."""
    if kind_of(name) in WITHOUT_DESIGN:
        return compared is None or not compared.agrees
    return compared is not None and compared.result == "different"


def _accepted(verdict: Verdict) -> bool:
    """Whether the harness accepts an answer, even if the grader's own check of its outputs rejects it."""
    return verdict.passed or CONSTANT in verdict.reasons


def _result(verdict: Verdict) -> str:
    if CONSTANT in verdict.reasons:
        return "passed by the harness, refused by the grader as a constant"
    return verdict.outcome.value
