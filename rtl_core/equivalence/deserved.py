"""Were the passes of a problem deserved: each held against the golden answer, or against one another where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rtl_core.equivalence.consensus import places
from rtl_core.equivalence.differential import alike_but_for, compare
from rtl_core.equivalence.pair import Comparison, Result
from rtl_core.equivalence.side_by_side import Effort, Trace
from rtl_core.grading.executors.base import Executor
from rtl_core.grading.limits import Limits
from rtl_core.prompting.verilog_text import bare
from rtl_core.types.problem import Problem

Files = Mapping[str, str]


@dataclass(frozen=True)
class Deserved:
    """What is known of one passing answer. `different` is doubtful: paid, and unlike the golden answer or the majority."""

    result: Result
    method: Literal["proof", "simulation", "consensus"]
    detail: str
    share: float | None = None
    """By consensus: the share of the independent texts that behave alike."""
    depth: int | None = None
    """Clock cycles for which equality is proved, where it is for so many alone."""
    trace: Trace = ()
    """The shortest inputs that show the difference, where model checking found them."""
    cpu_s: float = 0.0

    @classmethod
    def of(cls, found: Comparison) -> Deserved:
        return cls(found.result, found.by, found.detail, None, found.depth, found.trace, found.cpu_s)


def by_golden(executor: Executor, problem: Problem, files: Files, limits: Limits, effort: Effort) -> Deserved:
    """Hold one answer against the golden one. Raises InfrastructureError where the executor fails."""
    assert problem.golden is not None
    if not files:
        return Deserved("unknown", "simulation", "the answer has no file that could be simulated")
    return Deserved.of(compare(executor, problem, problem.golden, files, limits, effort=effort))


def by_consensus(
    executor: Executor, as_golden: Callable[[Files], Problem], answers: Sequence[Files], limits: Limits, effort: Effort
) -> list[Deserved]:
    """Hold the passing answers of one problem against one another. Copies of one text count once.

    Args:
        as_golden: the problem with one of the answers for a golden one, and the interface that it has.

    Raises InfrastructureError where the executor fails.
    """
    copies: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for number, files in enumerate(answers):
        copies.setdefault(tuple(sorted((path, words_of(text)) for path, text in files.items())), []).append(number)
    texts = [answers[numbers[0]] for numbers in copies.values()]
    spent = 0.0

    def held(golden: int, other: int) -> Comparison:
        nonlocal spent
        found = compare(executor, as_golden(texts[golden]), texts[golden], texts[other], limits, effort=effort)
        spent += found.cpu_s
        if found.result == "different" and (
            alike := alike_but_for(executor, as_golden(texts[golden]), texts[golden], texts[other], limits, effort)
        ):
            found = alike
        return found

    if len(texts) == 1:
        one = Deserved("unknown", "consensus", "no other text passed", 1.0)
        return [one] * len(answers)
    found = places([1] * len(texts), held)
    told: list[Deserved] = [Deserved("unknown", "consensus", "")] * len(answers)
    for place, numbers in zip(found, copies.values(), strict=True):
        one = Deserved(place.result, "consensus", place.detail, place.share, trace=place.trace)
        for number in numbers:
            told[number] = replace(one, cpu_s=spent / len(answers))
    return told


def words_of(text: str) -> str:
    """The text without comments and with single blanks: what is left of two copies is the same."""
    return " ".join(bare(text)[0].split())
