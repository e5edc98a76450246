"""Read and split the problem sets of a configuration."""

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
        seed: the run's seed.
        split: what stays together, `problems.split`.
        hold_out_all: hold out every problem, for runs without training.

    Raises:
        ProblemError: two problems have the same id, or no problem is left to train on (to evaluate, with `hold_out_all`).
    """
    loaded = LoadedProblems(split=split)
    for source in sources:
        source.add_to(loaded, seed)
    seen: dict[str, Problem] = {}
    for problem in loaded.every:
        if problem.id in seen:
            raise ProblemError(
                f"two problems have the id {problem.id!r} (sources {seen[problem.id].source}, {problem.source})",
                "ids must be unique within a run; rename one",
            )
        seen[problem.id] = problem
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
