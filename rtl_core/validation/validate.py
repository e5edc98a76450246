"""One problem's validation: does its harness tell right from wrong?

Cheap checks come first, and the first that decides ends the work:

1. The harness needs what the executor lacks, or asks for what it cannot do: `unsupported`.
2. The harness fails by itself, or the golden answer fails: `broken`; under some seeds only: `flaky`. Where there is no golden answer,
   a stub, or a module that merely elaborates, shows whether the harness begins at all.
3. No answer, the unmodified context or a stub is paid: `weak` (but for a stub that behaves as the golden answer does).
4. Mutants of the golden answer: `weak` when most of those that behave differently are paid.

What is left is `fit`, or `fit_without_golden` where there is no golden answer and so little could be shown.
The mutation score is killed / (killed + survived); mutants that do not compile, or that no input tells from the golden
answer (`differential.py`), say nothing of the harness and count on neither side.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rtl_core.equivalence.differential import Comparison, compare
from rtl_core.errors import InfrastructureError
from rtl_core.grading.compose import read_services
from rtl_core.grading.evidence import CONSTANT, HARNESS_FAILED
from rtl_core.grading.grader import Grader
from rtl_core.grading.stand_in import stand_in
from rtl_core.history.records import ValidationRecord, ValidationStatus
from rtl_core.problems.interface import describe_interface
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Outcome, Verdict
from rtl_core.validation.level import Level, golden_digest, tools_key
from rtl_core.validation.mutants import mutants
from rtl_core.validation.stubs import WITHOUT_DESIGN, in_words, kind_of, stubs

MOST = 0.5
"""A harness that pays more than this share of the mutants that behave differently is weak."""
MOST_GENERATED = 0.01
"""The same for generated problems, whose harnesses know the specification."""
WRONG_S = 60.0
"""Seconds that a wrong answer has where no golden answer tells how long a right one takes. The slowest known-good answer of the public
CVDP problems takes 59 s, and some harnesses wait for ever for an output that a stub never sets: 600 s each would take hours."""
_NOT_TESTED = {Outcome.COMPILE_FAILED, Outcome.INTERFACE_MISMATCH, Outcome.REJECTED, Outcome.NO_ANSWER}
_MISSING = ("ModuleNotFoundError", "No module named", "ImportError", "command not found", ": not found", "sorry:")


def validate_problem(problem: Problem, grader: Grader, *, level: Level, found_golden: bool = False) -> ValidationRecord:
    """Validate one problem. Synchronous; call it from a pool's thread.

    Args:
        problem: the problem, with its golden answer where there is one.
        grader: a grader, of which copies with other seeds are made.
        level: what to check.
        found_golden: whether the golden answer is a verified sample rather than the set's own.

    Raises:
        InfrastructureError: the executor failed for a reason that is not the problem's; worth trying again.
    """
    started = time.monotonic()
    # Without a cache: a verdict that may flip is found anew.
    first = grader.but(seed=level.seeds[0], cache=None)
    work = _Validation(problem, first, level)
    work.evidence["golden"] = {
        "source": None if problem.golden is None else "found" if found_golden else "given",
        "digest": golden_digest(problem),
    }
    try:
        status, reason = work.run()
    except _HarnessFailed as failure:
        status, reason = "broken", str(failure)
    tools = first.executor.tools()
    return ValidationRecord(
        fingerprint=problem.fingerprint,
        tools_key=tools_key(first.executor.name, tools, level),
        problem_id=problem.id,
        status=status,
        evidence={
            "reason": reason,
            "level": level.name,
            "source": problem.source,
            "family": problem.family,
            **work.evidence,
        },
        tools=tools,
        wall_s=time.monotonic() - started,
    )


def unsupported(problem: Problem, grader: Grader) -> str | None:
    """What the harness needs that the executor lacks, or asks for that it cannot do, in words; None where it can run. Nothing is simulated."""
    if lacking := grader.lacking(problem):
        return f"its harness needs {', '.join(lacking)}"
    try:
        read_services(problem.harness)
    except InfrastructureError as error:
        return error.message
    return None


class _HarnessFailed(Exception):
    """The harness cannot run here at all."""


@dataclass
class _Validation:
    problem: Problem
    first: Grader
    """The grader of the level's first seed."""
    level: Level
    evidence: dict[str, Any] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    """What verdicts say of tools that were not found."""

    def run(self) -> tuple[ValidationStatus, str]:
        problem = self.problem
        self.evidence["interface"] = describe_interface(problem)
        if reason := unsupported(problem, self.first):
            return "unsupported", reason
        if problem.golden is not None and (verdict := self._golden(problem.golden)):
            return verdict
        if verdict := self._nothing_new():
            return verdict
        if verdict := self._stubs():
            return verdict
        if problem.golden is None:
            if self.missed:
                return "unsupported", f"the executor's tools cannot do what the harness needs: {self.missed[0]}"
            return "fit_without_golden", "no golden answer: only wrong answers could be tried, and none was paid"
        return self._mutants(problem.golden)

    def _grade(self, files: Mapping[str, str], grader: Grader | None = None) -> Verdict:
        """A verdict that is one: an infrastructure error is raised, so that the whole is tried again."""
        verdict = (grader or self.first).grade(
            self.problem, Answer(files=dict(files), error=None if files else "nothing answered")
        )
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR and verdict.reasons[0].startswith(HARNESS_FAILED):
            raise _HarnessFailed(verdict.reasons[0])
        if verdict.outcome is Outcome.INFRASTRUCTURE_ERROR:
            raise InfrastructureError(f"{self.problem.id} cannot be validated: {'; '.join(verdict.reasons)}")
        self.missed += [reason for reason in verdict.reasons if any(word in reason for word in _MISSING)]
        return verdict

    def _golden(self, golden: Mapping[str, str]) -> tuple[ValidationStatus, str] | None:
        verdicts: list[Verdict] = []
        for seed in self.level.seeds:
            verdicts.append(self._grade(golden, self.first.but(seed=seed)))
            if len({v.passed for v in verdicts}) > 1:
                break
            if verdicts[-1].outcome in _NOT_TESTED:
                break  # found before any test ran: no seed changes that
        self.evidence["golden"] |= {
            "verdicts": [
                {"seed": v.seed, "outcome": v.outcome.value, "tests": f"{v.tests_passed}/{v.tests_total}"}
                for v in verdicts
            ],
            "wall_s": round(verdicts[0].wall_s, 3),
        }
        good = [v for v in verdicts if v.passed]
        bad = [v for v in verdicts if not v.passed]
        if not bad:
            self.evidence["golden"]["cpu_s"] = round(max(v.cpu_s for v in good), 3)
            return None
        why = f"{bad[0].outcome.value.replace('_', ' ')}: {'; '.join(bad[0].reasons[:3]) or 'no reason given'}"
        if good:
            seeds = f"seed {good[-1].seed} passes, seed {bad[-1].seed} fails"
            return "flaky", f"the golden answer passes {len(good)} of {len(verdicts)} gradings ({seeds}); {why}"
        if self.missed:
            return "unsupported", f"the executor's tools cannot do what the problem needs; {why}"
        return "broken", f"the golden answer fails: {why}"

    def _nothing_new(self) -> tuple[ValidationStatus, str] | None:
        """No answer at all, and the files as they were given."""
        empty = self._grade({})
        self.evidence["empty"] = empty.outcome.value
        if empty.passed:
            return "weak", "no answer at all is paid"
        given = {path: self.problem.context[path] for path in self.problem.targets if path in self.problem.context}
        if len(given) == len(self.problem.targets):
            unmodified = self._grade(given, self._hasty())
            self.evidence["unmodified_context"] = _pay(unmodified)
            if _paid(unmodified):
                return "weak", "the unmodified context is paid"
        return None

    def _stubs(self) -> tuple[ValidationStatus, str] | None:
        wanted = self.level.stubs_for(self.problem)
        made = stubs(self.problem) if wanted else None
        if made is None:
            return None
        files = made.of(wanted)
        told: dict[str, str] = {}
        if not files:
            told["none"] = made.reason
            if hollow := stand_in(self.problem.model_copy(update={"golden": None})):
                verdict = self._grade(hollow, self._hasty())
                told["empty module"] = _pay(verdict)
                if _paid(verdict):
                    self.evidence["stubs"] = told
                    return "weak", "a module without contents is paid"
        paid: tuple[ValidationStatus, str] | None = None
        hasty = self._hasty()
        for name, answer in files.items():
            verdict = self._grade(answer, hasty)
            told[name] = _pay(verdict)
            if _paid(verdict) and paid is None:
                # A pulse is only there to look alive: what counts is the constant that it decorates.
                compared = self._compare(made.files["zeros"] if name == "blip" else answer)
                told[name] += f" ({compared.result}: {compared.detail})" if compared else ""
                if _held_against(name, compared):
                    witness = (
                        f"; it differs from the golden answer {compared.detail}"
                        if compared and compared.result == "different"
                        else ""
                    )
                    paid = "weak", f"a stub is paid: {in_words(name)}{witness}"
        self.evidence["stubs"] = told
        return paid

    def _hasty(self) -> Grader:
        """A grader for wrong answers: one that never ends must not cost what a harness may. A golden answer limits them anyway."""
        if self.problem.golden is not None:
            return self.first
        limits = self.first.limits
        most = {name: min(getattr(limits, name), WRONG_S) for name in ("wall_s", "cpu_s")}
        return self.first.but(limits=limits.model_copy(update=most))

    def _compare(self, answer: Mapping[str, str]) -> Comparison | None:
        if self.problem.golden is None:
            return None
        return compare(self.first.executor, self.problem, self.problem.golden, answer, self.first.limits)

    def _mutants(self, golden: Mapping[str, str]) -> tuple[ValidationStatus, str]:
        wanted = self.level.mutants
        if not wanted:
            return "fit", "the golden answer passes and wrong ones fail; no mutant was tried"
        if self.problem.interface is None:
            self.evidence["mutants"] = {"note": "the interface of the top module is not known"}
            return "fit", "the golden answer passes and wrong ones fail; no mutant could be made"
        hasty = self._hasty()
        void = 0
        tried: Counter[str] = Counter()
        killed: Counter[str] = Counter()
        survivors: list[dict[str, str]] = []
        same: list[str] = []
        candidates = mutants(golden, self.problem.interface.module, 3 * wanted, int(self.problem.fingerprint[:8], 16))
        for mutant in candidates:
            if tried.total() >= wanted:
                break
            verdict = self._grade(mutant.files, hasty)
            if verdict.outcome in _NOT_TESTED:
                void += 1
                continue
            if verdict.passed:
                compared = self._compare(mutant.files)
                if compared and compared.agrees:
                    same.append(mutant.description)
                    continue
                survivors.append(
                    {"mutant": mutant.description, "kind": mutant.kind, "told": compared.detail if compared else ""}
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
        most = MOST_GENERATED if self.problem.generated else MOST
        if score is not None and 1 - score > most:
            return "weak", f"{len(survivors)} of {judged} mutants are paid, for example {survivors[0]['mutant']}"
        if judged == 0:
            return "fit", "the golden answer passes and wrong ones fail; no mutant could be judged"
        return "fit", f"the golden answer passes, {killed.total()} of {judged} mutants fail"


def _held_against(name: str, compared: Comparison | None) -> bool:
    """Whether a stub that is paid makes a problem weak: one that behaves as the golden answer does never, one that holds no design
    already where nothing could be compared."""
    if kind_of(name) in WITHOUT_DESIGN:
        return compared is None or not compared.agrees
    return compared is not None and compared.result == "different"


def _paid(verdict: Verdict) -> bool:
    """Whether the harness pays an answer, be it that the grader's own look at its outputs still refuses it."""
    return verdict.passed or CONSTANT in verdict.reasons


def _pay(verdict: Verdict) -> str:
    if CONSTANT in verdict.reasons:
        return "passed by the harness, refused by the grader as a constant"
    return verdict.outcome.value
