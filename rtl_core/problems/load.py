"""The problem sets of a configuration, read and split."""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.errors import ProblemError
from rtl_core.problems.near_duplicates import separate
from rtl_core.problems.problem_set import LoadedProblems, SplitBy
from rtl_core.problems.sources import ProblemSource
from rtl_core.types.problem import Problem


def load_problems(
    sources: Sequence[ProblemSource], seed: int, split: SplitBy = "design", *, hold_out_all: bool = False
) -> LoadedProblems:
    """Read the sources of a configuration, and move what belongs to a held-out problem to the held-out side.

    Args:
        seed: the run's.
        split: what stands on one side as a whole, as `problems.split` says.
        hold_out_all: whether nothing is trained on, so that every problem is held out.

    Raises:
        ProblemError: two problems share an id, or no problem is left to train on, or to evaluate where all are held out.
    """
    loaded = LoadedProblems(split=split)
    for source in sources:
        source.add_to(loaded, seed)
    _check_unique(loaded.every)
    if hold_out_all:
        loaded.train, loaded.heldout = [], loaded.every
    else:
        designs = loaded.designs if split == "design" else None
        loaded.train, loaded.heldout, loaded.moved = separate(loaded.train, loaded.heldout, designs)
    if not (loaded.heldout if hold_out_all else loaded.train):
        reasons = [*map(str, loaded.broken), *(f"{o.id}: {o.reason}" for o in loaded.left_out)]
        raise ProblemError(
            f"no {'' if hold_out_all else 'training '}problem is left\n" + "\n".join(f"  {r}" for r in reasons[:10]),
            "check problems.sources",
        )
    return loaded


def _check_unique(problems: Sequence[Problem]) -> None:
    seen: dict[str, Problem] = {}
    for problem in problems:
        if problem.id in seen:
            raise ProblemError(
                f"two problems have the id {problem.id!r} (sources {seen[problem.id].source}, {problem.source})",
                "ids must be unique within a run; rename one",
            )
        seen[problem.id] = problem
