"""An evaluation in detail: pass@k by source, difficulty, category and family, and paired comparisons with
other evaluations of its split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.learning.intervals import Interval, PairedResult
from rtl_core.learning.passk import pass_at_k_interval
from rtl_core.reporting import blocks
from rtl_core.reporting.console import rich_table
from rtl_core.reporting.evaluations import (
    cost_of,
    counts_of,
    kind_in_words,
    paired_rates,
    rates_of,
)
from rtl_core.reporting.text import paired_in_words, rate_in_words
from rtl_grader.types.problem import Problem
from rtl_grader.words import counted

Counts = Mapping[str, tuple[int, int]]
"""Problem id -> (samples, passed)."""
_KINDS = ("source", "difficulty", "category", "family")


@dataclass(frozen=True)
class Slice:
    """pass@k over a subset of an evaluation's problems, with 95 % intervals over problems."""

    kind: str
    """`all`, `faults` (known ones of published sets), `source`, `difficulty`, `category` or `family`."""
    name: str
    n: int
    pass_at: dict[int, Interval]


def slices(
    counts: Counts,
    problems: Mapping[str, Any],
    ks: Sequence[int],
    faulty: Collection[str] = (),
) -> list[Slice]:
    """A slice of all problems, then one of those that are not `faulty`, and one for each source, difficulty, category
    and family, if it is a proper subset. Problems that are not in `problems` count only in the first two."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for problem_id in counts:
        groups["all", "all problems"].append(problem_id)
        if problem_id not in faulty:
            groups["faults", "without known faults"].append(problem_id)
        for kind in _KINDS:
            if problem_id in problems and (name := getattr(problems[problem_id], kind)):
                groups[kind, name].append(problem_id)
    parts = []
    for kind, name in sorted(groups, key=_place):
        ids = groups[kind, name]
        if kind != "all" and len(ids) == len(counts):
            continue
        own = [counts[p] for p in ids]
        samples, _ = min(own)
        rates = {k: pass_at_k_interval(own, k) for k in ks if k <= samples}
        parts.append(Slice(kind, name, len(ids), rates))
    return parts


def _place(group: tuple[str, str]) -> tuple[int, str]:
    """Place of a (kind, name) in the order of slices."""
    kind, name = group
    ranks = {"easy": "0", "medium": "1", "hard": "2"}
    return ("all", "faults", *_KINDS).index(kind), ranks.get(name, name)


def comparisons(history: History, record: EvaluationRecord) -> list[tuple[str, PairedResult]]:
    """(other evaluation in words, this one minus it) for each other finished evaluation of the run and
    split, over shared problems."""
    ours = rates_of(counts_of(history, record))
    tests = []
    for other in history.evaluations(record.run):
        if other.key == record.key or other.status != "done" or other.split != record.split:
            continue
        if test := paired_rates(rates_of(counts_of(history, other)), ours):
            tests.append((in_words(other), test))
    return tests


def in_words(record: EvaluationRecord) -> str:
    who = (
        "teacher"
        if record.policy == "teacher"
        else f"student after {counted(record.step, 'step')}"
    )
    return f"{who} ({', '.join([f'× {record.samples}', *record.conditions])})"


def view(history: History, problems: Mapping[str, Problem], record: EvaluationRecord) -> Table:
    """A finished evaluation for a terminal: pass@k with intervals by kind of problem, and compared with the
    run's others."""
    ks = [1, *(k for k in (2, 4, 8, 16, 32, 64, 128) if k <= record.samples)]
    counts = counts_of(history, record)
    parts = slices(counts, problems, ks, record.errata.keys() & counts.keys())
    spent = kind_in_words(record, cost_of(history, record))
    return rich_table(table(record, parts, comparisons(history, record), spent))


def table(
    record: EvaluationRecord,
    parts: Sequence[Slice],
    tests: Sequence[tuple[str, PairedResult]],
    spent: str,
) -> blocks.Table:
    """Slices and comparisons of an evaluation that `spent` this."""
    ks = sorted({k for one in parts for k in one.pass_at})
    rows = []
    for one in parts:
        rates = (rate_in_words(one.pass_at.get(k)) for k in ks)
        rows.append([one.kind, one.name, str(one.n), *rates])
    lines = [f"against {other}: {paired_in_words(test)}" for other, test in tests]
    note = ["[95 % interval over problems]; paired by problem:", *lines] if tests else []
    header = " | ".join(["by", "problems", "number:", *(f"pass@{k}:" for k in ks)])
    title = f"{in_words(record)}: {record.split} problems of run {record.run}\n{spent}"
    return blocks.Table("", title, "\n".join(note), header, rows)
