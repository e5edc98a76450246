"""Counts of a problem set: by source, task, size, judge and licence, and the reasons for leaving out."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from rtl_grader.hdl.text import code_of
from rtl_grader.problems.judged import JUDGE_FILE, is_judged
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.types.problem import CATEGORIES, Problem

_ENDS = (0, 10, 30, 100, 300, 1000)
"""Upper ends of the classes of sizes."""
_CLASSES = (
    "0",
    "1 to 10",
    "11 to 30",
    "31 to 100",
    "101 to 300",
    "301 to 1,000",
    "above 1,000",
)
_REGISTER = re.compile(r"(?:[;:)]|\bbegin|\belse)\s*([A-Za-z_]\w*)\s*(?:\[[^;]*?\]\s*)?<=")
_CLOCKED = re.compile(r"@\s*\(\s*(?:pos|neg)edge\b")
_JUDGES = {
    "never": "golden answer: simulated",
    "undecided": "golden answer: simulated, proved where undecided",
    "passes": "golden answer: simulated, passes proved",
}
"""Setting `proof` of a judged problem -> its judge in words."""


def statistics(loaded: LoadedProblems) -> dict[str, Counter[str]]:
    """What is counted -> value -> number of problems, of entries left out, or of broken lines. Sizes are
    those of golden answers; registers are the names that are assigned with `<=` in a file with a clock."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for problem in loaded.every:
        for aspect, value in _aspects(problem):
            counts[aspect][value] += 1
    counts["left out"].update(entry.reason for entry in loaded.left_out)
    counts["broken lines"].update(line.fault for line in loaded.broken)
    return {aspect: values for aspect, values in counts.items() if values}


def in_order(values: Counter[str], most: int = 20) -> dict[str, int]:
    """Sizes in their order, other values by frequency; the rarest of more than `most` are summed up."""
    if values.keys() <= {*_CLASSES}:
        return {name: values[name] for name in _CLASSES if name in values}
    shown = dict(values.most_common(most))
    if len(shown) < len(values):
        others = f"{len(values) - most:,} others"
        shown[others] = values.total() - sum(shown.values())
    return shown


def _aspects(problem: Problem) -> Iterator[tuple[str, str]]:
    yield "source", problem.source
    yield "task", problem.family or CATEGORIES.get(problem.category, problem.category)
    yield "category", problem.category
    yield "difficulty", problem.difficulty
    yield "judge", _judge(problem.harness)
    yield "licence", problem.licence or "not stated"
    codes = [code_of(text) for text in (problem.golden or {}).values()]
    if codes:
        lines = sum(bool(line.strip()) for code in codes for line in code.splitlines())
        names = (set(_REGISTER.findall(code)) for code in codes if _CLOCKED.search(code))
        yield "lines of code", _class_of(lines)
        yield "registers", _class_of(sum(map(len, names)))


def _judge(harness: Mapping[str, str]) -> str:
    if not is_judged(harness):
        return "harness"
    return _JUDGES[json.loads(harness[JUDGE_FILE])["judging"]["proof"]]


def _class_of(size: int) -> str:
    return _CLASSES[bisect_left(_ENDS, size)]
