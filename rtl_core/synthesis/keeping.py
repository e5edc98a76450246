"""Select synthetic candidates: unlike every held-out problem, with a golden answer that passes and mutants
that fail."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, islice, product
from pathlib import Path
from typing import Literal

from rtl_core.errors import ProblemError
from rtl_core.history.export import write_lines
from rtl_core.starter.source import StarterSource
from rtl_core.synthesis.variants import Kind, record_of, variant
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.grader import Grader
from rtl_grader.problems.near_duplicates import STRICT, pairs
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import GeneratedSource, ProblemSource
from rtl_grader.types.problem import Problem
from rtl_grader.validation.level import quick_level
from rtl_grader.validation.validate import validate_problem


@dataclass
class Selection:
    """The problems that passed the checks, and how many candidates were dropped for which reason."""

    problems: list[Problem] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Kind -> number of `problems`."""


def synthesise(
    sources: Sequence[ProblemSource],
    loaded: LoadedProblems,
    kinds: Sequence[Kind | Literal["family"]],
    count: int,
    *,
    seed: int,
    run_seed: int,
    mutants: int,
) -> Selection:
    """Make `count` candidates, the same number of each kind, and keep those that pass the checks on this
    machine's executor.

    Args:
        sources: the sources of `loaded`. Fresh specifications (`family`) are from the first generated one,
            or from the starter families.
        seed: determines parents, names and places; `run_seed` is the seed with which `loaded` was generated.
        mutants: see `keep`.
    """
    generated = [entry for entry in sources if isinstance(entry, GeneratedSource)]
    generated = generated or [StarterSource(kind="starter")]
    heldout = list(loaded.heldout)
    for entry in generated:
        heldout += entry.make("heldout", 128, 0) + entry.make("test", 128, 0)
    parents = [problem for problem in loaded.train if problem.golden is not None]
    selection = Selection()
    fresh = count // len(kinds) if "family" in kinds else 0
    derived = [kind for kind in kinds if kind != "family"]
    pool: list[tuple[str, Problem]] = []
    pool += candidates(parents, derived, count - fresh, seed, selection.dropped)
    if fresh:
        problems = generated[0].make("train", fresh, run_seed + seed + 1)
        pool += [("family", problem) for problem in problems]
    with (
        closing(make_executor()) as executor,
        closing(Grader(executor, seed=1, cache=MemoryCache())) as grader,
    ):
        keep(
            pool, selection, train=loaded.train, heldout=heldout, grader=grader, mutants=mutants
        )
    return selection


def candidates(
    parents: Sequence[Problem],
    kinds: Sequence[Kind],
    count: int,
    seed: int,
    dropped: Counter[str],
) -> list[tuple[Kind, Problem]]:
    """Up to `count` variants, with the kinds in turn over shuffled parents; `dropped` counts the reasons
    why a parent gave none."""
    rng = random.Random(f"synthetic/{seed}")
    order = list(parents)
    rng.shuffle(order)
    # All kinds of a parent before the next parent, so that a few parents suffice for a mixture.
    turns = islice(cycle(product(order, kinds)), count)
    variants: list[tuple[Kind, Problem]] = []
    for parent, kind in turns:
        try:
            variants.append((kind, variant(parent, kind, rng)))
        except ProblemError as error:
            reason = error.message.removeprefix(parent.id).lstrip(": ")
            dropped[f"{kind}: {reason}"] += 1
    return variants


def far_enough(
    candidates: Iterable[Problem],
    train: Sequence[Problem],
    heldout: Sequence[Problem],
    dropped: Counter[str],
) -> list[Problem]:
    """Drop copies of existing problems, copies of each other, and near-duplicates (n-grams) of held-out
    ones; return the rest."""
    fingerprints = {problem.fingerprint for problem in (*train, *heldout)}
    fresh = []
    for problem in candidates:
        if problem.fingerprint in fingerprints:
            dropped["contamination: the same problem is there already"] += 1
            continue
        fingerprints.add(problem.fingerprint)
        fresh.append(problem)
    close = {pair.moved: pair for pair in pairs(fresh, heldout, STRICT)}
    for pair in close.values():
        dropped[f"contamination: its {pair.by} is close to that of a held-out problem"] += 1
    return [problem for problem in fresh if problem.id not in close]


def keep(
    pool: Sequence[tuple[str, Problem]],
    into: Selection,
    *,
    train: Sequence[Problem],
    heldout: Sequence[Problem],
    grader: Grader,
    mutants: int,
) -> None:
    """Check candidates (kind, problem) and add those that pass to `into`.

    Args:
        pool: the candidates.
        mutants: number of mutants of each golden answer to grade; most of those that behave differently must fail.

    Raises:
        InfrastructureError: the executor failed for a reason unrelated to the problem.
    """
    kinds = {problem.id: kind for kind, problem in pool}
    clean = far_enough((problem for _, problem in pool), train, heldout, into.dropped)
    level = quick_level(mutants, grader.seed)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        records = threads.map(
            lambda problem: validate_problem(problem, grader, level=level), clean
        )
        for problem, record in zip(clean, records, strict=True):
            if record.status == "fit":
                into.problems.append(problem)
                into.kinds[kinds[problem.id]] += 1
            else:
                into.dropped[f"{kinds[problem.id]}: validation finds it {record.status}"] += 1


def write(problems: Sequence[Problem], path: Path) -> None:
    """Write problems as a CVDP file, one JSON object per line; read it with `kind = "cvdp"`."""
    write_lines(path, map(record_of, problems))
